"""The one place that knows what SQLite and PostgreSQL each need."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Dialect, Integer, Table, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.sql.dml import Insert
from sqlalchemy.types import TypeDecorator

from storage.errors import StoreUnavailable

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    # Survive a power cut, not only a crash: a task acknowledged is a task kept.
    "PRAGMA synchronous=FULL",
    "PRAGMA busy_timeout=5000",
    "PRAGMA foreign_keys=ON",
)

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
    writer = create_async_engine(_aiosqlite(parsed), pool_size=1, max_overflow=0)
    reader = create_async_engine(_aiosqlite(parsed), pool_size=4, max_overflow=0)
    _prepare(writer, read_only=False)
    _prepare(reader, read_only=True)
    return writer, reader


def insert_or_ignore(bind_name: str, table: Table) -> Insert:
    """An insert that leaves an existing row alone, whichever unique key it meets."""
    if bind_name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return postgresql.insert(table).on_conflict_do_nothing()


def upsert(bind_name: str, table: Table, values: Mapping[str, Any], key: Sequence[str]) -> Insert:
    """An insert that overwrites the row with the same `key`."""
    changed = {name: value for name, value in values.items() if name not in key}
    if bind_name == "sqlite":
        lite = sqlite.insert(table).values(dict(values))
        return lite.on_conflict_do_update(index_elements=key, set_=changed)
    post = postgresql.insert(table).values(dict(values))
    return post.on_conflict_do_update(index_elements=key, set_=changed)


def sqlite_revision(path: str) -> str | None:
    """The migration a SQLite file stands at, read without touching it; None if it has none.

    Raises StoreUnavailable if it is no database at all.
    """
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.OperationalError:
        return None
    except sqlite3.DatabaseError as error:
        raise StoreUnavailable(f"{path}: {error}") from error
    finally:
        connection.close()
    return None if row is None else str(row[0])


def _aiosqlite(url: URL) -> URL:
    return url.set(drivername="sqlite+aiosqlite")


def _psycopg(url: URL) -> URL:
    return url.set(drivername="postgresql+psycopg")


def _prepare(engine: AsyncEngine, *, read_only: bool) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        # The driver must not open transactions behind our back.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in _PRAGMAS:
            cursor.execute(pragma)
        if read_only:
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def on_begin(connection: Any) -> None:
        # Taking the write lock at once is what makes read-then-write safe.
        connection.execute(text("BEGIN" if read_only else "BEGIN IMMEDIATE"))
