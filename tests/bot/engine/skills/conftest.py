from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.engine.skills.shop import Shop, a_shop
from tests.fresh_store import open_store


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_store(tmp_path) as db:
        yield await a_shop(tmp_path, db)
