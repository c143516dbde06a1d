"""The stores of the programs that journeys run: SQLite files in their homes, or databases on the
server of the tests where SHIFTBOSS_TEST_STORE says so."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.migrated_database import database_file, lay_out_store
from tests.postgresql_server import USES_POSTGRESQL, connect, create_database
from tests.waiting import WAIT_SECONDS

_urls: dict[Path, str] = {}


def lay_out_program_store(home: Path) -> None:
    """Give a home an empty store, as its first start would."""
    if USES_POSTGRESQL:
        _urls.setdefault(home.resolve(), create_database())
    else:
        lay_out_store(home)


def store_settings(home: Path) -> Mapping[str, str]:
    """The setting of the store of this home, a new one if it has none."""
    if not USES_POSTGRESQL:
        return {}
    place = home.resolve()
    if place not in _urls:
        _urls[place] = create_database(migrated=False)
    return {"DATABASE_URL": _urls[place]}


@contextmanager
def open_store(home: Path) -> Iterator[StoreConnection]:
    """The store of a home, as another program would open it; its writes are stored at the end."""
    if USES_POSTGRESQL:
        with closing(connect(_urls[home.resolve()])) as server, server.transaction():
            yield StoreConnection(server)
    else:
        with closing(sqlite3.connect(database_file(home), timeout=WAIT_SECONDS)) as file, file:
            yield StoreConnection(file)


class StoreConnection:
    """Takes statements as SQLite does."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[object] = ()) -> Any:
        """Run one statement; returns its cursor."""
        if USES_POSTGRESQL and values:
            statement = statement.replace("%", "%%").replace("?", "%s")
            return self._connection.execute(statement, values)
        return self._connection.execute(statement, values or ())
