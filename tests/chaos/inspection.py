"""The program's store, looked into from outside while it lives and after it died."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


def rows(home: Path, sql: str, *values: str) -> list[tuple[Any, ...]]:
    """Nothing where there is no store yet, or it is held this instant."""
    try:
        with closing(sqlite3.connect(f"file:{home / 'shiftboss.db'}?mode=ro", uri=True)) as store:
            return [tuple(row) for row in store.execute(sql, values)]
    except sqlite3.OperationalError:
        return []


def witness_file(home: Path) -> Path:
    return home.with_suffix(".witness")


def read_points(home: Path) -> list[str]:
    """The states that all lives so far have passed through."""
    witness = witness_file(home)
    return witness.read_text().splitlines() if witness.exists() else []
