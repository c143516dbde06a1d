from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.transports.inbox_builders import InboxHarness, inbox_harness
from tests.bot.transports.outbox_builders import OutboxHarness, outbox_harness


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[OutboxHarness]:
    async with outbox_harness(tmp_path) as office:
        yield office


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[InboxHarness]:
    async with inbox_harness(tmp_path) as open_desk:
        yield open_desk
