from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from storage import store_identity
from storage.errors import StoreMismatch, StoreTooNew
from storage.migrate import HEAD_REVISION
from storage.store_identity import (
    MARKER_FILE,
    StoreMarker,
    prepare_store,
    read_marker,
    set_store_aside,
    verify_store,
    write_marker,
)
from tests.migrated_database import older_database


def url_in(home: Path) -> str:
    return f"sqlite:///{home / 'shiftboss.db'}"


def prepare(home: Path, url: str = "") -> None:
    home.mkdir(parents=True, exist_ok=True)
    prepare_store(home, url or url_in(home), before_migration=lambda _revision: None)


def test_a_first_start_marks_the_directory_and_later_starts_agree(tmp_path: Path) -> None:
    prepare(tmp_path)
    marker = read_marker(tmp_path)
    prepare(tmp_path)

    assert marker is not None
    assert marker.schema == HEAD_REVISION
    assert read_marker(tmp_path) == marker
    assert (tmp_path / MARKER_FILE).stat().st_mode & 0o777 == 0o600


def test_two_stores_have_different_ids(tmp_path: Path) -> None:
    prepare(tmp_path / "one")
    prepare(tmp_path / "two")

    assert read_marker(tmp_path / "one") != read_marker(tmp_path / "two")


@pytest.mark.parametrize("harm", ["missing", "emptied", "truncated", "overwritten", "no tables"])
def test_a_lost_or_damaged_database_is_refused_and_nothing_is_created(
    tmp_path: Path, harm: str
) -> None:
    prepare(tmp_path)
    path = tmp_path / "shiftboss.db"
    body = path.read_bytes()
    match harm:
        case "missing":
            path.unlink()
        case "emptied":
            path.write_bytes(b"")
        case "truncated":
            path.write_bytes(body[: len(body) // 2])
        case "overwritten":
            path.write_bytes(b"not a database" * 1000)
        case _:
            path.unlink()
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("CREATE TABLE other (id)")
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}

    with pytest.raises(StoreMismatch):
        prepare(tmp_path)

    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_a_foreign_database_is_refused_wherever_it_lies(tmp_path: Path) -> None:
    home, other, elsewhere = tmp_path / "home", tmp_path / "other", tmp_path / "data.db"
    prepare(home, f"sqlite:///{elsewhere}")
    prepare(other)
    shutil.copy(other / "shiftboss.db", elsewhere)

    with pytest.raises(StoreMismatch, match="store id"):
        prepare(home, f"sqlite:///{elsewhere}")
    with pytest.raises(StoreMismatch, match="no file"):
        prepare(home)


def test_a_directory_used_by_a_version_without_markers_needs_its_database(tmp_path: Path) -> None:
    (tmp_path / "web-address").write_text("http://127.0.0.1:1")

    with pytest.raises(StoreMismatch, match="earlier run"):
        prepare(tmp_path)
    (tmp_path / "shiftboss.db").touch()
    with pytest.raises(StoreMismatch, match="empty"):
        prepare(tmp_path)


def test_a_database_from_before_the_marker_gets_an_id_and_a_marker(tmp_path: Path) -> None:
    older = older_database(tmp_path / "shiftboss.db")
    (tmp_path / "web-address").write_text("http://127.0.0.1:1")
    seen: list[str] = []

    prepare_store(tmp_path, url_in(tmp_path), before_migration=seen.append)

    assert seen == [older]
    assert read_marker(tmp_path) is not None


def test_a_newer_marker_is_refused_even_without_its_database(tmp_path: Path) -> None:
    write_marker(tmp_path, StoreMarker(id="abcd", schema="9999"))

    with pytest.raises(StoreTooNew, match="9999"):
        prepare(tmp_path)


def test_a_damaged_marker_is_refused(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / MARKER_FILE).write_bytes(b"")

    with pytest.raises(StoreMismatch, match=MARKER_FILE):
        prepare(tmp_path)


@pytest.mark.parametrize("point", ["migrate", "inspect_database", "write_marker"])
@pytest.mark.parametrize("killed", ["before", "after"])
@pytest.mark.parametrize("is_older", [False, True])
def test_a_first_start_killed_at_any_point_goes_on_cleanly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, killed: str, is_older: bool
) -> None:
    if is_older:
        older_database(tmp_path / "shiftboss.db")
    real = getattr(store_identity, point)

    def die(*args: object, **kwargs: object) -> None:
        if killed == "after":
            real(*args, **kwargs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store_identity, point, die)
        with pytest.raises(KeyboardInterrupt):
            prepare(tmp_path)

    prepare(tmp_path)

    facts, marker = verify_store(tmp_path, url_in(tmp_path)), read_marker(tmp_path)
    assert facts is not None
    assert marker is not None
    assert (facts.store_id, facts.revision) == (marker.id, marker.schema)


def test_a_marker_cut_off_while_it_is_written_is_written_again(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / MARKER_FILE).unlink()
    (tmp_path / f"{MARKER_FILE}.part").write_bytes(b'{"id": "ab')

    prepare(tmp_path)

    assert read_marker(tmp_path) is not None


def test_starting_afresh_keeps_the_old_store_aside(tmp_path: Path) -> None:
    prepare(tmp_path)
    before = read_marker(tmp_path)
    (tmp_path / "web-address").write_text("http://127.0.0.1:1")

    moved = set_store_aside(tmp_path, url_in(tmp_path), suffix="old")
    prepare(tmp_path)

    assert (tmp_path / "shiftboss.db.old") in moved
    assert read_marker(tmp_path) != before
    shutil.copy(tmp_path / "shiftboss.db.old", tmp_path / "shiftboss.db")
    with pytest.raises(StoreMismatch):
        prepare(tmp_path)
