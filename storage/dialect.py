"""Isolates the differences between SQLite and PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert, UpdateBase
from sqlalchemy.types import TypeDecorator

from storage.async_engine import AsyncConnection
from storage.errors import ConcurrentUpdate, StoreUnavailable

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql


# Words by which SQLite and the file system report disk errors.
_DISK_ERROR_WORDS = ("disk", "locked", "readonly", "unable to open", "malformed", "not a database")

# PostgreSQL's classes and codes: connection, resources, shutdown, lock, deadlock, read-only, I/O.
_PASSING_STATES = (
    *("08", "53", "57P", "58", "28", "3D000", "40", "XX"),
    *("25006", "25P03", "55P03", "57014", "42501"),
)

# SQLite assigns row numbers only to a column declared INTEGER.
RowNumber = sa.BigInteger().with_variant(sa.Integer, "sqlite")


class UtcTimestamp(TypeDecorator[datetime]):
    """An aware UTC datetime, stored as microseconds since 1970 on every engine."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> int | None:
        if value is None:
            return None
        return round(value.timestamp() * 1_000_000)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return datetime.fromtimestamp(value / 1_000_000, UTC)


def dump_json(value: Any) -> str:
    """Compact JSON. Other scripts than Latin stay as they are: escaped, Chinese has twice the
    size."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half a surrogate pair cannot be stored but escaped.
        return json.dumps(value, separators=(",", ":"))
    return text


class PreparedWrite:
    """A write with fixed SQL and a result nobody needs. On SQLite it is batched with the next
    statement of its transaction. `build` gets the dialect's name; an insert needs `columns`."""

    def __init__(self, build: Callable[[str], UpdateBase], *columns: str) -> None:
        self._build = build
        self._columns = columns or None
        self._statement: UpdateBase | None = None
        self._compiled: _CompiledStatement | None = None

    async def send(
        self, tx: AsyncConnection, values: Mapping[str, Any], *, must_change: bool = False
    ) -> None:
        """Send or queue the write.

        A violated constraint may surface at a later statement or at the commit; so may
        ConcurrentUpdate, raised if `must_change` is set and no row changes.
        """
        if tx.dialect.name != "sqlite":
            if self._statement is None:
                self._statement = self._build(tx.dialect.name)
            done = await tx.execute(self._statement, values)
            if must_change and not done.rowcount:
                raise ConcurrentUpdate
            return
        if self._compiled is None:
            made = self._build(tx.dialect.name)
            self._compiled = _CompiledStatement.compile(made, tx.dialect, self._columns)
        assert tx.sync_connection is not None
        driver: Any = tx.sync_connection.connection.driver_connection
        driver.enqueue(
            self._compiled.sql, self._compiled.bind_values(values), must_change=must_change
        )

    async def send_many(self, tx: AsyncConnection, rows: Sequence[Sequence[Any]]) -> None:
        """Insert many rows at once, without queuing. Values are plain numbers, strings and bytes in
        the order of `columns`."""
        if self._statement is None:
            self._statement = self._build(tx.dialect.name)
        if tx.dialect.name != "sqlite":
            assert self._columns is not None
            columns = self._columns
            await tx.execute(
                self._statement, [dict(zip(columns, row, strict=True)) for row in rows]
            )
            return
        if self._compiled is None:
            self._compiled = _CompiledStatement.compile(self._statement, tx.dialect, self._columns)
        places = [(self._columns or ()).index(name) for name, _, _ in self._compiled.binds]
        given = [tuple(row[place] for place in places) for row in rows]
        await tx.exec_driver_sql(self._compiled.sql, given)


class PreparedRead:
    """A query with fixed SQL and variable values. It returns plain numbers and strings; list
    parameters are not supported."""

    def __init__(self, query: sa.Select[Any]) -> None:
        self._query = query
        self._compiled: _CompiledStatement | None = None

    async def fetch_all(
        self, tx: AsyncConnection, values: Mapping[str, Any] | None = None
    ) -> Sequence[sa.Row[Any]]:
        if tx.dialect.name != "sqlite":
            told: Sequence[sa.Row[Any]] = (await tx.execute(self._query, values)).all()
            return told
        if self._compiled is None:
            self._compiled = _CompiledStatement.compile(self._query, tx.dialect)
        parameters = tuple(self._compiled.bind_values(values or {}))
        return (await tx.exec_driver_sql(self._compiled.sql, parameters)).all()


_BindParameter: TypeAlias = tuple[str, Any, Callable[[Any], Any] | None]
"""A positional parameter: its name, its default and the conversion SQLite needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompiledStatement:
    """A statement compiled for SQLite and cached, because compiling is slow."""

    sql: str
    binds: Sequence[_BindParameter]

    @classmethod
    def compile(
        cls, statement: sa.ClauseElement, dialect: sa.Dialect, columns: Sequence[str] | None = None
    ) -> _CompiledStatement:
        compiled = statement.compile(dialect=dialect, column_keys=columns)
        assert isinstance(compiled, SQLCompiler)
        bound = [
            (
                name,
                compiled.params[name],
                compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect),
            )
            for name in compiled.positiontup or ()
        ]
        return cls(sql=str(compiled), binds=bound)

    def bind_values(self, values: Mapping[str, Any]) -> Sequence[Any]:
        given = values.get
        return [
            given(name, fixed) if convert is None else convert(given(name, fixed))
            for name, fixed, convert in self.binds
        ]


def insert_or_ignore(bind_name: str, table: sa.Table) -> Insert:
    """An insert that leaves an existing row alone, whichever unique key conflicts."""
    if bind_name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return _postgres_insert(table).on_conflict_do_nothing()


def upsert(bind_name: str, table: sa.Table, columns: Collection[str], key: Sequence[str]) -> Insert:
    """An insert that overwrites these columns of the row with the same `key`."""
    changed = [name for name in columns if name not in key]
    if bind_name == "sqlite":
        lite = sqlite.insert(table)
        given = {name: lite.excluded[name] for name in changed}
        return lite.on_conflict_do_update(index_elements=key, set_=given)
    post = _postgres_insert(table)
    given = {name: post.excluded[name] for name in changed}
    return post.on_conflict_do_update(index_elements=key, set_=given)


def _postgres_insert(table: sa.Table) -> postgresql.Insert:
    # Loads about 2 MB that SQLite installations never need.
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


def table_by_index(bind_name: str, table: sa.Table, index: str, alias: str = "") -> sa.TextClause:
    """The table as a FROM source with a forced index: SQLite may otherwise choose one that scans
    the whole table. Refer to its columns by `literal_column`."""
    named = f"{table.name} AS {alias}" if alias else table.name
    return sa.text(f"{named} INDEXED BY {index}" if bind_name == "sqlite" else named)


def store_time(bind_name: str, now: datetime) -> sa.ColumnElement[datetime]:
    """The time by the store's own clock, which all processes share: on PostgreSQL that of the
    server, on SQLite `now`."""
    if bind_name == "sqlite":
        return sa.literal(now, UtcTimestamp())
    return sa.literal_column(
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint", UtcTimestamp()
    )


@contextmanager
def translate_database_errors() -> Iterator[None]:
    """Turn errors of the disk or the database server into StoreUnavailable."""
    try:
        yield
    except PoolTimeout as error:
        raise StoreUnavailable("every connection to the database is taken") from error
    except DBAPIError as error:
        if error.connection_invalidated or _is_passing(error):
            raise StoreUnavailable(str(error.orig).strip()) from error
        raise


def _is_passing(error: DBAPIError) -> bool:
    """Whether the same write may succeed later, because nothing of it was stored."""
    cause: Any = error.orig
    if not hasattr(cause, "sqlstate"):
        return any(sign in str(cause).lower() for sign in _DISK_ERROR_WORDS)
    state = cause.sqlstate
    # Without a state, it is the connection that was not made or was lost.
    return state is None or state.startswith(_PASSING_STATES)
