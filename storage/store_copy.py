"""Copies a store between databases and engines, row by row, and proves that both hold the same."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from storage.dialect import translate_database_errors
from storage.errors import StoreUnavailable
from storage.migrate import DatabasePlace, migrate_connection, migration_engine, sqlite_url

_ROWS = 500
_LOCK_SECONDS = 30.0
_EXACT = 2.0**53
_VERSIONS = sa.table("alembic_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDigest:
    """How many rows a table has, and the SHA-256 of them all in the order of their keys."""

    rows: int
    sha256: str


Digests = Mapping[str, TableDigest]


def take_snapshot(source: DatabasePlace, path: Path) -> None:
    """Write a consistent state of a database in use into a new SQLite file, without a log. Readers
    and writers of the source are not blocked. Blocking.

    Raises sqlite3.Error, and StoreUnavailable if a server's database cannot be copied; the file may
    then be there in part.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    if isinstance(source, Path):
        _copy_file(source, path)
        return
    target = migration_engine(sqlite_url(path))
    try:
        with open_source(source) as live, translate_copy_errors(), target.begin() as copy:
            copy_store(live, copy)
    finally:
        target.dispose()


def _copy_file(source: Path, path: Path) -> None:
    live = sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True, timeout=_LOCK_SECONDS)
    with closing(live), closing(sqlite3.connect(path)) as copy:
        # In one step: in several, every write by another connection would restart it.
        live.backup(copy, pages=-1)
        copy.execute("PRAGMA journal_mode=DELETE").close()


@contextmanager
def open_source(url: str, *, locks: bool = False) -> Iterator[sa.Connection]:
    """A connection that reads one state of a database, for as long as it takes. If it `locks`,
    nothing is written meanwhile but through it."""
    engine = migration_engine(url, locks=locks)
    try:
        with translate_copy_errors(), engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                if not locks:
                    connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield connection
    finally:
        engine.dispose()


def copy_store(source: sa.Connection, target: sa.Connection) -> Digests:
    """Give the empty `target` the schema of `source` and all its rows. The caller commits.

    Raises StoreUnavailable if the two differ then.
    """
    revision = source.scalar(sa.select(sa.column("version_num")).select_from(_VERSIONS))
    migrate_connection(target, str(revision))
    tables, copies = reflect_tables(source), reflect_tables(target)
    for table in reversed(copies):
        # What a migration has written is the new store's own.
        target.execute(sa.delete(table))
    found = {each.name: each for each in copies}
    read = {table.name: _copy_table(source, table, target, found[table.name]) for table in tables}
    _advance_sequences(target, copies)
    written = digest_store(target, copies)
    if different := [name for name, digest in read.items() if written.get(name) != digest]:
        raise StoreUnavailable(f"the copy differs from the original: {', '.join(different)}")
    return read


def digest_store(connection: sa.Connection, tables: Sequence[sa.Table]) -> Digests:
    return {table.name: _digest_table(connection, table) for table in tables}


def reflect_tables(connection: sa.Connection) -> Sequence[sa.Table]:
    """The store's tables as the database has them, each after those it refers to."""
    metadata = sa.MetaData()
    sa.event.listen(metadata, "column_reflect", _keep_json_text)
    metadata.reflect(connection, only=_is_ours)
    return [each for each in metadata.sorted_tables if each.name != _VERSIONS.name]


@contextmanager
def translate_copy_errors() -> Iterator[None]:
    """Turn whatever the databases refuse into StoreUnavailable."""
    try:
        with translate_database_errors():
            yield
    except DBAPIError as error:
        raise StoreUnavailable(str(error.orig).strip()) from error


class _JsonText(sa.types.UserDefinedType[str]):
    """JSON as the text it is stored as: read as a value, null would be as if there were none."""

    cache_ok = True

    def get_col_spec(self, **_kw: Any) -> str:
        return "JSON"

    def column_expression(self, column: Any) -> Any:
        return sa.cast(column, sa.Text)


class _ServerJsonText(_JsonText):
    cache_ok = True

    def bind_expression(self, bindvalue: Any) -> Any:
        return sa.cast(sa.type_coerce(bindvalue, sa.Text), self)


def _keep_json_text(inspector: Any, _table: object, column: dict[str, Any]) -> None:
    if isinstance(column["type"], sa.JSON):
        on_server = inspector.dialect.name == "postgresql"
        column["type"] = _ServerJsonText() if on_server else _JsonText()


def _is_ours(name: str, _metadata: object) -> bool:
    # Tickets are made again from the tasks.
    return not name.startswith("procrastinate_")


def _copy_table(
    source: sa.Connection, table: sa.Table, target: sa.Connection, copy: sa.Table
) -> TableDigest:
    insert = sa.insert(copy)

    def write(rows: Sequence[Mapping[str, Any]]) -> None:
        target.execute(insert, [_without_nul_in_row(row) for row in rows])

    return _digest_table(source, table, write)


def _digest_table(
    connection: sa.Connection,
    table: sa.Table,
    on_rows: Callable[[Sequence[Mapping[str, Any]]], object] = lambda _rows: None,
) -> TableDigest:
    """`on_rows` gets the rows that were read, some hundred at a time."""
    digest, count, json_columns = hashlib.sha256(), 0, _json_columns(table)
    for rows in _read_rows(connection, table):
        for row in rows:
            digest.update(_canonical(row, json_columns))
        count += len(rows)
        on_rows(rows)
    return TableDigest(rows=count, sha256=digest.hexdigest())


def _read_rows(connection: sa.Connection, table: sa.Table) -> Iterator[Sequence[dict[str, Any]]]:
    query = sa.select(table).order_by(*table.primary_key.columns)
    found = connection.execute(query, execution_options={"yield_per": _ROWS})
    for rows in found.mappings().partitions():
        yield [dict(row) for row in rows]


def _json_columns(table: sa.Table) -> frozenset[str]:
    return frozenset(each.name for each in table.columns if isinstance(each.type, _JsonText))


def _canonical(row: Mapping[str, Any], json_columns: frozenset[str]) -> bytes:
    """The same bytes for the same values, whichever engine they were read from."""
    values = {
        name: _plain_number(value) if name in json_columns else _plain(value)
        for name, value in row.items()
    }
    return json.dumps(values, ensure_ascii=True, sort_keys=True).encode()


def _plain(value: Any) -> Any:
    match value:
        case bytes() | memoryview():
            return bytes(value).hex()
        case bool():
            return int(value)
        case float():
            return repr(value)
        case str():
            return _without_nul(value)
        case _:
            return value


def _plain_number(text: str | None) -> str | None:
    """JSON that is one number: SQLite keeps the number and not its digits."""
    if text and text[0] in "-0123456789" and abs(number := float(text)) < _EXACT:
        return repr(number)
    return text


def _without_nul_in_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_nul(value) if isinstance(value, str) else value
        for name, value in row.items()
    }


def _without_nul(text: str) -> str:
    """As `storage.postgresql` stores it."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def _advance_sequences(target: sa.Connection, tables: Sequence[sa.Table]) -> None:
    """New rows get numbers after those of the copied ones."""
    if target.dialect.name == "sqlite":
        return
    for table in tables:
        for column in table.primary_key.columns:
            name = target.scalar(
                sa.text("SELECT pg_get_serial_sequence(:table, :column)"),
                {"table": table.name, "column": column.name},
            )
            last = target.scalar(sa.select(sa.func.max(column))) if name else None
            if last is not None:
                target.scalar(sa.text("SELECT setval(:name, :last)"), {"name": name, "last": last})
