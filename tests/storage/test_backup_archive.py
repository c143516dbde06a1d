from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import sqlite3
import stat
import tarfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from storage import backup_archive
from storage.backup_archive import (
    DATABASE,
    MANIFEST,
    BackupSource,
    create_backup,
    extract_backup,
    find_damage,
    list_backups,
    prune_backups,
    seal_archive,
    verify_backup,
)
from storage.errors import BackupFailed, BadBackup
from storage.migrate import HEAD_REVISION
from tests.migrated_database import migrated_file

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def source(home: Path, **changes: Any) -> BackupSource:
    home.mkdir(exist_ok=True)
    migrated_file(home)
    facts: dict[str, Any] = {
        "home": home,
        "database": home / "shiftboss.db",
        "version": "0.1.0",
        "mask": lambda _name, text: text.replace("hunter2", "…"),
        "secret_names": frozenset({"web-token"}),
    }
    return BackupSource(**facts | changes)


def filled(home: Path) -> Path:
    for name, body in {
        ".env": "TELEGRAM_BOT_TOKEN=hunter2\n",
        "web-token": "hunter2",
        "memory/global.md": "# Global\n",
        "files/inbox/1/a.bin": "\0\1",
        "skills/x/run.sh": "echo",
        "logs/shiftboss.log": "line",
        "backups/shiftboss-1.tar.gz": "old",
        "lock": "1",
        "work/t1/empty/.keep": "",
    }.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body)
    (home / "skills/x/run.sh").chmod(0o755)
    (home / "work/link").symlink_to("/etc")
    os.mkfifo(home / "work/pipe")
    return home


def test_a_backup_holds_the_home_without_secrets_logs_and_backups(tmp_path: Path) -> None:
    from_home = source(tmp_path / "home")
    filled(tmp_path / "home")

    made = create_backup(from_home, tmp_path / "home" / "backups", now=NOW)
    manifest = extract_backup(made.path, tmp_path / "out")

    assert made.path.name == "shiftboss-20260301-093000.tar.gz"
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert set(manifest.files) == {
        DATABASE,
        "home/.env",
        "home/memory/global.md",
        "home/files/inbox/1/a.bin",
        "home/skills/x/run.sh",
        "home/work/t1/empty/.keep",
    }
    assert set(manifest.skipped) == {"work/link", "work/pipe"}
    assert (manifest.schema, manifest.secrets) == (HEAD_REVISION, False)
    assert "hunter2" not in (tmp_path / "out/home/.env").read_text()
    assert stat.S_IMODE((tmp_path / "out/home/skills/x/run.sh").stat().st_mode) == 0o700
    assert find_damage(tmp_path / "out" / DATABASE) == ()


def test_secrets_are_archived_when_asked_for(tmp_path: Path) -> None:
    from_home = source(filled_home(tmp_path), with_secrets=True)

    made = create_backup(from_home, tmp_path / "to", now=NOW)
    extract_backup(made.path, tmp_path / "out")

    assert "hunter2" in (tmp_path / "out/home/.env").read_text()
    assert (tmp_path / "out/home/web-token").read_text() == "hunter2"


def filled_home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return filled(tmp_path / "home")


def test_a_backup_is_one_state_of_a_database_in_use_and_blocks_no_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_home = source(tmp_path / "home")
    with closing(sqlite3.connect(from_home.database, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("INSERT INTO marks VALUES ('a', '1')")
        real = backup_archive.find_damage

        def write_meanwhile(path: Path) -> Any:
            writer.execute("INSERT INTO marks VALUES ('b', '2')")
            return real(path)

        monkeypatch.setattr(backup_archive, "find_damage", write_meanwhile)
        # An open transaction of the program is not in the backup, and does not stop it.
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO marks VALUES ('c', '3')")
        made = create_backup(from_home, tmp_path / "to", now=NOW)
        writer.execute("COMMIT")

    extract_backup(made.path, tmp_path / "out")
    with closing(sqlite3.connect(tmp_path / "out" / DATABASE)) as copy:
        names = [row[0] for row in copy.execute("SELECT name FROM marks ORDER BY name")]
    assert names == ["a", "store.id"]
    assert list((tmp_path / "to").iterdir()) == [made.path]


def test_two_backups_in_one_second_have_two_names(tmp_path: Path) -> None:
    from_home = source(tmp_path / "home")

    made = [create_backup(from_home, tmp_path / "to", now=NOW) for _ in range(2)]

    assert len(list_backups(tmp_path / "to")) == len({each.path for each in made}) == 2


def test_a_damaged_database_is_not_backed_up(tmp_path: Path) -> None:
    from_home = source(tmp_path / "home")
    body = bytearray(Path(from_home.database).read_bytes())
    body[8192 : 8192 + 400] = b"\xff" * 400
    Path(from_home.database).write_bytes(body)

    with pytest.raises(BackupFailed, match="damaged"):
        create_backup(from_home, tmp_path / "to", now=NOW)

    assert list((tmp_path / "to").iterdir()) == []


@pytest.mark.parametrize("failing", ["take_snapshot", "verify_backup", "fsync_path"])
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), sqlite3.OperationalError("disk is full")]
)
def test_a_full_disk_gives_one_message_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: Exception
) -> None:
    from_home = source(tmp_path / "home")

    def fail(*_args: object) -> None:
        raise error

    if failing != "fsync_path":
        monkeypatch.setattr(backup_archive, failing, fail)
    else:
        monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(BackupFailed, match=r"space|full"):
        create_backup(from_home, tmp_path / "to", now=NOW)

    assert list((tmp_path / "to").iterdir()) == []


def test_a_folder_that_cannot_be_made_gives_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(BackupFailed, match="file"):
        create_backup(source(tmp_path / "home"), tmp_path / "file" / "to", now=NOW)


def test_what_a_killed_backup_left_is_removed_by_the_next(tmp_path: Path) -> None:
    from_home = source(tmp_path / "home")
    left = tmp_path / "to" / ".backup-killed"
    left.mkdir(parents=True)
    (left / "archive").write_bytes(b"half")

    made = create_backup(from_home, tmp_path / "to", now=NOW)

    assert list((tmp_path / "to").iterdir()) == [made.path]


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    made = create_backup(source(filled_home(tmp_path)), tmp_path / "to", now=NOW)
    body = made.path.read_bytes()
    places = {*range(0, len(body), len(body) // 60), *range(20), *range(len(body) - 90, len(body))}

    unnoticed: list[int] = []
    for place in places:
        broken = tmp_path / "broken.tar.gz"
        broken.write_bytes(body[:place] + bytes([body[place] ^ 0x10]) + body[place + 1 :])
        with contextlib.suppress(BadBackup):
            verify_backup(broken)
            unnoticed.append(place)
    assert unnoticed == []
    assert len(places) > 50


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.999])
def test_an_archive_that_was_cut_off_is_noticed(tmp_path: Path, part: float) -> None:
    made = create_backup(source(tmp_path / "home"), tmp_path / "to", now=NOW)
    body = made.path.read_bytes()
    made.path.write_bytes(body[: int(len(body) * part)])

    with pytest.raises(BadBackup):
        verify_backup(made.path)


def member(name: str, body: bytes = b"x", **facts: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(body)
    for key, value in facts.items():
        setattr(info, key, value)
    return info, body


HOSTILE: dict[str, Callable[[], tuple[tarfile.TarInfo, bytes]]] = {
    "parent": lambda: member("home/../../evil"),
    "absolute": lambda: member("/home/evil"),
    "outside": lambda: member("evil"),
    "dot": lambda: member("home/./evil"),
    "symlink": lambda: member("home/a", b"", type=tarfile.SYMTYPE, linkname="/etc"),
    "hard link": lambda: member("home/a", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "device": lambda: member("home/a", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
    "pipe": lambda: member("home/a", b"", type=tarfile.FIFOTYPE),
    "deep": lambda: member("home/" + "a/" * 100 + "b"),
    "lock": lambda: member("home/lock"),
    "backups": lambda: member("home/backups/a"),
    "sparse map": lambda: member("home/a", pax_headers={"GNU.sparse.map": "x"}),
    "two sizes": lambda: member("home/a", pax_headers={"size": "1,2"}),
    "negative size": lambda: member("home/a", pax_headers={"size": "-1"}),
    "size without end": lambda: member("home/a", pax_headers={"size": "9" * 30}),
    "staging": lambda: member("home/.restoring/phase"),
    "not listed": lambda: member("home/unlisted"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_members_are_refused_and_nothing_is_written_outside(
    tmp_path: Path, kind: str
) -> None:
    made = create_backup(source(tmp_path / "home"), tmp_path / "to", now=NOW)
    info, body = HOSTILE[kind]()
    hostile = rewritten(made.path, extra=(info, body), listed=kind != "not listed")

    with pytest.raises(BadBackup):
        extract_backup(hostile, tmp_path / "out")

    assert not (tmp_path / "evil").exists()
    assert {each.name for each in tmp_path.iterdir()} <= {"home", "to", "out"}


def test_a_header_of_any_length_is_not_read_into_memory(tmp_path: Path) -> None:
    made = create_backup(source(tmp_path / "home"), tmp_path / "to", now=NOW)
    info, body = member("home/x")
    info.pax_headers = {"comment": "x" * (4 << 20)}
    bomb = rewritten(made.path, extra=(info, body), listed=True)

    with pytest.raises(BadBackup, match="too long"):
        verify_backup(bomb)


def rewritten(
    path: Path,
    *,
    extra: tuple[tarfile.TarInfo, bytes] | None = None,
    listed: bool = True,
    database: bytes = b"",
    padding: int = 0,
    **facts: Any,
) -> Path:
    """The archive with one more member, which its manifest has if `listed`, another database, other
    facts in its manifest and so many zeros at its end."""
    import hashlib

    with tarfile.open(path) as archive:
        members = [
            (each, file.read() if (file := archive.extractfile(each)) else b"")
            for each in archive.getmembers()
        ]
    manifest = json.loads(members[-1][1]) | facts
    others = [extra] if extra else []
    for info, body in others if listed else ():
        manifest["files"][info.name] = hashlib.sha256(body).hexdigest()
    if database:
        assert members[0][0].name == DATABASE
        members[0] = member(DATABASE, database)
        manifest["files"][DATABASE] = hashlib.sha256(database).hexdigest()
    told = json.dumps(manifest).encode()
    last = tarfile.TarInfo(MANIFEST)
    last.size = len(told)
    written = path.with_name("hostile.tar.gz")
    with gzip.open(written, "wb") as packed:
        with tarfile.open(fileobj=packed, mode="w:") as archive:
            for each, data in [*members[:-1], *others, (last, told)]:
                archive.addfile(each, io.BytesIO(data))
        packed.write(bytes(padding))
    seal_archive(written)
    return written


def test_an_archive_that_would_fill_the_disk_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create_backup(source(tmp_path / "home"), tmp_path / "to", now=NOW)
    info, body = member("home/zeros", bytes(5 << 20))
    bomb = rewritten(made.path, extra=(info, body), listed=True)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=4 << 20))

    with pytest.raises(BadBackup, match="free"):
        extract_backup(bomb, tmp_path / "out")

    assert not (tmp_path / "out/home/zeros").exists()


def test_the_backup_just_made_stays_where_the_clock_was_once_ahead(tmp_path: Path) -> None:
    for year in (2026, 2098, 2099):
        (tmp_path / f"shiftboss-{year}0101-000000.tar.gz").touch()
    made = tmp_path / "shiftboss-20260101-000000.tar.gz"

    gone = prune_backups(tmp_path, keep=1, newest=made)

    assert [each.name for each in gone] == ["shiftboss-20980101-000000.tar.gz"]


def test_the_newest_backups_stay_and_those_before_migrations_have_their_own_number(
    tmp_path: Path,
) -> None:
    for day in range(1, 6):
        for label in ("", "-before-0008"):
            (tmp_path / f"shiftboss-2026030{day}-000000{label}.tar.gz").touch()
    (tmp_path / "mine.tar.gz").touch()

    gone = prune_backups(tmp_path, keep=2)

    assert len(gone) == 5
    kept = sorted(each.name for each in tmp_path.iterdir())
    assert [name for name in kept if "before" in name] == [
        f"shiftboss-2026030{day}-000000-before-0008.tar.gz" for day in (3, 4, 5)
    ]
    assert [name for name in kept if "before" not in name] == [
        "mine.tar.gz",
        "shiftboss-20260304-000000.tar.gz",
        "shiftboss-20260305-000000.tar.gz",
    ]
