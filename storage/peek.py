"""Look into a SQLite file without leaving a trace in it or beside it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from storage.errors import StoreUnavailable

_NO_TABLE = "no such table"


def sqlite_revision(path: Path) -> str | None:
    """The migration a SQLite file stands at; None if it has none.

    Raises StoreUnavailable if it cannot be read, or is no database at all.
    """
    try:
        return _revision(path)
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(f"{path}: {error}") from error


def _revision(path: Path) -> str | None:
    """A killed program leaves its last commits, or what undoes them, in a file beside the
    database, and whoever opens that settles it: then a copy is opened."""
    log, journal = _beside(path, "-wal"), _beside(path, "-journal")
    if not log and not journal:
        return _read(f"{path.absolute().as_uri()}?mode=ro&immutable=1")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".look-") as folder:
        copy = Path(folder) / path.name
        # Through the log the database is only read, so another name for it will do.
        (shutil.copyfile if journal else _link)(path, copy)
        for each in (*log, *journal):
            shutil.copyfile(each, Path(folder) / each.name)
        return _read(f"{copy.absolute().as_uri()}?mode={'rw' if journal else 'ro'}")


def _beside(path: Path, suffix: str) -> tuple[Path, ...]:
    found = path.with_name(path.name + suffix)
    return (found,) if found.is_file() and found.stat().st_size else ()


def _link(path: Path, copy: Path) -> None:
    try:
        os.link(path, copy)
    except OSError:
        # Not every file system has second names.
        shutil.copyfile(path, copy)


def _read(uri: str) -> str | None:
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.OperationalError as error:
            if _NO_TABLE in str(error):
                return None
            raise
    return None if row is None else str(row[0])
