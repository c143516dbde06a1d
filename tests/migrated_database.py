"""A real, migrated database for every test, without migrating for every test."""

from __future__ import annotations

import json
import secrets
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import cache
from pathlib import Path

from storage.db import Database
from storage.migrate import migrate, migration_engine
from storage.migrations import versions
from tests.postgresql_server import USES_POSTGRESQL, create_database


def migrated_url(folder: Path) -> str:
    """The URL of an empty database in `folder`, or for it on the server of the tests; the same one
    if it is there already."""
    return _database_on_server(folder.resolve()) if USES_POSTGRESQL else migrated_file(folder)


def migrated_file(folder: Path) -> str:
    """The URL of an empty SQLite file in `folder`; the same one if it is there already."""
    path = database_file(folder)
    if not path.exists():
        path.write_bytes(_template())
    return f"sqlite:///{path}"


def lay_out_store(home: Path) -> None:
    """Give a data directory an empty store with an id of its own, as its first start would, unless
    it has one."""
    if not database_file(home).exists():
        home.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(migrated_file(home).removeprefix("sqlite:///"))) as store:
            store.execute(
                "UPDATE marks SET value = ? WHERE name = 'store.id'",
                (json.dumps(secrets.token_hex(8)),),
            )
            store.commit()
        database_file(home).chmod(0o600)


def database_file(folder: Path) -> Path:
    return folder / "shiftboss.db"


@asynccontextmanager
async def open_database(folder: Path) -> AsyncIterator[Database]:
    async with AsyncExitStack() as stack:
        yield await Database.open(migrated_url(folder), stack)


@cache
def _database_on_server(_folder: Path) -> str:
    return create_database()


@cache
def _template() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        migrate(f"sqlite:///{path}")
        return path.read_bytes()


def older_database(path: Path, before: str = "store_identity") -> str:
    """Make a database as the last version before the migration of this name left it, by default
    the last whose stores had no ids; returns its schema."""
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    (identity,) = Path(versions.__path__[0]).glob(f"*_{before}.py")
    config = Config()
    config.set_main_option("script_location", "storage:migrations")
    script = ScriptDirectory.from_config(config)
    older = str(script.get_revision(identity.name.partition("_")[0]).down_revision)
    engine = migration_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, older)
    engine.dispose()
    return older
