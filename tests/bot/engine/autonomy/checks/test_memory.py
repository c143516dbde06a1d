"""The check of memory pollution."""

from __future__ import annotations

from pathlib import Path

from bot.engine.autonomy.checks.storage import MemoryHealthCheck
from bot.engine.memory.promotion import QualityCounts, QualityMetrics
from tests.bot.engine.autonomy.checks.health_world import NOW, found_by, health_world


async def test_wrong_memories_are_found_by_their_share(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        quality = QualityMetrics(world.key_values)
        check = MemoryHealthCheck(quality=quality, today=NOW.date)
        async with world.db.write() as tx:
            await quality.add(tx, QualityCounts(facts=100, suspicious=5), today=NOW.date())
        clean = await found_by(check)

        async with world.db.write() as tx:
            await quality.add(tx, QualityCounts(suspicious=45), today=NOW.date())
        polluted = await found_by(check)

        assert clean == {}
        assert polluted["memory_polluted"].facts == {"percent": 50, "days": 7}
