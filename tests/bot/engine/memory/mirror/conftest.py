from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.engine.memory.mirror.desk import Desk
from tests.fresh_store import open_store


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    home = tmp_path / "home"
    home.mkdir()
    async with open_store(tmp_path) as db:
        yield Desk(home, db)
