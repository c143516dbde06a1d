"""The program's store, looked into from outside while it lives and after it died."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
from psycopg.errors import UndefinedTable

from tests.journeys.program_store import open_store


def rows(home: Path, sql: str, *values: str) -> list[tuple[Any, ...]]:
    """Nothing where there is no store yet, or it is held this instant."""
    try:
        with open_store(home, reads=True) as store:
            return [tuple(row) for row in store.execute(sql, values)]
    except (sqlite3.OperationalError, psycopg.OperationalError, UndefinedTable):
        return []


def witness_file(home: Path) -> Path:
    return home.with_suffix(".witness")


def read_points(home: Path) -> list[str]:
    """The states that all lives so far have passed through."""
    witness = witness_file(home)
    return witness.read_text().splitlines() if witness.exists() else []
