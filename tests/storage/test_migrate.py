from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, event

from storage import (  # noqa: F401 - add their tables to the metadata
    autonomy_schema,
    bitable_schema,
    memory_schema,
    process_schema,
    run_schema,
    web_schema,
)
from storage.errors import StoreTooNew, StoreUnavailable
from storage.migrate import HEAD_REVISION, known_revisions, migrate
from storage.schema import metadata
from storage.search.inverted_index import pack_posting, unpack_postings
from tests.migrated_database import migrated_file, older_database


def test_a_migrated_database_has_exactly_the_schema_we_query(tmp_path: Path) -> None:
    engine = create_engine(migrated_file(tmp_path))

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

    assert ScriptDirectory.from_config(config).get_heads() == [HEAD_REVISION]
    assert HEAD_REVISION in known_revisions()


def test_indexed_traditional_characters_are_found_by_simplified_ones(tmp_path: Path) -> None:
    path = tmp_path / "shiftboss.db"
    older_database(path, before="simplified_terms")
    traditional = _postings({1: 1.0, 3: 2.0})
    rows = [("醫", traditional), ("医", _postings({2: 1.0, 3: 7.0})), ("@醫院", traditional)]
    with closing(sqlite3.connect(path)) as store:
        store.execute("INSERT INTO memory_scopes (id, name) VALUES (1, 'person:ann')")
        store.executemany("INSERT INTO memory_postings VALUES (1, 0, ?, ?)", rows)
        store.commit()

    migrate(f"sqlite:///{path}")

    with closing(sqlite3.connect(path)) as store:
        found = dict(store.execute("SELECT term, data FROM memory_postings").fetchall())
    assert list(unpack_postings(found.pop("医"))) == [
        pack_posting(1, 1.0),
        pack_posting(2, 1.0),
        pack_posting(3, 7.75),
    ], "the counts of an entry with both are added, up to the most that fits"
    assert found == {"@医院": traditional}


def _postings(times: dict[int, float]) -> bytes:
    packed = [pack_posting(offset, each) for offset, each in times.items()]
    return b"".join(each.to_bytes(2, "little") for each in packed)


def test_migrating_again_changes_nothing(tmp_path: Path) -> None:
    url = migrated_file(tmp_path)
    before = (tmp_path / "shiftboss.db").read_bytes()

    migrate(url)

    assert (tmp_path / "shiftboss.db").read_bytes() == before


def test_a_database_from_a_newer_version_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    url = migrated_file(tmp_path)
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
    assert row == (HEAD_REVISION,)


def test_a_newer_version_that_died_leaves_its_log_and_that_is_not_touched_either(
    tmp_path: Path,
) -> None:
    lived, died = tmp_path / "lived", tmp_path / "died"
    lived.mkdir()
    with closing(sqlite3.connect(migrated_file(lived).removeprefix("sqlite:///"))) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        with connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
        # As kill -9 would leave it: the new version stands in the log alone.
        shutil.copytree(lived, died)
    before = contents(died)
    assert set(before) == {"shiftboss.db", "shiftboss.db-wal", "shiftboss.db-shm"}

    with pytest.raises(StoreTooNew, match="9999"):
        migrate(f"sqlite:///{died / 'shiftboss.db'}")

    assert contents(died) == before


def test_the_name_of_the_folder_means_nothing_to_the_store(tmp_path: Path) -> None:
    odd = tmp_path / "100% ours?#mode=memory"
    odd.mkdir()
    url = migrated_file(odd)
    with closing(sqlite3.connect(odd / "shiftboss.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(StoreTooNew):
        migrate(url.replace("%", "%25").replace("?", "%3F"))


@pytest.mark.parametrize("statement", [1, 2, 5, 20, 40])
def test_a_migration_that_breaks_off_leaves_nothing_behind(tmp_path: Path, statement: int) -> None:
    url = f"sqlite:///{tmp_path / 'shiftboss.db'}"
    seen: list[str] = []

    def break_off(_connection: Any, _cursor: Any, sql: str, *_rest: Any) -> None:
        seen.append(sql)
        if len(seen) == statement:
            raise KeyboardInterrupt

    event.listen(Engine, "before_cursor_execute", break_off)
    try:
        with pytest.raises(KeyboardInterrupt):
            migrate(url)
    finally:
        event.remove(Engine, "before_cursor_execute", break_off)
    with closing(sqlite3.connect(tmp_path / "shiftboss.db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []

    migrate(url)
    migrate(url)


def test_whoever_migrates_waits_for_whoever_writes(tmp_path: Path) -> None:
    path = tmp_path / "shiftboss.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.3, other.close)
    release.start()

    migrate(f"sqlite:///{path}")

    release.join()
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    assert row == (HEAD_REVISION,)


@pytest.mark.parametrize("size", [100, 1000, 4096, 5000, 100_000])
def test_a_database_cut_short_is_told_as_such_and_left_as_it_is(tmp_path: Path, size: int) -> None:
    url = migrated_file(tmp_path)
    path = tmp_path / "shiftboss.db"
    path.write_bytes(path.read_bytes()[:size])
    before = contents(tmp_path)

    with pytest.raises(StoreUnavailable):
        migrate(url)

    assert contents(tmp_path) == before


def test_tables_nobody_knows_are_no_reason_for_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "shiftboss.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE marks (other INTEGER)")

    with pytest.raises(StoreUnavailable, match="marks"):
        migrate(f"sqlite:///{path}")


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}
