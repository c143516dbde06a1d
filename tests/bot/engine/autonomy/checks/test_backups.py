"""The check of backups, with real archives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from bot.engine.autonomy.checks.storage import BackupHealthCheck
from bot.engine.upkeep import get_backup_state
from storage.backup_archive import BackupSource, create_backup
from storage.records.system import BackupState
from tests.bot.engine.autonomy.checks.health_world import HealthWorld, found_by, health_world


def check_of(world: HealthWorld, hours: float = 24) -> BackupHealthCheck:
    async def state() -> BackupState:
        return await get_backup_state(world.home / "backups", hours, world.key_values)

    return BackupHealthCheck(
        state=state,
        folder=world.home / "backups",
        hours=hours,
        store_since=lambda: world.time,
        now=world.now,
    )


def back_up(world: HealthWorld) -> Path:
    source = BackupSource(
        home=world.home,
        database=world.database,
        version="1",
        mask=lambda _name, text: text,
        secret_names=frozenset(),
    )
    return create_backup(source, world.home / "backups", now=world.time).path


async def test_a_young_backup_that_can_be_read_passes(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        world.time = datetime.now(UTC)
        new_store = await found_by(check_of(world))
        back_up(world)

        assert new_store == {}
        assert await found_by(check_of(world)) == {}


async def test_an_old_backup_and_failures_are_found(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        world.time = datetime.now(UTC)
        back_up(world)
        failure = {"since": world.time.isoformat(), "reason": "disk full"}
        await world.key_values.put("backup.failure", failure)
        world.time += timedelta(hours=60, minutes=5)

        found = await found_by(check_of(world))

        assert found["backup_old"].facts == {"hours": 60}
        assert "backup_failing" in found


async def test_a_backup_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        world.time = datetime.now(UTC)
        check = check_of(world)
        made = back_up(world)
        good = await found_by(check)
        body = bytearray(made.read_bytes())
        body[len(body) // 2] ^= 0xFF
        made.write_bytes(bytes(body))

        found = await found_by(check)

        assert good == {}
        assert found["backup_unreadable"].facts["name"] == made.name


async def test_backups_that_are_off_are_a_remark(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        found = await found_by(check_of(world, hours=0))

        assert [*found] == ["backups_off"]
        assert not found["backups_off"].is_told
