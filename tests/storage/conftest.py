from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.db import Database
from tests.migrated_database import migrated_url, open_database
from tests.storage.message_store import MessageStore


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return migrated_url(tmp_path)


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    async with open_database(tmp_path) as database:
        yield database


@pytest.fixture
def room(db: Database) -> MessageStore:
    return MessageStore(db)
