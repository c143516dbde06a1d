"""The store's two doors: one to write through, one to read through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Self, TypeAlias

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from storage.dialect import engines
from storage.errors import StoreUnavailable

Transaction: TypeAlias = AsyncConnection


class Database:
    """One database. Writes take turns; reads see the last commit."""

    def __init__(self, writer: AsyncEngine, reader: AsyncEngine) -> None:
        self._writer = writer
        self._reader = reader
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, url: str, stack: AsyncExitStack) -> Self:
        """Open the database at an SQLAlchemy URL. It must be migrated already."""
        writer, reader = engines(url)
        stack.push_async_callback(writer.dispose)
        if reader is not writer:
            stack.push_async_callback(reader.dispose)
        return cls(writer, reader)

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._writer.dialect.name

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[Transaction, None]:
        """One transaction at a time. Leaving normally commits, leaving by exception rolls back."""
        with _translated():
            async with self._turn, self._writer.begin() as transaction:
                yield transaction

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[Transaction, None]:
        """A consistent view of what is committed. Writing through it fails."""
        with _translated():
            async with self._reader.connect() as connection:
                yield connection


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        if error.connection_invalidated or _is_about_the_disk(error):
            raise StoreUnavailable(str(error.orig)) from error
        raise


def _is_about_the_disk(error: DBAPIError) -> bool:
    told = str(error.orig).lower()
    return any(
        sign in told for sign in ("disk", "locked", "readonly", "unable to open", "malformed")
    )
