"""SQLite's driver: aiosqlite, with one crossing to the database's thread per statement instead of
one per call."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Self, TypeAlias, TypeVar

import aiosqlite
from aiosqlite.core import _connection_worker_thread

from storage.errors import ConcurrentUpdate

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

    def __del__(self) -> None:
        """Stop the thread where the store's close was itself cancelled. The base class also warns,
        at a moment that has nothing to do with its cause."""
        if self._connection is not None:
            self.stop()

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
