"""The check of versions."""

from __future__ import annotations

from pathlib import Path

from bot.engine.autonomy.checks.installation import VersionHealthCheck
from storage.migrate import HEAD_REVISION
from tests.bot.engine.autonomy.checks.health_world import found_by, health_world


async def test_a_store_and_an_installation_of_other_versions_are_found(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        installed = ["1.0"]
        check = VersionHealthCheck(
            figures=world.figures,
            revision=HEAD_REVISION,
            running="1.0",
            installed=lambda: installed[-1],
        )
        good = await found_by(check)

        installed.append("1.1")
        world.run_sql("UPDATE alembic_version SET version_num = '9999'")
        bad = await found_by(check)

        assert good == {}
        assert bad["version_schema"].facts == {"store": "9999", "program": HEAD_REVISION}
        assert bad["version_restart"].facts == {"installed": "1.1", "running": "1.0"}
