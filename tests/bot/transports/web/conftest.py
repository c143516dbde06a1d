"""A running web chat for each test, whose event loop nothing may block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from tests.bot.transports.web.world import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    with blockbuster_ctx("bot.transports.web"):
        await world.start()
        yield world
        await world.stop()
