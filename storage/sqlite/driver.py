"""A connection to a SQLite file that crosses to its thread once a statement, not once a call."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeAlias, TypeVar

import aiosqlite

from storage.errors import Overtaken

Sentence: TypeAlias = tuple[str, Sequence[Any], bool]
"""A statement, its parameters, and whether it must change a row."""


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    rows: Sequence[Any] = ()
    description: Any = None
    rowcount: int = -1
    lastrowid: int | None = None


class Cursor:
    """One statement at a time: it is run, its rows are taken and it is closed in one go."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._answer = _Answer()
        self.arraysize = 1

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Self:
        self._answer = await self._connection.ask(sql, parameters)
        return self

    async def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> Self:
        self._answer = await self._connection.ask(sql, parameters, many=True)
        return self

    async def fetchall(self) -> Sequence[Any]:
        return self._answer.rows

    async def close(self) -> None:
        """Nothing is open any more."""

    @property
    def description(self) -> Any:
        return self._answer.description

    @property
    def rowcount(self) -> int:
        return self._answer.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._answer.lastrowid


class Connection(aiosqlite.Connection):
    """What is to be run `later` goes along with the next statement whose answer somebody awaits,
    or with the commit, before it and in order: no answer ever lacks what came before it. If it
    fails, that statement or commit fails, as it does with Overtaken where what `must` change a row
    changes none. `hasty` connections do not wait for a rollback."""

    def __init__(self, connector: Callable[[], sqlite3.Connection], *, hasty: bool = False) -> None:
        super().__init__(connector, iter_chunk_size=64)
        # A program that ends does not wait for a connection that nobody has closed.
        self._thread.daemon = True
        self._hasty = hasty
        self._begin: tuple[Sentence, ...] = ()
        self._along: list[Sentence] = []
        self._touched = False

    def cursor(self) -> Cursor:  # type: ignore[override]  # a cheaper one, for one statement
        return Cursor(self)

    def begin(self, sql: str) -> None:
        """Open a transaction with the first statement in it; without one there is none."""
        self._begin = ((sql, (), False),)

    def later(self, sql: str, parameters: Sequence[Any], *, must: bool = False) -> None:
        self._along.append((sql, parameters, must))

    async def ask(self, sql: str, parameters: Sequence[Any], *, many: bool = False) -> _Answer:
        along = self._taken()
        return await self._cross(partial(_asked, self._conn, along, sql, parameters, many=many))

    async def version(self) -> int:
        """Another number once anybody else has committed something; it opens no transaction."""
        sql = "PRAGMA data_version"
        answer = await self._cross(partial(_asked, self._conn, (), sql, (), many=False))
        return int(answer.rows[0][0])

    async def commit(self) -> None:
        if not self._along:
            self._begin = ()
        if self._along or self._touched:
            await self._cross(partial(_committed, self._conn, self._taken()))
            self._touched = False

    async def rollback(self) -> None:
        self._begin = ()
        self._along.clear()
        if not self._touched:
            return
        if self._hasty:
            # Whatever is asked next waits for its turn behind this.
            self._tx.put_nowait((None, self._conn.rollback))
        else:
            await self._cross(self._conn.rollback)
        self._touched = False

    async def _cross(self, work: Callable[[], _T]) -> _T:
        loop = asyncio.get_running_loop()
        crossing: asyncio.Future[_T] = loop.create_future()

        def do() -> None:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - the border of the thread: it is raised where it is awaited
                _tell(loop, _fail, crossing, error)
            else:
                _tell(loop, _fulfil, crossing, result)

        self._tx.put_nowait((None, do))
        return await crossing

    def _taken(self) -> Sequence[Sentence]:
        """From here on there may be something to roll back, whether we hear of it or not."""
        self._touched = True
        along = (*self._begin, *self._along)
        self._begin = ()
        self._along.clear()
        return along


def _asked(
    connection: sqlite3.Connection,
    along: Sequence[Sentence],
    sql: str,
    parameters: Sequence[Any],
    *,
    many: bool,
) -> _Answer:
    _run(connection, along)
    cursor = (
        connection.executemany(sql, parameters) if many else connection.execute(sql, parameters)
    )
    try:
        description = cursor.description
        rows = cursor.fetchall() if description else ()
        return _Answer(
            rows=rows,
            description=description,
            rowcount=cursor.rowcount,
            lastrowid=cursor.lastrowid,
        )
    finally:
        cursor.close()


def _committed(connection: sqlite3.Connection, along: Sequence[Sentence]) -> None:
    _run(connection, along)
    connection.commit()


def _run(connection: sqlite3.Connection, along: Sequence[Sentence]) -> None:
    for sql, parameters, must in along:
        try:
            changed = connection.execute(sql, parameters).rowcount
        except sqlite3.Error as error:
            # It is told as the failing of the statement that it went along with.
            error.add_note(f"in: {sql}")
            raise
        if must and not changed:
            raise Overtaken


def _tell(loop: asyncio.AbstractEventLoop, how: Callable[..., None], *told: Any) -> None:
    """A loop that is closed has nobody left who waits."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(how, *told)


def _fulfil(crossing: asyncio.Future[Any], result: Any) -> None:
    if not crossing.done():
        crossing.set_result(result)


def _fail(crossing: asyncio.Future[Any], error: BaseException) -> None:
    if not crossing.done():
        crossing.set_exception(error)
