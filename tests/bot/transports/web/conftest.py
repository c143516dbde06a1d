"""A running web chat for each test, whose event loop nothing may block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.transports.web.builders import WebHarness, running_web_chat


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[WebHarness]:
    async with running_web_chat(tmp_path) as world:
        yield world
