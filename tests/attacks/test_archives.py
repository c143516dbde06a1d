"""A backup from elsewhere is put in place whole or not at all, and writes nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from storage.backup_archive import Backup
from storage.errors import BadBackup, RestoreRefused, StorageError
from storage.store_identity import prepare_store, verify_store
from tests.storage.test_backup_archive import member, rewritten
from tests.storage.test_restore import backed_up, into, listed


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "backups").mkdir(parents=True)
    (home / "backups" / "mine").write_text("mine")
    prepare_store(home, f"sqlite:///{home}/shiftboss.db", before_migration=lambda _revision: None)
    return home


def changed(made: Backup, folder: Path, *statements: str) -> bytes:
    """The database of a backup after these statements."""
    into(made.path, folder)
    with closing(sqlite3.connect(folder / "shiftboss.db")) as db, db:
        for statement in statements:
            db.execute(statement)
    return (folder / "shiftboss.db").read_bytes()


def empty_database(folder: Path) -> bytes:
    folder.mkdir()
    with closing(sqlite3.connect(folder / "a.db")) as db, db:
        db.execute("CREATE TABLE a (b)")
    return (folder / "a.db").read_bytes()


HOSTILE: dict[str, Callable[[Backup, Path], dict[str, Any]]] = {
    "backups": lambda _made, _at: {"extra": member("home/backups/evil")},
    "a file for the backups": lambda _made, _at: {"extra": member("home/backups")},
    "a folder for the database": lambda _made, _at: {"extra": member("home/shiftboss.db/a")},
    "a folder and a file": lambda _made, _at: {"extra": member("home/store.json/a")},
    "a name too long": lambda _made, _at: {"extra": member("home/" + "n" * 300)},
    "a time without a zone": lambda _made, _at: {"created_at": "2026-03-01T09:00:00"},
    "another home's id": lambda _made, _at: {"store_id": "of-another"},
    "a schema to come": lambda _made, _at: {"schema": "9999"},
    "another program's database": lambda _made, at: {"database": empty_database(at)},
    "no schema": lambda made, at: {"database": changed(made, at, "DELETE FROM alembic_version")},
    "a newer schema within": lambda made, at: {
        "database": changed(made, at, "UPDATE alembic_version SET version_num = '9999'")
    },
    "a table less": lambda made, at: {"database": changed(made, at, "DROP TABLE outbox")},
    "zeros without end": lambda _made, _at: {"padding": 3 << 20},
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_leaves_the_home_as_it_was(home: Path, tmp_path: Path, kind: str) -> None:
    made = backed_up(tmp_path)
    hostile = rewritten(made.path, **HOSTILE[kind](made, tmp_path / "other"))
    before = listed(home)

    with pytest.raises((BadBackup, RestoreRefused, StorageError)):
        into(hostile, home, replace=True)

    assert listed(home) == before
    assert verify_store(home, f"sqlite:///{home}/shiftboss.db")


def test_a_log_in_an_archive_is_not_replayed_into_the_database(home: Path, tmp_path: Path) -> None:
    made = backed_up(tmp_path)
    into(made.path, tmp_path / "other")
    with closing(sqlite3.connect(tmp_path / "other/shiftboss.db")) as db:
        db.execute("PRAGMA journal_mode = wal")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("CREATE TABLE evil (a)")
        log = (tmp_path / "other/shiftboss.db-wal").read_bytes()

    into(rewritten(made.path, extra=member("home/shiftboss.db-wal", log)), home, replace=True)

    with closing(sqlite3.connect(home / "shiftboss.db")) as db:
        found = db.execute("SELECT name FROM sqlite_master WHERE name = 'evil'").fetchall()
    assert found == []
