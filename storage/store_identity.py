"""Ties a data directory to its store: a marker file in the directory, the same id in the database.

The database gets its id in the migration that creates it, the marker follows once that is
committed. A start that is killed in between finds an id without a marker and writes the marker.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from storage.data_directory import write_private_file
from storage.errors import StoreMismatch, StoreTooNew, StoreUnavailable
from storage.migrate import (
    HEAD_REVISION,
    StoreFacts,
    claim_mark,
    database_place,
    describe_place,
    inspect_database,
    known_revisions,
    migrate,
    read_mark,
    sqlite_path,
)

MARKER_FILE = "store.json"
_USED_FILE = "web-address"
_DAMAGE_WORDS = ("malformed", "not a database")
OWNER = "store.home"
"""The mark of a store on a server that names the data directory it belongs to."""
STORE_SIDECARS = ("", "-wal", "-shm", "-journal")
"""The suffixes of a database's name for all its files."""
RESTORING = ".restoring"
RESTORE_PHASE = f"{RESTORING}/phase"
"""Exists from the first rename of a restore to its last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreMarker:
    """The store that belongs to a data directory, and the schema it had when it was last opened.
    `home` is the directory's own id, which a store on a server knows its directory by."""

    id: str
    schema: str
    home: str = ""


def read_marker(home: Path) -> StoreMarker | None:
    """None without a marker. Raises StoreMismatch if it cannot be understood."""
    path = home / MARKER_FILE
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
        return StoreMarker(
            id=str(loaded["id"]), schema=str(loaded["schema"]), home=str(loaded.get("home", ""))
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        found = f"a damaged {path} ({type(error).__name__})"
        raise StoreMismatch("the id of this directory's store", found) from error


def write_marker(home: Path, marker: StoreMarker) -> None:
    body = json.dumps({name: value for name, value in asdict(marker).items() if value})
    write_private_file(home / MARKER_FILE, f"{body}\n".encode())


def verify_store(
    home: Path, url: str, *, in_use: bool = False, allow_newer: bool = False
) -> StoreFacts | None:
    """Check that the database is the one of this data directory; changes nothing. Blocking.
    `in_use` says that another process has it open. The caller that will `allow_newer` looks at the
    revision itself.

    Returns what the database says of itself; None if there is none yet.
    Raises StoreMismatch if it is missing, emptied, damaged or another store's, and StoreTooNew if
    it or the marker is of a newer version.
    """
    if (home / RESTORE_PHASE).exists():
        raise StoreMismatch("a finished restore", f"one that was cut off in {home}")
    place = describe_place(database_place(url))
    marker = read_marker(home)
    if marker is not None and not allow_newer and not _is_known(marker.schema):
        raise StoreTooNew(marker.schema)
    expected = _describe_expected(home, marker)
    try:
        facts = inspect_database(url, in_use=in_use)
    except StoreUnavailable as error:
        if any(word in str(error) for word in _DAMAGE_WORDS):
            raise StoreMismatch(expected or "a database", f"a damaged file ({error})") from error
        raise
    if facts is not None and facts.revision is not None:
        if not allow_newer and not _is_known(facts.revision):
            raise StoreTooNew(facts.revision)
        _check_not_moving(facts, place)
    if expected and (facts is None or facts.revision is None):
        raise StoreMismatch(expected, f"no file {place}" if facts is None else f"{place} empty")
    if marker is not None and facts is not None and facts.store_id != marker.id:
        raise StoreMismatch(expected, f"{place} with {_name_store(facts.store_id)}")
    return facts


def _check_not_moving(facts: StoreFacts, place: str) -> None:
    if facts.moved_to:
        found = f"{place}, whose contents were moved to {facts.moved_to}"
        raise StoreMismatch("the store's new place in DATABASE_URL", found)
    if facts.is_arriving:
        found = f"{place} with a move that was cut off: repeat `shiftboss migrate`"
        raise StoreMismatch("a whole store", found)


def join_store(home: Path, url: str) -> StoreFacts:
    """Verify a store on a server and mark the data directory as one of the store's machines: it
    neither makes the store nor migrates it. Blocking; the caller must hold the directory.

    Returns the facts, whose revision may be one this version does not know. Raises as
    `verify_store`, and StoreMismatch if there is no store yet.
    """
    facts = verify_store(home, url, allow_newer=True)
    if facts is None or facts.revision is None:
        place = describe_place(database_place(url))
        raise StoreMismatch("a store that `shiftboss run` has made", f"{place} empty")
    kept = read_marker(home) or StoreMarker(id=facts.store_id, schema="")
    _save_marker(home, replace(kept, schema=facts.revision))
    return facts


def prepare_store(home: Path, url: str, *, before_migration: Callable[[str], None]) -> None:
    """Verify the store, migrate it and mark the data directory as its own. Blocking; the caller
    must hold the directory. A store on a server belongs to the first directory that does so.

    `before_migration` is called with the old schema of an existing store. Raises as `verify_store`
    and `migrate` do.
    """
    facts = verify_store(home, url)
    if facts is None or facts.revision != HEAD_REVISION:
        if facts is not None and facts.revision is not None:
            before_migration(facts.revision)
        migrate(url)
        facts = inspect_database(url)
    if facts is None or not facts.store_id:
        return
    known = read_marker(home)
    marker = StoreMarker(
        id=facts.store_id, schema=HEAD_REVISION, home="" if known is None else known.home
    )
    if sqlite_path(url) is not None:
        _save_marker(home, marker)
        return
    marker = replace(marker, home=marker.home or secrets.token_hex(8))
    _check_owner(home, marker, read_mark(url, OWNER))
    _save_marker(home, marker)
    own = {"home": marker.home, "place": f"{socket.gethostname()}:{home.absolute()}"}
    _check_owner(home, marker, claim_mark(url, OWNER, own))


def _save_marker(home: Path, marker: StoreMarker) -> None:
    if read_marker(home) != marker:
        write_marker(home, marker)


def _check_owner(home: Path, marker: StoreMarker, owner: Any) -> None:
    if owner is not None and owner["home"] != marker.home:
        raise StoreMismatch(
            f"a database of {home} alone",
            f"the one of another data directory ({owner['place']}). Other machines join with"
            " `shiftboss worker` or `shiftboss front`. If that directory is lost, remove the row"
            f" {OWNER} of the table marks",
        )


def set_store_aside(home: Path, url: str, *, suffix: str) -> tuple[Path, ...]:
    """Rename the database in the data directory and the marker, so that the next start begins an
    empty store. Returns the new names. Blocking; the caller must hold the directory.

    A database elsewhere stays: it may be another directory's. Killed in between, it is repeated.
    """
    path = sqlite_path(url)
    database = () if path is None else tuple(Path(f"{path}{each}") for each in STORE_SIDECARS)
    inside = [each for each in database if each.parent.resolve() == home.resolve()]
    moved = []
    for each in (*inside, home / MARKER_FILE, home / _USED_FILE):
        if each.exists():
            target = each.with_name(f"{each.name}.{suffix}")
            each.replace(target)
            moved.append(target)
    return tuple(moved)


def _describe_expected(home: Path, marker: StoreMarker | None) -> str:
    """The database that must be there; empty if this may be a first start."""
    if marker is not None:
        return f"the database with {_name_store(marker.id)}"
    # Written by versions before the marker too, once their database was complete.
    return "the database of an earlier run" if (home / _USED_FILE).is_file() else ""


def _name_store(store_id: str) -> str:
    return f"store id {store_id}" if store_id else "no store id"


def _is_known(revision: str) -> bool:
    return revision == HEAD_REVISION or revision in known_revisions()
