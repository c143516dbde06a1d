"""The store on PostgreSQL: its schema, what a server must be, and what is said otherwise."""

from __future__ import annotations

import importlib
import pkgutil
import socketserver
import subprocess
import sys
import threading
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

import storage
from storage.errors import StoreMismatch, StoreTooNew, StoreUnavailable
from storage.migrate import HEAD_REVISION, inspect_database, migrate, migration_engine
from storage.postgresql import ColumnTypes
from storage.schema import metadata
from tests.postgresql_server import create_database, execute


def test_the_migrations_make_the_schema_that_is_queried(postgres_url: str) -> None:
    for module in pkgutil.iter_modules(storage.__path__):
        # All tables are known then, those of other features too.
        importlib.import_module(f"storage.{module.name}")
    engine = migration_engine(postgres_url)
    types = ColumnTypes(engine.dialect)

    def differ(
        _context: object, _inspected: object, _given: object, found: Any, wanted: Any
    ) -> bool:
        named = [types.process(each.dialect_impl(engine.dialect)) for each in (found, wanted)]
        return named[0] != named[1]

    # A busy machine may take longer between two looks than a transaction may stand idle.
    engine = engine.execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": differ})
        differences = compare_metadata(context, metadata)
        predicates = {
            name: definition.partition(" WHERE ")[2]
            for name, definition in connection.exec_driver_sql(
                "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()"
            )
        }
    engine.dispose()

    assert differences == []
    # The metadata names conditions for SQLite only: the other dialect would be loaded by it.
    partial = {
        str(index.name)
        for table in metadata.tables.values()
        for index in table.indexes
        if index.dialect_options["sqlite"]["where"] is not None
    }
    assert {name for name, condition in predicates.items() if condition} == partial


@pytest.mark.parametrize(
    ("statement", "wrong", "said"),
    [
        (
            "ALTER DATABASE {} SET default_transaction_read_only = on",
            StoreUnavailable,
            "only be read",
        ),
        ("ALTER DATABASE {} SET search_path = nowhere", StoreUnavailable, "no schema"),
        ("UPDATE alembic_version SET version_num = '9999'", StoreTooNew, "9999"),
        ("DROP TABLE alembic_version", StoreMismatch, "another program"),
    ],
)
def test_a_database_that_cannot_be_used_is_refused(
    postgres_url: str, statement: str, wrong: type[Exception], said: str
) -> None:
    execute(postgres_url, statement.format(sa.make_url(postgres_url).database))

    with pytest.raises(wrong, match=said):
        migrate(postgres_url)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_text_in_another_encoding_is_refused(encoding: str) -> None:
    url = create_database(migrated=False, encoding=encoding)

    with pytest.raises(StoreUnavailable, match=encoding):
        migrate(url)


@pytest.mark.parametrize(
    "url", ["postgresql://nobody@127.0.0.1:9/shiftboss", "postgresql:///shiftboss?host=/nowhere"]
)
def test_a_server_that_does_not_answer_is_unavailable(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="connection"):
        inspect_database(url)


@pytest.mark.parametrize("greeting", [b"J\0\0\0\n8.0.36\0", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_server_of_another_kind_is_named(greeting: bytes) -> None:
    class Greet(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(greeting)
            self.request.recv(100)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Greet) as server:
        answering = threading.Thread(target=server.serve_forever, args=(0.01,))
        answering.start()
        try:
            with pytest.raises(StoreUnavailable, match="no PostgreSQL server answers there"):
                inspect_database(f"postgresql://u@127.0.0.1:{server.server_address[1]}/x")
        finally:
            server.shutdown()
            answering.join()


def test_an_old_server_is_refused(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.postgresql.OLDEST_VERSION", 99)

    with pytest.raises(StoreUnavailable, match="too old: 99 or newer"):
        migrate(postgres_url)


def test_migrating_again_changes_nothing(postgres_url: str) -> None:
    before = inspect_database(postgres_url)

    migrate(postgres_url)

    assert before is not None
    assert before.revision == HEAD_REVISION
    assert inspect_database(postgres_url) == before


_IMPORTS_NOTHING_OF_IT = """
import asyncio, sys, tempfile
from contextlib import AsyncExitStack
from storage.db import Database
from storage.migrate import migrate

async def main():
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            open(f"{folder}/a.db", "w").close()
            db = await Database.open(f"sqlite:///{folder}/a.db", stack)
            await db.data_version()

asyncio.run(main())
loaded = [name for name in sys.modules if "psycopg" in name or "postgresql" in name]
assert not loaded, loaded
sys.modules["psycopg"] = None
from storage.errors import StoreUnavailable
try:
    migrate("postgresql://localhost/nothing")
except StoreUnavailable as error:
    assert "pip install 'shiftboss[postgres]'" in str(error), error
else:
    raise AssertionError
"""


def test_sqlite_loads_nothing_of_it_and_missing_packages_are_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS_NOTHING_OF_IT], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
