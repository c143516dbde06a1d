"""Migrates a database to this version's schema; never touches one from a newer version."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from storage.dialect import dump_json, translate_database_errors
from storage.errors import StoreTooNew, StoreUnavailable

if TYPE_CHECKING:
    from alembic.config import Config

# A table of that name may be another program's.
_NO_SUCH = ("no such table", "no such column")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """A database's migration revision, None if it has none, and its id, empty if it is older.
    `moved_to` is where its contents were moved for good, `is_arriving` says that a move to it is
    not finished."""

    revision: str | None
    store_id: str = ""
    moved_to: str = ""
    is_arriving: bool = False


STORE_ID, MOVED_TO, ARRIVING = "store.id", "store.moved", "store.arriving"
"""Names of marks. They are read before a store is opened, and so without the schema's module."""


def inspect_store(path: Path, *, in_use: bool = False) -> StoreFacts:
    """Read what a SQLite file says of itself, without changing it. `in_use` says that another
    process has it open, which is then read like by any other reader.

    Raises StoreUnavailable if it cannot be read or is not a database.
    """
    try:
        return read_facts(f"{path.absolute().as_uri()}?mode=ro") if in_use else _inspect(path)
    except (sqlite3.Error, OSError, ValueError) as error:
        raise StoreUnavailable(f"{path}: {error}") from error


def inspect_database(url: str, *, in_use: bool = False) -> StoreFacts | None:
    """Read what a database says of itself; None for a file that does not exist. Raises as
    `inspect_store`, and StoreMismatch if a server's database is another program's."""
    path = sqlite_path(url)
    if path is not None:
        return inspect_store(path, in_use=in_use) if path.is_file() else None
    from storage.postgresql import read_postgresql_facts  # loaded only where it is used

    return _facts(*read_postgresql_facts(url))


def _inspect(path: Path) -> StoreFacts:
    """Reads from a copy if a killed process left a journal or WAL file: opening the original would
    recover it."""
    log, journal = _sidecar_files(path, "-wal"), _sidecar_files(path, "-journal")
    if not log and not journal:
        return read_facts(f"{path.absolute().as_uri()}?mode=ro&immutable=1")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".look-") as folder:
        copy = Path(folder) / path.name
        # With a WAL the database itself is only read, so a hard link is enough.
        (shutil.copyfile if journal else _link_or_copy)(path, copy)
        for each in (*log, *journal):
            shutil.copyfile(each, Path(folder) / each.name)
        return read_facts(f"{copy.absolute().as_uri()}?mode={'rw' if journal else 'ro'}")


def _sidecar_files(path: Path, suffix: str) -> tuple[Path, ...]:
    found = path.with_name(path.name + suffix)
    return (found,) if found.is_file() and found.stat().st_size else ()


def _link_or_copy(path: Path, copy: Path) -> None:
    try:
        os.link(path, copy)
    except OSError:
        # Not every file system supports hard links.
        shutil.copyfile(path, copy)


def read_facts(uri: str) -> StoreFacts:
    """The facts of a database by its SQLite URI. Raises sqlite3.Error, and ValueError for an id
    that is no JSON."""
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        revision = _fetch_value(connection, "SELECT version_num FROM alembic_version")
        marks = {
            name: _fetch_value(connection, "SELECT value FROM marks WHERE name = ?", name)
            for name in (STORE_ID, MOVED_TO, ARRIVING)
        }
    return _facts(revision, marks)


def _facts(revision: str | None, marks: Mapping[str, str | None]) -> StoreFacts:
    """`marks` are JSON."""
    values = {name: json.loads(value) for name, value in marks.items() if value}
    return StoreFacts(
        revision=revision,
        store_id=values.get(STORE_ID, ""),
        moved_to=values.get(MOVED_TO, ""),
        is_arriving=values.get(ARRIVING, False),
    )


def _fetch_value(connection: sqlite3.Connection, query: str, *given: str) -> str | None:
    try:
        row = connection.execute(query, given).fetchone()
    except sqlite3.OperationalError as error:
        if str(error).startswith(_NO_SUCH):
            return None
        raise
    except UnicodeDecodeError as error:
        # SQLite's message quotes the damaged name.
        raise sqlite3.DatabaseError("database disk image is malformed") from error
    return None if row is None else str(row[0])


# A test compares it with the newest file in migrations/versions. Loading Alembic to find the head
# would cost 0.5 s and 12 MB at every start.
HEAD_REVISION = "0027"


def migrate(url: str) -> None:
    """Migrate a database, all or nothing. Blocking: call it before the event loop starts, or in a
    thread.

    Raises StoreTooNew if a newer version created it and StoreUnavailable if it cannot be read or
    migrated; the file then stays as it was.
    """
    facts = inspect_database(url)
    if facts is not None:
        if facts.revision == HEAD_REVISION:
            return
        if facts.revision is not None and facts.revision not in known_revisions():
            raise StoreTooNew(facts.revision)
    _upgrade(url)


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite database, whether it exists or not; None for another database."""
    parsed = make_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def is_database_url(url: str) -> bool:
    """Whether a store can be there, by the form of the URL."""
    try:
        return make_url(url).drivername in {"sqlite", "postgresql"}
    except (ArgumentError, ValueError):
        return False


DatabasePlace: TypeAlias = Path | str
"""A SQLite file, or the URL of a database on a server."""


def database_place(url: str) -> DatabasePlace:
    return sqlite_path(url) or url


def place_url(place: DatabasePlace) -> str:
    return sqlite_url(place) if isinstance(place, Path) else place


def describe_place(place: DatabasePlace) -> str:
    """The database for people: the file's path, or the URL without its passwords."""
    if isinstance(place, Path):
        return str(place)
    url = make_url(place)
    # Such as `password` and `sslpassword` of libpq.
    hidden = {name: "***" for name in url.query if name.lower().endswith("password")}
    return url.update_query_dict(hidden).render_as_string()


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file, whatever characters its path has."""
    escaped = str(path).replace("%", "%25").replace("?", "%3F")
    return f"sqlite:///{escaped}"


def known_revisions() -> frozenset[str]:
    """Every revision this version can migrate from."""
    from alembic.script import ScriptDirectory  # loaded only when there is work to do

    script = ScriptDirectory.from_config(_alembic_config())
    return frozenset(each.revision for each in script.walk_revisions())


def migration_engine(url: str, *, locks: bool = True) -> sa.Engine:
    """A blocking engine with transactional DDL, so a failed migration changes nothing, on SQLite
    too. Its transactions exclude all other writers if it `locks`."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        from storage.postgresql import create_blocking_engine  # loaded only where it is used

        return create_blocking_engine(url, locks=locks)
    engine = sa.create_engine(parsed.set(drivername="sqlite"), json_serializer=dump_json)
    # No foreign keys here: recreating a table would cascade to its children.
    _configure_sqlite(
        engine,
        ("PRAGMA synchronous=FULL", "PRAGMA busy_timeout=5000"),
        "BEGIN IMMEDIATE" if locks else "BEGIN",
    )
    return engine


_MARKS = sa.table("marks", sa.column("name", sa.Text), sa.column("value", sa.JSON))


def read_mark(url: str, name: str) -> Any:
    """The value of a mark, None without one. Blocking. Raises StoreUnavailable."""
    return _with_marks(url, lambda tx: _read_mark(tx, name))


def claim_mark(url: str, name: str, value: Any) -> Any:
    """Set a mark that nobody has set; returns what it is then. Raises as `read_mark`."""

    def claim(tx: sa.Connection) -> Any:
        found = _read_mark(tx, name)
        if found is None:
            set_marks(tx, {name: value})
        return value if found is None else found

    return _with_marks(url, claim)


def set_marks(tx: sa.Connection, marks: Mapping[str, Any]) -> None:
    """Give marks these values; None removes one."""
    tx.execute(sa.delete(_MARKS).where(_MARKS.c.name.in_(marks)))
    given = [{"name": name, "value": each} for name, each in marks.items() if each is not None]
    if given:
        tx.execute(sa.insert(_MARKS), given)


def _read_mark(tx: sa.Connection, name: str) -> Any:
    return tx.scalar(sa.select(_MARKS.c.value).where(_MARKS.c.name == name))


def _with_marks(url: str, work: Callable[[sa.Connection], Any]) -> Any:
    engine = migration_engine(url)
    try:
        with translate_database_errors(), engine.begin() as tx:
            return work(tx)
    finally:
        engine.dispose()


def _upgrade(url: str) -> None:
    engine = migration_engine(url)
    try:
        with translate_database_errors(), engine.begin() as connection:
            migrate_connection(connection)
    except DBAPIError as error:
        # The database rejected the migration, so Shiftboss cannot start on it.
        raise StoreUnavailable(str(error.orig)) from error
    finally:
        engine.dispose()


def migrate_connection(connection: Any, revision: str = "head") -> None:
    """Migrate in the transaction of a connection, which the caller commits."""
    from alembic import command  # as above

    command.upgrade(_alembic_config(connection), revision)


def _alembic_config(connection: Any = None) -> Config:
    from alembic.config import Config  # as above

    config = Config()
    config.set_main_option("script_location", "storage:migrations")
    config.attributes["connection"] = connection
    return config


def _configure_sqlite(engine: sa.Engine, pragmas: Sequence[str], begin: str) -> None:
    @sa.event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        # The driver must not open transactions implicitly.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(pragma)
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: Any) -> None:
        connection.execute(sa.text(begin))
