from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.transports.mail_fakes import Post, post_office


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    async with post_office(tmp_path) as office:
        yield office
