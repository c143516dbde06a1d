"""A real, migrated SQLite file for every test, without migrating for every test."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path

from storage.db import Database
from storage.migrate import migrate


def migrated_url(folder: Path) -> str:
    """The URL of an empty database in `folder`; the same one if it is there already."""
    path = database_file(folder)
    if not path.exists():
        path.write_bytes(_template())
    return f"sqlite:///{path}"


def database_file(folder: Path) -> Path:
    return folder / "shiftboss.db"


@asynccontextmanager
async def open_database(folder: Path) -> AsyncIterator[Database]:
    async with AsyncExitStack() as stack:
        yield await Database.open(migrated_url(folder), stack)


@cache
def _template() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        migrate(f"sqlite:///{path}")
        return path.read_bytes()
