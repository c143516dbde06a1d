from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.engine.memory.markdown_sync.sync_builders import SyncSetup
from tests.migrated_database import open_database


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[SyncSetup]:
    home = tmp_path / "home"
    home.mkdir()
    async with open_database(tmp_path) as db:
        yield SyncSetup(home, db)
