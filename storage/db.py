"""Opens a database, gives serialized write transactions and consistent reads on it, and turns rows
into records."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import fields
from enum import Enum
from functools import cache
from itertools import repeat
from pathlib import Path
from types import NoneType
from typing import Any, Self, TypeAlias, TypeVar, get_args, get_origin, get_type_hints, overload

import sqlalchemy as sa
from sqlalchemy import Executable, Row
from sqlalchemy.engine import URL, make_url

from storage.async_engine import AsyncConnection, AsyncEngine, create_async_engine
from storage.dialect import dump_json, translate_database_errors
from storage.errors import StoreUnavailable
from storage.sqlite_driver import BatchingConnection

log = logging.getLogger(__name__)

STORE_RETRY_SECONDS = 5.0
CANCELLED_WRITE_SECONDS = 2.0
"""How long a write may still take whose caller was cancelled."""

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    # Commits must survive a power cut, not only a crash: an acknowledged task must not be lost.
    "PRAGMA synchronous=FULL",
    "PRAGMA busy_timeout=5000",
    "PRAGMA foreign_keys=ON",
    # What was forgotten must not be readable in the file either.
    "PRAGMA secure_delete=ON",
)

_T = TypeVar("_T")

Transaction: TypeAlias = AsyncConnection
_Values: TypeAlias = Mapping[str, Any] | None
_Row: TypeAlias = Row[*tuple[Any, ...]]


_Work: TypeAlias = Callable[[Transaction], Awaitable[None]]


class Database:
    """One database. Writes are serialized; reads see the last commit."""

    def __init__(
        self, writer: AsyncEngine, reader: AsyncEngine, file_check: DatabaseFileCheck
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._single_reader = reader
        self.backends: set[int] = set()
        """The processes of the server that write for this one."""
        if reader.dialect.name != "sqlite":
            from storage.postgresql import note_backends

            note_backends(writer, self.backends)
            self._single_reader = reader.execution_options(isolation_level="AUTOCOMMIT")
        self._file_check = file_check
        self._write_lock = asyncio.Lock()
        self._group: list[tuple[_Work, asyncio.Future[bool]]] = []
        # Raises StoreUnavailable while this process must not write.
        self.write_guard: Callable[[], None] | None = None
        self._is_closed = False

    @classmethod
    async def open(cls, url: str, stack: AsyncExitStack) -> Self:
        """Open a database by its SQLAlchemy URL. It must already be migrated. The stack closes it:
        StoreUnavailable from then on."""
        writer, reader = create_engines(url)
        database = cls(writer, reader, DatabaseFileCheck(url))
        stack.push_async_callback(database._close)
        return database

    async def _close(self) -> None:
        """Close its connections, those in use when they are given back, and refuse others."""
        self._is_closed = True
        await self._reader.dispose()
        await self._writer.dispose()

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
                if self.write_guard is not None:
                    self.write_guard()
                async with self._connect(self._writer) as transaction:
                    try:
                        yield transaction
                        if not transaction.in_transaction():
                            await transaction.begin()
                        await self._commit(transaction)
                    except BaseException:
                        # A failed commit must be rolled back too: closing would leave it open.
                        await transaction.rollback()
                        raise

    async def _commit(self, transaction: Transaction) -> None:
        if self.dialect == "sqlite":
            await transaction.commit()
            return
        from storage.postgresql import commit_exactly

        await commit_exactly(self._writer, transaction)

    async def write_together(self, work: _Work) -> None:
        """Run short work in one transaction with the work of others that waits for the lock at the
        same time; return once it is committed.

        If a group fails, each of its members runs alone, so `work` may run twice. Work that has
        not begun is dropped when its caller is cancelled."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._group.append((work, done))
        if len(self._group) == 1:
            await self._write_group()
        if not await done:
            async with self.write() as tx:
                await work(tx)

    async def _write_group(self) -> None:
        members: list[tuple[_Work, asyncio.Future[bool]]] = []
        is_stored = False
        try:
            # Whoever is to blame fails by itself then.
            with suppress(Exception):
                async with self.write() as tx:
                    members, self._group = self._group, []
                    for work, done in members:
                        if not done.done():
                            await work(tx)
                is_stored = True
        finally:
            if not members:
                members, self._group = self._group, []
            for _, done in members:
                if not done.done():
                    done.set_result(is_stored)

    async def truncate_log(self) -> None:
        """Move the write-ahead log into the database file and empty it, as far as readers let it:
        it holds older versions of what has changed."""
        if self.dialect != "sqlite":
            return
        with translate_database_errors():
            async with self._write_lock, self._connect(self._writer) as connection:
                held = await connection.get_raw_connection()
                driver: Any = held.driver_connection
                await driver.truncate_log()

    async def size_on_server(self) -> int:
        """In bytes; 0 for a file."""
        if self.dialect == "sqlite":
            return 0
        return int(await self.fetch_value(sa.text("SELECT pg_database_size(current_database())")))

    async def data_version(self) -> int | None:
        """A number that changes when another process commits; None during a write. Cheap enough to
        call twice a second. On PostgreSQL it changes some seconds after any process has changed
        memories."""
        if self.dialect != "sqlite":
            async with self.read_once() as view:
                return await data_version(view)
        if self._write_lock.locked():
            return None
        with translate_database_errors():
            async with self._write_lock, self._connect(self._writer) as connection:
                return await data_version(connection)

    @asynccontextmanager
    async def read(
        self, transaction: Transaction | None = None
    ) -> AsyncGenerator[Transaction, None]:
        """A consistent, read-only view of committed data; or `transaction` itself, if given,
        including its own uncommitted writes."""
        async with self._connect(self._reader, transaction) as view:
            yield view

    @asynccontextmanager
    async def read_once(
        self, transaction: Transaction | None = None
    ) -> AsyncGenerator[Transaction, None]:
        """Like `read`, but each statement sees the last commit, without the two round trips to a
        server that a common view takes: for a single statement."""
        async with self._connect(self._single_reader, transaction) as view:
            yield view

    @asynccontextmanager
    async def _connect(
        self, engine: AsyncEngine, transaction: Transaction | None = None
    ) -> AsyncGenerator[Transaction, None]:
        if transaction is not None:
            yield transaction
            return
        self._check_open()
        with translate_database_errors():
            async with engine.connect() as connection:
                try:
                    # It may have been closed while this waited for its turn.
                    self._check_open()
                    yield connection
                finally:
                    if self._is_closed:
                        # It would go back to a pool that nobody disposes of.
                        await connection.invalidate()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")

    async def fetch_all(
        self, query: Executable, values: _Values = None, *, tx: Transaction | None = None
    ) -> Sequence[_Row]:
        """All rows of a query, read like `read(tx)`."""
        async with self.read_once(tx) as view:
            return (await view.execute(query, values)).all()

    async def fetch_one(
        self, query: Executable, values: _Values = None, *, tx: Transaction | None = None
    ) -> _Row | None:
        """The row of a query that has at most one."""
        async with self.read_once(tx) as view:
            return (await view.execute(query, values)).one_or_none()

    async def fetch_value(
        self, query: Executable, values: _Values = None, *, tx: Transaction | None = None
    ) -> Any:
        """The first column of a query's first row; None without rows."""
        async with self.read_once(tx) as view:
            return await view.scalar(query, values)

    async def fetch_column(
        self, query: Executable, values: _Values = None, *, tx: Transaction | None = None
    ) -> Sequence[Any]:
        """The first column of all rows of a query."""
        async with self.read_once(tx) as view:
            return (await view.scalars(query, values)).all()


async def finish_despite_cancel(write: Coroutine[Any, Any, _T]) -> _T:
    """Run a write to its end even if the caller is cancelled meanwhile, so that it is known whether
    it was stored; the cancellation follows. A write that takes longer, or a second cancellation,
    ends it, and this waits for its end."""
    task = asyncio.create_task(write, name="write")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        try:
            await asyncio.wait({task}, timeout=CANCELLED_WRITE_SECONDS)
        finally:
            task.cancel()
            await asyncio.wait({task})
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a write failed whose caller was cancelled: %s", error)
        raise


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


def create_engines(url: str) -> tuple[AsyncEngine, AsyncEngine]:
    """The write engine and the read engine."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        # Nothing of it is loaded for SQLite.
        from storage.postgresql import create_postgresql_engines

        return create_postgresql_engines(url)
    # Taking the write lock immediately makes read-then-write safe.
    writer = _create_sqlite_engine(parsed, _PRAGMAS, "BEGIN IMMEDIATE", connections=1)
    reader = _create_sqlite_engine(
        parsed, (*_PRAGMAS, "PRAGMA query_only=ON"), "BEGIN", connections=4, skip_rollback_wait=True
    )
    return writer, reader


async def data_version(writer: AsyncConnection) -> int:
    """A number that changes when another connection commits; on PostgreSQL, some seconds after any
    connection has changed memories."""
    if writer.dialect.name != "sqlite":
        from storage.postgresql import count_memory_writes

        return await count_memory_writes(writer)
    held = await writer.get_raw_connection()
    driver: Any = held.driver_connection
    return int(await driver.data_version())


class DatabaseFileCheck:
    """Checks that a SQLite file still exists at its path: writes to a deleted file are lost
    silently."""

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        is_file = parsed.get_backend_name() == "sqlite"
        self._path = Path(parsed.database or "") if is_file else None
        self._initial_identity = self._current_identity()

    def check(self) -> None:
        """Raise StoreUnavailable while the file is missing. It clears once the file is back."""
        if self._current_identity() != self._initial_identity:
            raise StoreUnavailable(
                f"{self._path} was moved, deleted or replaced: put it back, or restart Shiftboss"
            )

    def _current_identity(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat() if self._path else None
        except OSError:
            return None
        return (found.st_dev, found.st_ino) if found else None


def _create_sqlite_engine(
    url: URL,
    pragmas: Sequence[str],
    begin: str,
    *,
    connections: int,
    skip_rollback_wait: bool = False,
) -> AsyncEngine:
    # Only an existing file: a missing one must not be recreated empty.
    where = f"{Path(url.database or '').absolute().as_uri()}?mode=rw"

    def connect() -> sqlite3.Connection:
        # The driver must not open transactions implicitly.
        connection = sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False)
        for pragma in pragmas:
            connection.execute(pragma).close()
        return connection

    async def connected() -> BatchingConnection:
        connection = BatchingConnection(connect, skip_rollback_wait=skip_rollback_wait)
        await connection
        return connection

    engine = create_async_engine(
        url.set(drivername="sqlite+aiosqlite"),
        async_creator=connected,
        pool_size=connections,
        max_overflow=0,
        json_serializer=dump_json,
    )

    @sa.event.listens_for(engine.sync_engine, "begin")
    def on_begin(connection: Any) -> None:
        connection.connection.driver_connection.begin(begin)

    return engine


@overload
def record_from(kind: type[_T], row: Row[Any], prefix: str = "", /, **given: Any) -> _T: ...
@overload
def record_from(kind: type[_T], row: None, prefix: str = "", /, **given: Any) -> None: ...
def record_from(kind: Any, row: Row[Any] | None, prefix: str = "", /, **given: Any) -> Any:
    """The record in a row, None if there is no row. `prefix` is that of all column names; `given`
    replaces columns."""
    if row is None:
        return None
    values = dict(given)
    for name, convert in _converters(kind):
        if name not in given:
            value = getattr(row, prefix + name)
            values[name] = value if convert is None else convert(value)
    return kind(**values)


def records_from(kind: type[_T], rows: Iterable[Row[Any]]) -> tuple[_T, ...]:
    return tuple(record_from(kind, row) for row in rows)


def row_from(record: Any) -> dict[str, Any]:
    """The columns of a record, for an insert."""
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    return {
        name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()
    }


@cache
def _converters(kind: type[Any]) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
    hints = get_type_hints(kind)
    return tuple((each.name, _converter(hints[each.name])) for each in fields(kind))


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    if get_origin(hint) is tuple:
        return tuple
    if not get_args(hint):
        return hint if isinstance(hint, type) and issubclass(hint, Enum) else None
    some, *_ = inner = [each for each in get_args(hint) if each is not NoneType]
    convert = _converter(some) if len(inner) == 1 else None
    return None if convert is None else lambda value: None if value is None else convert(value)
