"""Gives serialized write transactions and consistent reads on one database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import repeat
from typing import Any, Self, TypeAlias, TypeVar

from sqlalchemy import Executable, Row

from storage.async_engine import AsyncConnection, AsyncEngine
from storage.dialect import (
    DatabaseFileCheck,
    create_engines,
    data_version,
    translate_database_errors,
)
from storage.errors import StoreUnavailable

log = logging.getLogger(__name__)

STORE_RETRY_SECONDS = 5.0

Transaction: TypeAlias = AsyncConnection
_Values: TypeAlias = Mapping[str, Any] | None
_Row: TypeAlias = Row[*tuple[Any, ...]]

_T = TypeVar("_T")


class Database:
    """One database. Writes are serialized; reads see the last commit."""

    def __init__(
        self, writer: AsyncEngine, reader: AsyncEngine, file_check: DatabaseFileCheck
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._file_check = file_check
        self._write_lock = asyncio.Lock()

    @classmethod
    async def open(cls, url: str, stack: AsyncExitStack) -> Self:
        """Open a database by its SQLAlchemy URL. It must already be migrated."""
        writer, reader = create_engines(url)
        stack.push_async_callback(writer.dispose)
        if reader is not writer:
            stack.push_async_callback(reader.dispose)
        return cls(writer, reader, DatabaseFileCheck(url))

    @property
    def dialect(self) -> str:
        """The engine's name: `sqlite` or `postgresql`."""
        return self._writer.dialect.name

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[Transaction, None]:
        """Run one transaction at a time: commits on normal exit, rolls back on an exception.

        It starts with the first awaited statement, or else with the commit.
        """
        with translate_database_errors():
            async with self._write_lock:
                self._file_check.check()
                async with self._writer.connect() as transaction:
                    try:
                        yield transaction
                        if not transaction.in_transaction():
                            await transaction.begin()
                        await transaction.commit()
                    except BaseException:
                        # A failed commit must be rolled back too: closing would leave it open.
                        await transaction.rollback()
                        raise

    async def data_version(self) -> int | None:
        """A number that changes when another process commits; None during a write. Cheap enough to
        call twice a second."""
        if self._write_lock.locked():
            return None
        with translate_database_errors():
            async with self._write_lock, self._writer.connect() as connection:
                return await data_version(connection)

    @asynccontextmanager
    async def read(
        self, transaction: Transaction | None = None
    ) -> AsyncGenerator[Transaction, None]:
        """A consistent, read-only view of committed data; or `transaction` itself, if given,
        including its own uncommitted writes."""
        if transaction is not None:
            yield transaction
            return
        with translate_database_errors():
            async with self._reader.connect() as connection:
                yield connection

    async def fetch_all(
        self, query: Executable, values: _Values = None, *, tx: Transaction | None = None
    ) -> Sequence[_Row]:
        """All rows of a query, read like `read(tx)`."""
        async with self.read(tx) as view:
            return (await view.execute(query, values)).all()

    async def fetch_one(
        self, query: Executable, values: _Values = None, *, tx: Transaction | None = None
    ) -> _Row | None:
        """The row of a query that has at most one."""
        async with self.read(tx) as view:
            return (await view.execute(query, values)).one_or_none()

    async def fetch_value(
        self, query: Executable, values: _Values = None, *, tx: Transaction | None = None
    ) -> Any:
        """The first column of a query's first row; None without rows."""
        async with self.read(tx) as view:
            return await view.scalar(query, values)

    async def fetch_column(
        self, query: Executable, values: _Values = None, *, tx: Transaction | None = None
    ) -> Sequence[Any]:
        """The first column of all rows of a query."""
        async with self.read(tx) as view:
            return (await view.scalars(query, values)).all()


async def retry_until_stored(
    write: Callable[[], Awaitable[_T]],
    sleep: Callable[[float], Awaitable[None]],
    subject: str,
    delays: Iterable[float] | None = None,
) -> _T:
    """Repeat a write until the store accepts it, for results that are paid for or cannot be undone.

    `subject` names it in the log. `delays` are the seconds between attempts and must not end.
    """
    pauses = iter(delays or repeat(STORE_RETRY_SECONDS))
    while True:
        try:
            return await write()
        except StoreUnavailable as error:
            log.warning("%s waits for the store: %s", subject, error)
            await sleep(next(pauses))
