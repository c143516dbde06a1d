"""The store's two doors: one to write through, one to read through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Self, TypeAlias

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from storage.dialect import SameFile, engines, store_trouble, version_of

Transaction: TypeAlias = AsyncConnection


class Database:
    """One database. Writes take turns; reads see the last commit."""

    def __init__(self, writer: AsyncEngine, reader: AsyncEngine, file: SameFile) -> None:
        self._writer = writer
        self._reader = reader
        self._file = file
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, url: str, stack: AsyncExitStack) -> Self:
        """Open the database at an SQLAlchemy URL. It must be migrated already."""
        writer, reader = engines(url)
        stack.push_async_callback(writer.dispose)
        if reader is not writer:
            stack.push_async_callback(reader.dispose)
        return cls(writer, reader, SameFile(url))

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._writer.dialect.name

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[Transaction, None]:
        """One transaction at a time. Leaving normally commits, leaving by exception rolls back.
        It begins with the first statement that is awaited, or else with the commit."""
        with store_trouble():
            async with self._turn:
                self._file.check()
                async with self._writer.connect() as transaction:
                    try:
                        yield transaction
                        if not transaction.in_transaction():
                            await transaction.begin()
                        await transaction.commit()
                    except BaseException:
                        # Also where it is the commit that failed: closing would leave it open.
                        await transaction.rollback()
                        raise

    async def version(self) -> int | None:
        """Another number once another process has written something, not where this one has; cheap
        enough to ask twice a second. None where something is being written just now."""
        if self._turn.locked():
            return None
        with store_trouble():
            async with self._turn, self._writer.connect() as connection:
                return await version_of(connection)

    @asynccontextmanager
    async def read(self, within: Transaction | None = None) -> AsyncGenerator[Transaction, None]:
        """A consistent view of what is committed: writing through it fails. `within` is a
        transaction under way, to be read through instead: it sees its own writes too."""
        if within is not None:
            yield within
            return
        with store_trouble():
            async with self._reader.connect() as connection:
                yield connection
