from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.dashboard.world import DashboardWorld, dashboard_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[DashboardWorld]:
    async with dashboard_world(tmp_path) as world:
        yield world
