"""Opens a database, gives serialized write transactions and consistent reads on it, and converts
the errors of drivers. SQLite's driver crosses to the database thread once per statement."""

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
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache, partial
from itertools import repeat
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import NoneType
from typing import Any, Self, TypeAlias, TypeVar, get_args, get_origin, get_type_hints, overload

import aiosqlite
import sqlalchemy as sa
from aiosqlite.core import _connection_worker_thread
from sqlalchemy import Executable, Row
from sqlalchemy.engine import URL, make_url

from storage.async_engine import AsyncConnection, AsyncEngine, create_async_engine
from storage.dialect import dump_json, translate_database_errors
from storage.errors import ConcurrentUpdate, StoreUnavailable

# --- the connection
# aiosqlite, with one crossing to the database's thread per statement instead of one per call.

QueuedStatement: TypeAlias = tuple[str, Sequence[Any], bool]
"""A statement, its parameters, and whether it must change a row."""


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _StatementResult:
    rows: Sequence[Any] = ()
    description: Any = None
    rowcount: int = -1
    lastrowid: int | None = None


class BufferedCursor:
    """Runs one statement, fetches its rows and closes it in one step."""

    def __init__(self, connection: BatchingConnection) -> None:
        self._connection = connection
        self._result = _StatementResult()
        self.arraysize = 1

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Self:
        self._result = await self._connection.run_statement(sql, parameters)
        return self

    async def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> Self:
        self._result = await self._connection.run_statement(sql, parameters, many=True)
        return self

    async def fetchall(self) -> Sequence[Any]:
        return self._result.rows

    async def close(self) -> None:
        """Nothing is left open."""

    @property
    def description(self) -> Any:
        return self._result.description

    @property
    def rowcount(self) -> int:
        return self._result.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._result.lastrowid


class BatchingConnection(aiosqlite.Connection):
    """Batches queued statements with the next awaited statement or the commit, in order.

    If a queued statement fails, that awaited statement or commit raises its error; ConcurrentUpdate
    if it had to change a row and did not.
    """

    def __init__(
        self, connector: Callable[[], sqlite3.Connection], *, skip_rollback_wait: bool = False
    ) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._tx = _ThreadQueue()
        # The process must not wait for an unclosed connection at exit.
        self._thread = Thread(target=_connection_worker_thread, args=(self._tx,), daemon=True)
        self._skips_rollback_wait = skip_rollback_wait
        self._begin_statement: tuple[QueuedStatement, ...] = ()
        self._queued_statements: list[QueuedStatement] = []
        self._may_need_rollback = False

    def cursor(self) -> BufferedCursor:  # type: ignore[override]  # a cheaper one, for one statement
        return BufferedCursor(self)

    def begin(self, sql: str) -> None:
        """Open a transaction when the next statement runs; without one there is none."""
        self._begin_statement = ((sql, (), False),)

    def enqueue(self, sql: str, parameters: Sequence[Any], *, must_change: bool = False) -> None:
        self._queued_statements.append((sql, parameters, must_change))

    def stop(self) -> asyncio.Future[Any] | None:
        """Stop the thread; None if it was stopped before.

        Without this check, closing a connection that was already stopped would wait forever: its
        thread ends after the first stop and never answers the second one.
        """
        return super().stop() if self._running else None

    async def run_statement(
        self, sql: str, parameters: Sequence[Any], *, many: bool = False
    ) -> _StatementResult:
        along = self._take_queued()
        return await self._run_in_thread(
            partial(_execute_statement, self._conn, along, sql, parameters, many=many)
        )

    async def data_version(self) -> int:
        """A number that changes when another connection commits; opens no transaction."""
        sql = "PRAGMA data_version"
        answer = await self._run_in_thread(
            partial(_execute_statement, self._conn, (), sql, (), many=False)
        )
        return int(answer.rows[0][0])

    async def truncate_log(self) -> None:
        """Empty the write-ahead log; opens no transaction."""
        sql = "PRAGMA wal_checkpoint(TRUNCATE)"
        await self._run_in_thread(partial(_execute_statement, self._conn, (), sql, (), many=False))

    async def commit(self) -> None:
        if not self._queued_statements:
            self._begin_statement = ()
        if self._queued_statements or self._may_need_rollback:
            await self._run_in_thread(partial(_commit, self._conn, self._take_queued()))
            self._may_need_rollback = False

    async def rollback(self) -> None:
        self._begin_statement = ()
        self._queued_statements.clear()
        if not self._may_need_rollback:
            return
        if self._skips_rollback_wait:
            # Later statements wait behind this in the thread's queue.
            self._tx.put_nowait((None, self._conn.rollback))
        else:
            await self._run_in_thread(self._conn.rollback)
        self._may_need_rollback = False

    async def _run_in_thread(self, work: Callable[[], _T]) -> _T:
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._tx.put_nowait((answer, work))
        return await answer

    def _take_queued(self) -> Sequence[QueuedStatement]:
        """From here on a rollback may be necessary, whatever the result."""
        self._may_need_rollback = True
        along = (*self._begin_statement, *self._queued_statements)
        self._begin_statement = ()
        self._queued_statements.clear()
        return along


def _execute_statement(
    connection: sqlite3.Connection,
    queued: Sequence[QueuedStatement],
    sql: str,
    parameters: Sequence[Any],
    *,
    many: bool,
) -> _StatementResult:
    _run_queued(connection, queued)
    cursor = (
        connection.executemany(sql, parameters) if many else connection.execute(sql, parameters)
    )
    try:
        description = cursor.description
        rows = cursor.fetchall() if description else ()
        return _StatementResult(
            rows=rows,
            description=description,
            rowcount=cursor.rowcount,
            lastrowid=cursor.lastrowid,
        )
    finally:
        cursor.close()


def _commit(connection: sqlite3.Connection, queued: Sequence[QueuedStatement]) -> None:
    _run_queued(connection, queued)
    connection.commit()


def _run_queued(connection: sqlite3.Connection, queued: Sequence[QueuedStatement]) -> None:
    for sql, parameters, must in queued:
        try:
            changed = connection.execute(sql, parameters).rowcount
        except sqlite3.Error as error:
            # The error surfaces in the statement it was batched with.
            error.add_note(f"in: {sql}")
            raise
        if must and not changed:
            raise ConcurrentUpdate


class _ThreadQueue(SimpleQueue[tuple[asyncio.Future[Any] | None, Callable[[], Any]]]):
    """Calls for the thread. An answer that arrives after its loop was closed is dropped: its caller
    was cancelled, and an error here would end the thread before it closes the file."""

    def put_nowait(self, item: tuple[asyncio.Future[Any] | None, Callable[[], Any]]) -> None:
        answer, work = item
        super().put_nowait((None, work if answer is None else partial(_answer, answer, work)))


def _answer(answer: asyncio.Future[Any], work: Callable[[], Any]) -> Any:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - the border of the thread: it is raised where it is awaited
        _deliver(answer, answer.set_exception, error)
        return None
    _deliver(answer, answer.set_result, result)
    return result


def _deliver(answer: asyncio.Future[Any], settle: Callable[[Any], None], value: object) -> None:
    with suppress(RuntimeError):
        answer.get_loop().call_soon_threadsafe(lambda: None if answer.done() else settle(value))


# --- the database: serialized writes, consistent reads, rows ⇄ records

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
        self._file_check = file_check
        self._write_lock = asyncio.Lock()
        self._group: list[tuple[_Work, asyncio.Future[bool]]] = []

    @classmethod
    async def open(cls, url: str, stack: AsyncExitStack) -> Self:
        """Open a database by its SQLAlchemy URL. It must already be migrated."""
        writer, reader = create_engines(url)
        stack.push_async_callback(writer.dispose)
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
            async with self._write_lock, self._writer.connect() as connection:
                held = await connection.get_raw_connection()
                driver: Any = held.driver_connection
                await driver.truncate_log()

    async def data_version(self) -> int | None:
        """A number that changes when another process commits; None during a write. Cheap enough to
        call twice a second. On PostgreSQL it changes some seconds after any process has changed
        memories."""
        if self.dialect != "sqlite":
            async with self.read() as view:
                return await data_version(view)
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


async def finish_despite_cancel(write: Coroutine[Any, Any, _T]) -> _T:
    """Run a write to its end, also if the caller is cancelled meanwhile: whether it is stored is
    known then, and the cancellation follows. A write that takes longer, or a second cancellation,
    ends it."""
    task = asyncio.create_task(write, name="write")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        try:
            await asyncio.wait({task}, timeout=CANCELLED_WRITE_SECONDS)
        finally:
            task.cancel()
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


# Whether anything was written to these tables; the server counts up to some seconds later.
_MEMORY_WRITES = sa.text(
    "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables"
    " WHERE schemaname = current_schema() AND relname IN ('memories', 'memory_tombstones')"
)


async def data_version(writer: AsyncConnection) -> int:
    """A number that changes when another connection commits; on PostgreSQL, some seconds after any
    connection has changed memories."""
    if writer.dialect.name != "sqlite":
        return int(await writer.scalar(_MEMORY_WRITES) or 0)
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
