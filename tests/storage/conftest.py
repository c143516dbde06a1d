from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.db import Database
from tests.fresh_store import fresh_url, open_store
from tests.storage.mail_room import Room


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return fresh_url(tmp_path)


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    async with open_store(tmp_path) as database:
        yield database


@pytest.fixture
def room(db: Database) -> Room:
    return Room(db)
