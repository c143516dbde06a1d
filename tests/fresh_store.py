"""A real, migrated SQLite file for every test, without migrating for every test."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path

from storage.db import Database
from storage.migrate import migrate


def fresh_url(folder: Path) -> str:
    """The URL of an empty database in `folder`; the same one if it is there already."""
    path = folder / "shiftboss.db"
    if not path.exists():
        path.write_bytes(_template())
    return f"sqlite:///{path}"


@asynccontextmanager
async def open_store(folder: Path) -> AsyncIterator[Database]:
    async with AsyncExitStack() as stack:
        yield await Database.open(fresh_url(folder), stack)


@cache
def _template() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        migrate(f"sqlite:///{path}")
        return path.read_bytes()
