"""The check of clocks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from bot.engine.autonomy.checks.installation import ClockHealthCheck
from tests.bot.engine.autonomy.checks.health_world import (
    NOW,
    HealthWorld,
    found_by,
    health_world,
    micros,
)


async def test_a_jump_is_found_once_whichever_way(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        up = [0.0]
        check = check_of(world, up)
        first = await found_by(check)
        world.advance(minutes=30)
        up[0] += 1800
        steady = await found_by(check)
        world.advance(hours=-2)
        up[0] += 1800
        back = await found_by(check)
        up[0] += 60
        world.advance(minutes=1)
        after = await found_by(check)

        assert first == steady == after == {}
        assert back["clock_jumped"].facts == {"minutes": -150}


async def test_a_clock_behind_what_is_stored_is_found(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        world.add_task("ab12cd", "completed", created_at=micros(NOW + timedelta(hours=3)))

        found = await found_by(check_of(world, [0.0]))

        assert found["clock_behind"].facts == {"minutes": 180}


async def test_missing_data_of_a_zone_is_found(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        found = await found_by(check_of(world, [0.0], zone="Mars/Olympus"))

        assert [*found] == ["zone_missing"]


def check_of(world: HealthWorld, up: list[float], zone: str = "Asia/Shanghai") -> ClockHealthCheck:
    return ClockHealthCheck(figures=world.figures, zone=zone, now=world.now, uptime=lambda: up[0])
