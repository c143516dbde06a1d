from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from storage import restore
from storage.backup_archive import Backup, BackupSource, create_backup
from storage.errors import BadBackup, RestoreRefused, StoreMismatch, StoreTooNew
from storage.migrate import HEAD_REVISION
from storage.restore import Restored, RestoreTarget, restore_backup
from storage.store_identity import prepare_store, read_marker, verify_store
from tests.migrated_database import migrated_file, older_database

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def backed_up(tmp_path: Path, **changes: Any) -> Backup:
    home = tmp_path / "old"
    (home / "memory").mkdir(parents=True)
    (home / "memory" / "global.md").write_text("# Global\n")
    (home / ".env").write_text("SHIFTBOSS_SLOTS=5\n")
    if changes.get("older"):
        older_database(home / "shiftboss.db")
    migrated_file(home)
    with closing(sqlite3.connect(home / "shiftboss.db")) as db, db:
        for statement in changes.get("sql", ()):
            db.execute(statement)
    source = BackupSource(
        home=home,
        database=home / "shiftboss.db",
        version="0.1.0",
        mask=lambda _name, text: text,
        secret_names=frozenset(),
    )
    return create_backup(source, tmp_path / "backups", now=NOW)


def into(archive: Path, home: Path, *, replace: bool = False, database: str = "") -> Restored:
    home.mkdir(parents=True, exist_ok=True)
    target = RestoreTarget(
        home=home,
        database=Path(database) if database else home / "shiftboss.db",
        secret_names=frozenset({".env", "web-token"}),
    )
    return restore_backup(archive, target, replace=replace, reason="restored", now=NOW)


def listed(home: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(home)): each.read_bytes()
        for each in sorted(home.rglob("*"))
        if each.is_file()
    }


def test_a_restored_home_opens_as_the_same_store(tmp_path: Path) -> None:
    made, home = backed_up(tmp_path), tmp_path / "new"

    into(made.path, home)

    facts = verify_store(home, f"sqlite:///{home / 'shiftboss.db'}")
    marker = read_marker(home)
    assert facts is not None
    assert marker is not None
    assert facts.store_id == marker.id == made.manifest.store_id
    assert (home / "memory/global.md").read_text() == "# Global\n"
    assert (home / ".env").read_text() == "SHIFTBOSS_SLOTS=5\n"
    assert set(listed(home)) == {".env", "memory/global.md", "shiftboss.db", "store.json"}


def test_a_home_in_use_is_replaced_only_on_request_and_kept_aside(tmp_path: Path) -> None:
    made, home = backed_up(tmp_path), tmp_path / "new"
    (home / "files").mkdir(parents=True)
    (home / "files" / "mine").write_text("mine")
    (home / ".env").write_text("TELEGRAM_BOT_TOKEN=here\n")
    (home / "backups").mkdir()
    (home / "backups" / "one").write_text("1")
    before = listed(home)

    with pytest.raises(RestoreRefused, match="--replace"):
        into(made.path, home)
    assert listed(home) == before

    done = into(made.path, home, replace=True)

    assert done.aside == home / "replaced-20260301-093000"
    assert (done.aside / "files" / "mine").read_text() == "mine"
    # The backup has no secrets, so those that are here stay.
    assert (home / ".env").read_text() == "TELEGRAM_BOT_TOKEN=here\n"
    assert (home / "backups" / "one").read_text() == "1"
    assert not (home / "files").exists()


def test_a_database_elsewhere_is_restored_there(tmp_path: Path) -> None:
    made, home, elsewhere = backed_up(tmp_path), tmp_path / "new", tmp_path / "data" / "x.db"

    into(made.path, home, database=str(elsewhere))

    assert verify_store(home, f"sqlite:///{elsewhere}") is not None
    assert not (home / "shiftboss.db").exists()
    with pytest.raises(RestoreRefused, match=r"x\.db"):
        into(made.path, tmp_path / "third", database=str(elsewhere))
    into(made.path, tmp_path / "third", database=str(elsewhere), replace=True)
    assert len(list(elsewhere.parent.glob("x.db.replaced-*"))) == 1


def test_a_disk_without_room_for_the_database_leaves_the_old_home_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, home = backed_up(tmp_path), tmp_path / "new"
    database = tmp_path / "data" / "x.db"
    into(made.path, home, database=str(database))
    before, marker = listed(tmp_path), read_marker(home)

    def full(_staged: Path, partial: Path) -> None:
        partial.write_bytes(b"a part")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "move", full)
        with pytest.raises(RestoreRefused, match="space"):
            into(made.path, home, database=str(database), replace=True)
    assert listed(tmp_path) == before
    assert read_marker(home) == marker

    into(made.path, home, database=str(database), replace=True)
    assert verify_store(home, f"sqlite:///{database}") is not None
    assert not [each for each in listed(tmp_path) if each.endswith(".restoring")]


def test_a_database_below_a_folder_of_the_home_is_restored_there(tmp_path: Path) -> None:
    made, home = backed_up(tmp_path), tmp_path / "new"
    database = home / "sub" / "x.db"

    for _ in range(2):
        into(made.path, home, database=str(database), replace=True)

    assert verify_store(home, f"sqlite:///{database}") is not None
    assert len(list(home.glob("replaced-*/sub/x.db"))) == 1


def test_an_older_schema_is_migrated_and_a_newer_one_refused(tmp_path: Path) -> None:
    older = backed_up(tmp_path, older=True)
    into(older.path, tmp_path / "one")
    shutil.rmtree(tmp_path / "old")
    newer = backed_up(tmp_path, sql=("UPDATE alembic_version SET version_num = '9999'",))

    with pytest.raises(StoreTooNew, match="9999"):
        into(newer.path, tmp_path / "two")

    marker = read_marker(tmp_path / "one")
    assert marker is not None
    assert marker.schema == HEAD_REVISION
    assert list((tmp_path / "two").iterdir()) == []


def test_a_damaged_archive_touches_nothing(tmp_path: Path) -> None:
    made, home = backed_up(tmp_path), tmp_path / "new"
    body = bytearray(made.path.read_bytes())
    body[len(body) // 2] ^= 1
    made.path.write_bytes(body)

    with pytest.raises(BadBackup):
        into(made.path, home, replace=True)

    assert list(home.iterdir()) == []


def test_an_archive_that_does_not_fit_on_the_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = backed_up(tmp_path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1000))

    with pytest.raises(BadBackup, match="free"):
        into(made.path, tmp_path / "new")


def test_a_full_disk_leaves_the_old_home_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, home = backed_up(tmp_path), tmp_path / "new"
    home.mkdir()
    (home / "mine").write_text("mine")

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(restore, "settle_restored", full)
        patch.setattr(os, "fsync", full)
        with pytest.raises(RestoreRefused, match="space"):
            into(made.path, home, replace=True)

    assert listed(home) == {"mine": b"mine"}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_restore_killed_at_any_point_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, elsewhere: bool
) -> None:
    """At every rename and every removal."""
    made = backed_up(tmp_path)
    killed = 0
    for point in range(1, 40):
        home = tmp_path / f"home{point}"
        database = tmp_path / f"data{point}.db" if elsewhere else home / "shiftboss.db"
        url = f"sqlite:///{database}"
        home.mkdir()
        prepare_store(home, url, before_migration=lambda _revision: None)
        (home / "mine").write_text("mine")
        old = read_marker(home)
        if not dies_at(point, made.path, home, str(database), monkeypatch):
            break
        killed += 1
        if (home / ".restoring/phase").exists():
            with pytest.raises(StoreMismatch, match="cut off"):
                verify_store(home, url)
        elif read_marker(home) == old:
            verify_store(home, url)

        into(made.path, home, replace=True, database=str(database))

        marker = read_marker(home)
        assert marker is not None
        assert marker.id == made.manifest.store_id
        assert verify_store(home, url) is not None
        kept = [each.read_text() for each in home.glob("replaced-*/mine")]
        assert kept == ["mine"]
        assert not (home / ".restoring").exists()
    assert killed > 8


def dies_at(
    point: int, archive: Path, home: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Whether this many renames and removals happen before the restore is done."""
    count = 0

    def counting(real: Any) -> Any:
        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == point:
                os._exit(9)
            return real(*args, **kwargs)

        return step

    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    try:
        for name in ("rename", "replace", "unlink"):
            monkeypatch.setattr(Path, name, counting(getattr(Path, name)))
        into(archive, home, replace=True, database=database)
    finally:
        os._exit(0)


def test_an_archive_in_the_directory_that_it_replaces_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    moved = home / "mine.tar.gz"
    backed_up(tmp_path).path.rename(moved)

    with pytest.raises(RestoreRefused, match=r"move it to .*backups first"):
        into(moved, home, replace=True)
    assert list(home.iterdir()) == [moved]

    (home / "backups").mkdir()
    into(moved.rename(home / "backups" / moved.name), home, replace=True)
    assert read_marker(home)


@pytest.mark.parametrize("phase", ["", "{", "[]", '{"phase": "old"}'])
def test_a_damaged_note_of_a_restore_says_where_the_old_contents_are(
    tmp_path: Path, phase: str
) -> None:
    made, home = backed_up(tmp_path), tmp_path / "home"
    (home / ".restoring" / "old").mkdir(parents=True)
    (home / ".restoring" / "phase").write_text(phase)

    with pytest.raises(RestoreRefused, match=r"the old contents are in .*/old"):
        into(made.path, home, replace=True)


def test_restoring_twice_is_clean(tmp_path: Path) -> None:
    made, home = backed_up(tmp_path), tmp_path / "new"
    into(made.path, home)
    first = set(listed(home))

    into(made.path, home, replace=True)

    assert {name for name in listed(home) if not name.startswith("replaced-")} == first
