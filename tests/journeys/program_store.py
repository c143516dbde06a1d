"""The stores of the programs that journeys run: SQLite files in their homes, or databases on the
server of the tests where SHIFTBOSS_TEST_STORE says so."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url

from storage.migrate import DatabasePlace
from tests.migrated_database import database_file, lay_out_store
from tests.postgresql_server import USES_POSTGRESQL, connect, create_database
from tests.waiting import WAIT_SECONDS

_urls: dict[Path, str] = {}
_JSON_FIELD = re.compile(r"json_extract\(([\w.]+), '\$\.(\w+)'\)")


def lay_out_program_store(home: Path) -> None:
    """Give a home an empty store, as its first start would."""
    if USES_POSTGRESQL:
        home.mkdir(parents=True, exist_ok=True)
        _urls.setdefault(home.resolve(), create_database())
    else:
        lay_out_store(home)


def copy_home(template: Path, home: Path) -> None:
    """Make a home as this one is, with its store; no program may run on it."""
    shutil.copytree(template, home)
    if USES_POSTGRESQL:
        name = str(make_url(_urls[template.resolve()]).database)
        _urls[home.resolve()] = create_database(migrated=False, template=name)


def name_empty_store(home: Path) -> None:
    """Have the next start of a command use another, empty database, as a restore needs it there."""
    if USES_POSTGRESQL:
        _urls[home.resolve()] = create_database(migrated=False)


def store_settings(home: Path) -> Mapping[str, str]:
    """The setting of the store of this home, a new one if it has none."""
    if not USES_POSTGRESQL:
        return {}
    place = home.resolve()
    if place not in _urls:
        _urls[place] = create_database(migrated=False)
    return {"DATABASE_URL": _urls[place]}


def store_place(home: Path) -> DatabasePlace:
    """Where the store of a home is: its file, or the URL on the server."""
    return _urls[home.resolve()] if USES_POSTGRESQL else database_file(home)


@contextmanager
def open_store(home: Path, *, reads: bool = False) -> Iterator[StoreConnection]:
    """The store of a home, as another program would open it; its writes are stored at the end. One
    that only `reads` waits for nobody."""
    if USES_POSTGRESQL:
        from psycopg.types.json import set_json_loads

        with closing(connect(store_settings(home)["DATABASE_URL"])) as server, server.transaction():
            set_json_loads(_as_text, server)
            yield StoreConnection(server)
    else:
        where, patience = database_file(home.absolute()).as_uri(), 5.0 if reads else WAIT_SECONDS
        mode = f"{where}?mode={'ro' if reads else 'rwc'}"
        with closing(sqlite3.connect(mode, uri=True, timeout=patience)) as file, file:
            yield StoreConnection(file)


def _as_text(stored: str | bytes) -> str:
    """JSON as SQLite gives it."""
    return stored if isinstance(stored, str) else stored.decode()


class StoreConnection:
    """Takes statements as SQLite does."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[object] = ()) -> Any:
        """Run one statement; returns its cursor."""
        if USES_POSTGRESQL:
            statement = statement.replace("instr(", "strpos(")
            statement = _JSON_FIELD.sub(r"(\1 ->> '\2')", statement)
        if USES_POSTGRESQL and values:
            statement = statement.replace("%", "%%").replace("?", "%s")
            return self._connection.execute(statement, values)
        return self._connection.execute(statement, *([values] if values else []))

    def list_tables(self) -> list[str]:
        """The names of its tables."""
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        if USES_POSTGRESQL:
            query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        return [name for (name,) in self.execute(query)]
