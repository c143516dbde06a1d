"""Bring a database to this version's schema, or refuse one from a newer version untouched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from storage.dialect import migration_engine, store_trouble
from storage.errors import StoreTooNew, StoreUnavailable
from storage.peek import sqlite_revision

if TYPE_CHECKING:
    from alembic.config import Config

# Kept beside the newest file in migrations/versions by a test: knowing the head without
# loading Alembic saves half a second and 12 MB at every start but the first.
HEAD = "0004"


def migrate(url: str) -> None:
    """Blocking: call it before the event loop is needed, or in a thread.

    Raises StoreTooNew, and leaves the file as it was, if a newer version made it, and
    StoreUnavailable if it cannot be read or brought up. All of a migration is kept, or nothing.
    """
    parsed = make_url(url)
    path = Path(parsed.database or "")
    if parsed.get_backend_name() == "sqlite" and path.is_file():
        revision = sqlite_revision(path)
        if revision == HEAD:
            return
        if revision is not None and revision not in known_revisions():
            raise StoreTooNew(revision)
    _upgrade(url)


def is_current(url: str) -> bool:
    """Whether it is there and of this version: somebody else has brought it up. Blocking. Raises
    StoreUnavailable if it cannot be read."""
    parsed = make_url(url)
    path = Path(parsed.database or "")
    return (
        parsed.get_backend_name() == "sqlite" and path.is_file() and sqlite_revision(path) == HEAD
    )


def known_revisions() -> frozenset[str]:
    """Every revision this version can come from."""
    from alembic.script import ScriptDirectory  # loaded only when there is work to do

    script = ScriptDirectory.from_config(_config())
    return frozenset(each.revision for each in script.walk_revisions())


def _upgrade(url: str) -> None:
    from alembic import command  # as above

    engine = migration_engine(url)
    try:
        with store_trouble(), engine.begin() as connection:
            command.upgrade(_config(connection), "head")
    except DBAPIError as error:
        # Whatever else the database has against it: there is nothing to start on.
        raise StoreUnavailable(str(error.orig)) from error
    finally:
        engine.dispose()


def _config(connection: Any = None) -> Config:
    from alembic.config import Config  # as above

    config = Config()
    config.set_main_option("script_location", "storage:migrations")
    config.attributes["connection"] = connection
    return config
