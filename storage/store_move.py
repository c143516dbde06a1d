"""Moves a store to another database for good: from SQLite to PostgreSQL, or back.

The copy arrives in one transaction, with a mark that it is not in use yet. Then the source gets a
mark that says where it went, and at last the copy loses its own. Nothing starts on a store with
either mark; so whatever is killed in between, repeating the move finishes it, and at no time do two
stores take work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from storage.data_directory import fsync_path
from storage.errors import MoveRefused, StoreMismatch, StoreUnavailable
from storage.migrate import (
    ARRIVING,
    HEAD_REVISION,
    MOVED_TO,
    StoreFacts,
    database_place,
    describe_place,
    inspect_database,
    migration_engine,
    set_marks,
    sqlite_path,
    sqlite_url,
)
from storage.store_copy import Digests, copy_store, open_source, translate_copy_errors
from storage.store_identity import OWNER, STORE_SIDECARS, read_marker

_PARTIAL = ".arriving"
_REPLACED = ".replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreMove:
    """`tables` has the rows that were compared in both, empty if this call only finished an
    earlier one."""

    source: str
    target: str
    tables: Digests


def move_store(home: Path, source: str, target: str) -> StoreMove:
    """Move the store of a data directory from one database, by its URL, to another. Blocking; the
    caller must hold the directory.

    Raises MoveRefused, and then has changed nothing, and StoreUnavailable if a database fails:
    repeat it then.
    """
    names = describe_place(database_place(source)), describe_place(database_place(target))
    with _refuse_what_fails():
        facts = _check_source(home, source, target)
    tables: Digests = {}
    if not facts.moved_to:
        with _refuse_what_fails():
            _check_target(target, facts)
        with _locked_source(source) as original:
            with _refuse_what_fails():
                tables = _copy_into(target, original)
            set_marks(original, {MOVED_TO: names[1]})
            original.commit()
    _finish(target)
    return StoreMove(source=names[0], target=names[1], tables=tables)


@contextmanager
def _refuse_what_fails() -> Iterator[None]:
    """Up to here neither store is changed for anybody."""
    try:
        yield
    except StoreUnavailable as error:
        raise MoveRefused(str(error).partition("\n")[0]) from error


def check_empty(target: str) -> None:
    """Check that a database can take any store. Blocking. Raises as `move_store`."""
    with _refuse_what_fails():
        found = _inspect_target(target)
    if found is not None:
        name = describe_place(database_place(target))
        raise MoveRefused(f"{name} has a store already: name an empty database")


def _check_source(home: Path, source: str, target: str) -> StoreFacts:
    name = describe_place(database_place(source))
    facts, marker = inspect_database(source), read_marker(home)
    if facts is None or facts.revision is None:
        raise MoveRefused(f"{name} is empty: there is nothing to move")
    if marker is not None and marker.id != facts.store_id:
        raise MoveRefused(f"{name} is not the database of {home}")
    if facts.revision != HEAD_REVISION:
        raise MoveRefused(f"{name} is of another version: start this one on it first")
    if facts.is_arriving:
        raise MoveRefused(f"a move to {name} was cut off: finish that one first")
    wanted = describe_place(database_place(target))
    if name == wanted:
        raise MoveRefused(f"the store is in {name} already")
    if facts.moved_to not in {"", wanted}:
        raise MoveRefused(f"the store of {home} was moved to {facts.moved_to}")
    if facts.moved_to and not _has(target, facts.store_id):
        raise MoveRefused(f"{wanted}, where the store was moved to, does not have it any more")
    return facts


def _has(target: str, store_id: str) -> bool:
    found = inspect_database(target)
    return found is not None and found.store_id == store_id


def _check_target(target: str, source: StoreFacts) -> None:
    """It may be empty, or hold an older copy of the same store that is not in use."""
    name, found = describe_place(database_place(target)), _inspect_target(target)
    if found is None:
        return
    if found.store_id != source.store_id:
        raise MoveRefused(f"{name} has another store ({found.store_id}): name an empty database")
    if not (found.moved_to or found.is_arriving):
        raise MoveRefused(f"{name} has this store already: name an empty database")


def _inspect_target(target: str) -> StoreFacts | None:
    """The store that is there already."""
    try:
        found = inspect_database(target)
    except StoreMismatch as error:
        name = describe_place(database_place(target))
        raise MoveRefused(f"{name} has {error.found}: name an empty database") from error
    return None if found is None or found.revision is None else found


@contextmanager
def _locked_source(source: str) -> Iterator[sa.Connection]:
    """Nothing is written to it until it is known to be moved."""
    with open_source(source, locks=True) as connection:
        if connection.dialect.name == "postgresql":
            others = connection.exec_driver_sql(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'shiftboss' AND pid <> pg_backend_pid()"
            ).scalar_one()
            if others:
                raise MoveRefused(
                    f"{others} connections of running Shiftboss processes use the database: stop"
                    " them on every machine first"
                )
        yield connection


def _copy_into(target: str, original: sa.Connection) -> Digests:
    """In one transaction, or in a file that gets its name at the end."""
    path = sqlite_path(target)
    if path is None:
        return _copy_in_transaction(target, original)
    partial = path.with_name(path.name + _PARTIAL)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for suffix in STORE_SIDECARS:
        Path(f"{partial}{suffix}").unlink(missing_ok=True)
    partial.touch(mode=0o600)
    tables = _copy_in_transaction(sqlite_url(partial), original)
    fsync_path(partial)
    for suffix in STORE_SIDECARS:
        older = Path(f"{path}{suffix}")
        if older.exists():
            older.replace(f"{path}{_REPLACED}{suffix}")
    partial.replace(path)
    fsync_path(path.parent)
    return tables


def _copy_in_transaction(target: str, original: sa.Connection) -> Digests:
    engine = migration_engine(target)
    try:
        with translate_copy_errors(), engine.begin() as copy:
            tables = copy_store(original, copy)
            set_marks(copy, {ARRIVING: True, MOVED_TO: None, OWNER: None})
            return tables
    finally:
        engine.dispose()


def _finish(target: str) -> None:
    engine = migration_engine(target)
    try:
        with translate_copy_errors(), engine.begin() as copy:
            set_marks(copy, {ARRIVING: None})
    finally:
        engine.dispose()
