"""A running web chat for each test, whose event loop nothing may block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from tests.bot.transports.web.builders import WebHarness


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[WebHarness]:
    world = WebHarness(tmp_path)
    with blockbuster_ctx("bot.transports.web") as guard:
        # The store looks at its file before each write.
        guard.functions["os.stat"].can_block_in("storage/db.py", "_current_identity")
        await world.start()
        yield world
        await world.stop()
