from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.transports.front_desk import Desk, front_desk
from tests.bot.transports.mail_fakes import Post, post_office


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    async with post_office(tmp_path) as office:
        yield office


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with front_desk(tmp_path) as open_desk:
        yield open_desk
