"""The one place that knows what SQLite and PostgreSQL each need."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    Dialect,
    Engine,
    Integer,
    Row,
    Select,
    Table,
    TextClause,
    create_engine,
    event,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert, UpdateBase
from sqlalchemy.types import TypeDecorator

from storage.errors import Overtaken, StoreUnavailable
from storage.sqlite.driver import Connection

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    # Survive a power cut, not only a crash: a task acknowledged is a task kept.
    "PRAGMA synchronous=FULL",
    "PRAGMA busy_timeout=5000",
    "PRAGMA foreign_keys=ON",
)

# How the trouble of a disk is worded, by SQLite itself and by the file system below it.
_SIGNS = ("disk", "locked", "readonly", "unable to open", "malformed", "not a database")

# SQLite numbers rows by itself only in a column that is spelled INTEGER.
RowNumber = BigInteger().with_variant(Integer, "sqlite")


class Instant(TypeDecorator[datetime]):
    """An aware UTC datetime, kept as whole microseconds since 1970 on every engine."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        if value is None:
            return None
        return round(value.timestamp() * 1_000_000)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return datetime.fromtimestamp(value / 1_000_000, UTC)


def engines(url: str) -> tuple[AsyncEngine, AsyncEngine]:
    """The engine to write with and the engine to read with; on PostgreSQL they are one."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        engine = create_async_engine(_psycopg(parsed), pool_pre_ping=True)
        return engine, engine
    # Taking the write lock at once is what makes read-then-write safe.
    writer = _lite(parsed, _PRAGMAS, "BEGIN IMMEDIATE", connections=1)
    reader = _lite(parsed, (*_PRAGMAS, "PRAGMA query_only=ON"), "BEGIN", connections=4, hasty=True)
    return writer, reader


async def version_of(writer: AsyncConnection) -> int:
    """Another number once anybody but this writer has committed; 0 where that is not told."""
    if writer.dialect.name != "sqlite":
        return 0
    held = await writer.get_raw_connection()
    driver: Any = held.driver_connection
    return int(await driver.version())


class SameFile:
    """Proves that a SQLite file is where it was. An open file can be written on long after it
    was deleted; what is written then is lost without anybody being told."""

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        is_file = parsed.get_backend_name() == "sqlite"
        self._path = Path(parsed.database or "") if is_file else None
        self._known = self._identity()

    def check(self) -> None:
        """Raises StoreUnavailable; nothing else is wrong once the file is back."""
        if self._identity() != self._known:
            raise StoreUnavailable(
                f"{self._path} was moved, deleted or replaced: put it back, or restart Shiftboss"
            )

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat() if self._path else None
        except OSError:
            return None
        return (found.st_dev, found.st_ino) if found else None


class FixedWrite:
    """A write that is always the same but for its values, and whose outcome nobody asks for: on
    SQLite it goes along with the next statement of its transaction. `make` gets the dialect's
    name; an insert needs its `columns`."""

    def __init__(self, make: Callable[[str], UpdateBase], *columns: str) -> None:
        self._make = make
        self._columns = columns or None
        self._made: UpdateBase | None = None
        self._bound: _Sentence | None = None

    async def send(
        self, tx: AsyncConnection, values: Mapping[str, Any], *, must: bool = False
    ) -> None:
        """A constraint that it breaks may be told with a later statement, or with the commit; so
        may Overtaken, where it `must` change a row and changes none."""
        if tx.dialect.name != "sqlite":
            if self._made is None:
                self._made = self._make(tx.dialect.name)
            done = await tx.execute(self._made, values)
            if must and not done.rowcount:
                raise Overtaken
            return
        if self._bound is None:
            made = self._make(tx.dialect.name)
            self._bound = _Sentence.of(made, tx.dialect, self._columns)
        assert tx.sync_connection is not None
        driver: Any = tx.sync_connection.connection.driver_connection
        driver.later(self._bound.sql, self._bound.parameters(values), must=must)

    async def send_many(self, tx: AsyncConnection, rows: Sequence[Sequence[Any]]) -> None:
        """For an insert: many rows of plain numbers, strings and bytes, in the order of its
        columns. It is sent at once."""
        if self._made is None:
            self._made = self._make(tx.dialect.name)
        if tx.dialect.name != "sqlite":
            assert self._columns is not None
            columns = self._columns
            await tx.execute(self._made, [dict(zip(columns, row, strict=True)) for row in rows])
            return
        if self._bound is None:
            self._bound = _Sentence.of(self._made, tx.dialect, self._columns)
        places = [(self._columns or ()).index(name) for name, _, _ in self._bound.bound]
        given = [tuple(row[place] for place in places) for row in rows]
        await tx.exec_driver_sql(self._bound.sql, given)


class FixedRead:
    """A query that is always the same but for its values; what it gives are plain numbers and
    strings. It may hold no list of values."""

    def __init__(self, query: Select[Any]) -> None:
        self._query = query
        self._bound: _Sentence | None = None

    async def rows(
        self, tx: AsyncConnection, values: Mapping[str, Any] | None = None
    ) -> Sequence[Row[Any]]:
        if tx.dialect.name != "sqlite":
            told: Sequence[Row[Any]] = (await tx.execute(self._query, values)).all()
            return told
        if self._bound is None:
            self._bound = _Sentence.of(self._query, tx.dialect)
        parameters = tuple(self._bound.parameters(values or {}))
        return (await tx.exec_driver_sql(self._bound.sql, parameters)).all()


_Bound: TypeAlias = tuple[str, Any, Callable[[Any], Any] | None]
"""A parameter in its place: its name, what it is if nothing is given, how SQLite gets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sentence:
    """A statement as SQLite gets it. Making one takes long."""

    sql: str
    bound: Sequence[_Bound]

    @classmethod
    def of(
        cls, made: ClauseElement, dialect: Dialect, columns: Sequence[str] | None = None
    ) -> _Sentence:
        compiled = made.compile(dialect=dialect, column_keys=columns)
        assert isinstance(compiled, SQLCompiler)
        bound = [
            (
                name,
                compiled.params[name],
                compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect),
            )
            for name in compiled.positiontup or ()
        ]
        return cls(sql=str(compiled), bound=bound)

    def parameters(self, values: Mapping[str, Any]) -> Sequence[Any]:
        given = values.get
        return [
            given(name, fixed) if convert is None else convert(given(name, fixed))
            for name, fixed, convert in self.bound
        ]


def insert_or_ignore(bind_name: str, table: Table) -> Insert:
    """An insert that leaves an existing row alone, whichever unique key it meets."""
    if bind_name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return _postgres_insert(table).on_conflict_do_nothing()


def upsert(bind_name: str, table: Table, columns: Collection[str], key: Sequence[str]) -> Insert:
    """An insert that overwrites these columns of the row with the same `key`."""
    changed = [name for name in columns if name not in key]
    if bind_name == "sqlite":
        lite = sqlite.insert(table)
        given = {name: lite.excluded[name] for name in changed}
        return lite.on_conflict_do_update(index_elements=key, set_=given)
    post = _postgres_insert(table)
    given = {name: post.excluded[name] for name in changed}
    return post.on_conflict_do_update(index_elements=key, set_=given)


def _postgres_insert(table: Table) -> postgresql.Insert:
    # Some 2 MB of memory that a store on SQLite never needs.
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


def by_index(bind_name: str, table: Table, index: str, alias: str = "") -> TextClause:
    """The table as a source, read by this index: left to itself, SQLite takes one that looks
    better and may walk through all of it. Name its columns by `literal_column`."""
    named = f"{table.name} AS {alias}" if alias else table.name
    return text(f"{named} INDEXED BY {index}" if bind_name == "sqlite" else named)


def migration_engine(url: str) -> Engine:
    """A blocking engine whose transactions take the schema with them: a migration that dies
    half-way leaves nothing behind, on SQLite too."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return create_engine(_psycopg(parsed))
    engine = create_engine(parsed.set(drivername="sqlite"))
    # No foreign keys here: a table that is made anew would take its children along.
    _prepare(engine, ("PRAGMA synchronous=FULL", "PRAGMA busy_timeout=5000"), "BEGIN IMMEDIATE")
    return engine


@contextmanager
def store_trouble() -> Iterator[None]:
    """What is wrong with the disk or the server, and not with us, becomes StoreUnavailable."""
    try:
        yield
    except PoolTimeout as error:
        raise StoreUnavailable("every connection to the database is taken") from error
    except DBAPIError as error:
        if error.connection_invalidated or _is_about_the_disk(error):
            raise StoreUnavailable(str(error.orig)) from error
        raise


def _is_about_the_disk(error: DBAPIError) -> bool:
    told = str(error.orig).lower()
    return any(sign in told for sign in _SIGNS)


def _lite(
    url: URL, pragmas: Sequence[str], begin: str, *, connections: int, hasty: bool = False
) -> AsyncEngine:
    # A file that is there: one that has gone missing must not be made anew, and empty.
    where = f"{Path(url.database or '').absolute().as_uri()}?mode=rw"

    def connect() -> sqlite3.Connection:
        # The driver must not open transactions behind our back.
        connection = sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False)
        for pragma in pragmas:
            connection.execute(pragma).close()
        return connection

    async def connected() -> Connection:
        connection = Connection(connect, hasty=hasty)
        await connection
        return connection

    engine = create_async_engine(
        url.set(drivername="sqlite+aiosqlite"),
        async_creator=connected,
        pool_size=connections,
        max_overflow=0,
    )

    @event.listens_for(engine.sync_engine, "begin")
    def on_begin(connection: Any) -> None:
        connection.connection.driver_connection.begin(begin)

    return engine


def _psycopg(url: URL) -> URL:
    return url.set(drivername="postgresql+psycopg")


def _prepare(engine: Engine, pragmas: Sequence[str], begin: str) -> None:
    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        # The driver must not open transactions behind our back.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(pragma)
        cursor.close()

    @event.listens_for(engine, "begin")
    def on_begin(connection: Any) -> None:
        connection.execute(text(begin))
