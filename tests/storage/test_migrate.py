from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from storage.errors import StoreTooNew
from storage.migrate import HEAD, known_revisions, migrate
from storage.schema import metadata
from tests.fresh_store import fresh_url


def test_a_migrated_database_has_exactly_the_schema_we_query(tmp_path: Path) -> None:
    engine = create_engine(fresh_url(tmp_path))

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        differences = compare_metadata(context, metadata)
    engine.dispose()

    assert differences == []


def test_the_head_constant_is_the_newest_migration() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "storage:migrations")

    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]
    assert HEAD in known_revisions()


def test_migrating_again_changes_nothing(tmp_path: Path) -> None:
    url = fresh_url(tmp_path)
    before = (tmp_path / "shiftboss.db").read_bytes()

    migrate(url)

    assert (tmp_path / "shiftboss.db").read_bytes() == before


def test_a_database_from_a_newer_version_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    url = fresh_url(tmp_path)
    path = tmp_path / "shiftboss.db"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreTooNew, match="9999"):
        migrate(url)

    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["shiftboss.db"]


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    path.touch()

    migrate(f"sqlite:///{path}")

    with sqlite3.connect(path) as connection:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    connection.close()
    assert row == (HEAD,)
