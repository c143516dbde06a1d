"""The check of the disk: little space, and what grows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from bot.engine.autonomy.checks.storage import DiskHealthCheck
from storage.records.system import DiskUse
from tests.bot.engine.autonomy.checks.health_world import HealthWorld, found_by, health_world

GIB = 1024**3


class Disk:
    def __init__(self, world: HealthWorld) -> None:
        self.free, self.uses, self.deleted = 100 * GIB, {"logs": GIB}, 0
        self.check = DiskHealthCheck(
            free_bytes=lambda: self.free,
            measure=lambda: [DiskUse(kind=kind, size=size) for kind, size in self.uses.items()],
            delete_old=self.delete_old,
            key_values=world.key_values,
            today=lambda: world.now().date(),
        )

    async def delete_old(self) -> int:
        self.deleted += 1
        return 3


async def test_little_space_is_found_and_what_is_old_is_deleted(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        disk = Disk(world)
        enough = await found_by(disk.check)
        disk.free = GIB // 2
        little = await found_by(disk.check)
        disk.free = GIB // 20
        full = await found_by(disk.check)

        repaired = await disk.check.repair("delete_old", [*full.values()])

        assert enough == {}
        assert little["disk_low"].points < full["disk_low"].points
        assert full["disk_low"].facts["kind_key"] == "store.disk.logs"
        assert (repaired, disk.deleted) == (3, 1)


async def test_what_fills_the_disk_within_two_weeks_is_found(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        disk = Disk(world)
        await disk.check.find()

        world.advance(days=2)
        disk.uses["logs"] += 40 * GIB
        found = await found_by(disk.check)
        world.time -= timedelta(days=2)
        same_day = await found_by(disk.check)

        assert found["disk_grows"].facts["days"] == 5
        assert found["disk_grows"].facts["size_bytes"] == 20 * GIB
        assert same_day == {}
