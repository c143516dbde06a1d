from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.backup_archive import BackupSource, create_backup
from storage.errors import StoreMismatch
from storage.store_check import CheckReport, check_backup, check_home
from storage.store_identity import prepare_store, verify_store
from tests.migrated_database import older_database

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
PERSON = "INSERT INTO people VALUES ('p1', 'Ann', 'owner', 'en', 0)"
CHAT = (
    "INSERT INTO chats (id, channel, external_id, thread, kind, title, settings, person_id,"
    " created_at) VALUES ('c1', 'web', 'x', '', 'private', '', '{}', 'p1', 0)"
)
TASK = (
    "INSERT INTO tasks (id, source, title, instruction, priority, rank, status, phase, control,"
    " chat_id, created_by, files, created_at, graph_version) VALUES"
    " ('t1aa', 's', 'T', 'do', 'normal', 3, 'pending', 'queued', 'run', 'c1', 'p1',"
    " '[\"files/tasks/t1aa/a.txt\"]', 0, 1)"
)
GRAPH = "INSERT INTO task_graphs VALUES ('t1aa', 1, '{}', '', 'x', 0)"


def healthy(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    url = f"sqlite:///{home / 'shiftboss.db'}"
    prepare_store(home, url, before_migration=lambda _revision: None)
    execute(home, PERSON, CHAT, TASK, GRAPH)
    (home / "files/tasks/t1aa").mkdir(parents=True)
    (home / "files/tasks/t1aa/a.txt").write_text("a")
    return home


def execute(home: Path, *statements: str) -> None:
    with closing(sqlite3.connect(home / "shiftboss.db")) as db, db:
        for statement in statements:
            db.execute(statement)


def check_both(home: Path) -> tuple[CheckReport, CheckReport]:
    source = BackupSource(
        home=home,
        database=home / "shiftboss.db",
        version="1",
        mask=lambda _name, text: text,
        secret_names=frozenset(),
    )
    made = create_backup(source, home.parent / "to", now=NOW)
    return check_live(home), check_backup(made.path, folder=home.parent)


def check_live(home: Path) -> CheckReport:
    return check_home(home, home / "shiftboss.db", home.parent / "to")


def test_a_healthy_home_and_its_backup_are_good(tmp_path: Path) -> None:
    home = healthy(tmp_path)

    for report in check_both(home):
        assert report.findings in ((), [])
        assert report.is_good
    assert {each.name for each in tmp_path.iterdir()} == {"home", "to"}


@pytest.mark.parametrize(
    ("statement", "kind", "word"),
    [
        ("DELETE FROM task_graphs", "missing_row", "graph"),
        ("DELETE FROM people", "missing_row", "people"),
        ("DELETE FROM chats", "missing_row", "chats"),
        (
            "INSERT INTO identities VALUES ('web', 'x', 'p1', 'p1')",
            "missing_row",
            "account of a link",
        ),
        ("DROP TABLE outbox", "table", "outbox"),
    ],
)
def test_missing_rows_are_found(tmp_path: Path, statement: str, kind: str, word: str) -> None:
    home = healthy(tmp_path)
    execute(home, statement)

    for report in check_both(home):
        assert not report.is_good
        assert any(each.kind == kind and word in each.text for each in report.findings)


def test_a_task_that_is_being_planned_is_good(tmp_path: Path) -> None:
    home = healthy(tmp_path)
    execute(
        home,
        "DELETE FROM task_graphs",
        "UPDATE tasks SET graph_version = 0, phase = 'planning'",
        "INSERT INTO node_runs (task_id, path, status, attempt, output)"
        " VALUES ('t1aa', '@plan', 'failed', 1, '{}')",
    )
    assert check_live(home).is_good

    execute(home, "UPDATE node_runs SET path = 'step1'")
    assert any("step but no graph" in each.text for each in check_live(home).findings)


def test_orphans_and_missing_files_are_found(tmp_path: Path) -> None:
    home = healthy(tmp_path)
    (home / "files/tasks/t1aa/a.txt").unlink()
    for name in ("files/tasks/zzzz", "work/yyyy", "files/inbox/99"):
        (home / name).mkdir(parents=True)
        (home / name / "f").write_text("x")

    for report in check_both(home):
        told = [(each.kind, each.text.split()[0]) for each in report.findings]
        assert ("orphan", "files/tasks/zzzz") in told
        assert ("orphan", "work/yyyy") in told
        assert ("orphan", "files/inbox/99") in told
        assert "missing_file" in {kind for kind, _ in told}


def test_an_older_schema_is_a_note(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    schema = older_database(home / "shiftboss.db")

    for report in check_both(home):
        assert [(each.kind, each.is_error) for each in report.findings] == [("schema", False)]
        assert report.schema == schema


def test_a_newer_schema_is_an_error(tmp_path: Path) -> None:
    home = healthy(tmp_path)
    execute(home, "UPDATE alembic_version SET version_num = '9999'")

    for report in check_both(home):
        assert [(each.kind, each.is_error) for each in report.findings] == [("schema", True)]


def test_flipped_bytes_in_the_pages_are_found(tmp_path: Path) -> None:
    home = healthy(tmp_path)
    path = home / "shiftboss.db"
    body = path.read_bytes()
    size = 4096
    missed = []
    for page in range(1, len(body) // size):
        start = page * size
        # The head of each page, of which SQLite knows what it must be.
        path.write_bytes(
            body[:start]
            + bytes(each ^ 0xFF for each in body[start : start + 8])
            + body[start + 8 :]
        )
        if check_live(home).is_good:
            missed.append(page)
    assert missed == []


def test_a_flipped_byte_in_a_file_is_found(tmp_path: Path) -> None:
    home = healthy(tmp_path)
    path, rewritten = home / "files/tasks/t1aa/a.txt", home / "files/tasks/t1aa/b.txt"
    path.write_bytes(bytes(200_000))
    rewritten.write_text("old")
    check_both(home)
    times = path.stat()
    with path.open("r+b") as file:
        file.seek(150_000)
        file.write(b"\1")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    rewritten.write_text("new")
    os.utime(rewritten, (1, 1))

    (found,) = check_live(home).findings

    assert found.is_error
    assert (found.kind, found.text.split()[0]) == ("changed_file", "files/tasks/t1aa/a.txt")


POWER = (
    (
        "INSERT INTO approvals (id, kind, chat_id, title, detail, command_hash, approvers, state,"
        " decided_at, created_at, expires_at) VALUES"
        " ('a1aa', 'tool', 'c1', 'run', 'make test', 'beef', '[]', 'approved', 5, 4, 9)"
    ),
    (
        "INSERT INTO tool_grants (scope, tool, pattern, approval_id, granted_by, at) VALUES"
        " ('chat', 'exec', 'make test', 'a1aa', 'p1', 5)"
    ),
    (
        "INSERT INTO budget_grants (approval_id, scope, subject, micros, tokens, at) VALUES"
        " ('a1aa', 'task', 't1aa', 1000, 7, 5)"
    ),
    (
        "INSERT INTO usage (at, purpose, backend, model, requests, input_tokens, output_tokens,"
        " cache_read_tokens, cache_write_tokens) VALUES (6, 'step', 'x', 'm', 1, 2, 3, 0, 0)"
    ),
    "INSERT INTO web_sessions VALUES ('w1', 'c0ffee', 'mark', 'p1', 1, 2, 3, 'browser', NULL)",
)


@pytest.mark.parametrize(
    ("table", "was", "is_now"),
    [
        ("approvals", b"make test", b"make tesu"),
        ("approvals", b"beef", b"beeg"),
        ("tool_grants", b"make test", b"make tes*"),
        ("task_graphs", b"the plan", b"thE plan"),
        ("web_sessions", b"mark", b"nark"),
    ],
)
def test_a_changed_character_of_what_gives_power_is_found(
    tmp_path: Path, table: str, was: bytes, is_now: bytes
) -> None:
    """On the disk, below SQLite, which notices nothing."""
    home = healthy(tmp_path)
    execute(home, "UPDATE task_graphs SET body = '\"the plan\"'", *POWER)
    for report in check_both(home):
        assert report.is_good
    path = home / "shiftboss.db"
    body = path.read_bytes()
    start = page_of(home, table) * 4096
    at = body.index(was, start, start + 4096)
    path.write_bytes(body[:at] + is_now + body[at + len(was) :])

    (found,) = check_live(home).findings

    assert (found.kind, found.is_error, found.text.split()[0]) == ("changed_row", True, table)


def test_what_changes_in_use_is_no_finding(tmp_path: Path) -> None:
    home = healthy(tmp_path)
    execute(home, *POWER, POWER[0].replace("a1aa", "a2aa").replace(", 5, 4", ", NULL, 4"))
    check_both(home)
    execute(
        home,
        "UPDATE approvals SET state = 'denied', decided_at = 8 WHERE id = 'a2aa'",
        "UPDATE approvals SET payload = '{\"spent\": true}' WHERE id = 'a1aa'",
        "UPDATE tool_grants SET revoked_at = 9",
        "UPDATE web_sessions SET seen_at = 9",
        "INSERT INTO task_graphs VALUES ('t1aa', 2, '{}', '', 'x', 9)",
        "DELETE FROM usage",
        POWER[3].replace("VALUES (6", "VALUES (7").replace("'m', 1", "'m', 2"),
    )

    assert check_live(home).is_good


def test_an_approval_whose_words_were_withheld_is_no_finding(tmp_path: Path) -> None:
    home = healthy(tmp_path)
    execute(home, *POWER, "UPDATE approvals SET reason = 'as I said'")
    check_both(home)
    execute(home, "UPDATE approvals SET title = '…', detail = '', payload = '{}', reason = ''")

    assert check_live(home).is_good


def page_of(home: Path, table: str) -> int:
    """The number of the only page of a small table, from 0."""
    with closing(sqlite3.connect(home / "shiftboss.db")) as db:
        query = "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?"
        return int(db.execute(query, (table,)).fetchone()[0]) - 1


def test_a_damaged_newest_backup_is_found(tmp_path: Path) -> None:
    home = healthy(tmp_path)
    check_both(home)
    (backup,) = (tmp_path / "to").glob("*.gz")
    body = bytearray(backup.read_bytes())
    body[len(body) // 2] ^= 1
    backup.write_bytes(body)

    assert [each.kind for each in check_live(home).findings] == ["backup"]


def test_a_missing_database_and_a_bad_backup_are_errors(tmp_path: Path) -> None:
    home = healthy(tmp_path)
    (home / "shiftboss.db").unlink()
    (tmp_path / "x.tar.gz").write_bytes(b"no backup")

    assert [each.kind for each in check_live(home).findings] == ["store"]
    assert [each.kind for each in check_backup(tmp_path / "x.tar.gz").findings] == ["backup"]


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("DELETE FROM alembic_version", "schema"),
        ("UPDATE tasks SET files = '[oops'", "malformed JSON"),
        (f"UPDATE tasks SET files = '[\"files/{'n' * 300}\"]'", "missing"),
        ("UPDATE tasks SET files = '[\"files/loop/a\"]'", "files/loop/a"),
        ("DROP TABLE task_logs", "task_logs"),
    ],
)
def test_what_no_program_would_write_is_found(tmp_path: Path, statement: str, word: str) -> None:
    home = healthy(tmp_path)
    (home / "files" / "loop").symlink_to("loop")
    (home / "files" / "inbox" / "²").mkdir(parents=True)
    execute(home, statement)

    report = check_live(home)

    assert not report.is_good
    assert any(word in each.text for each in report.findings)


def test_a_damaged_name_in_the_schema_is_found(tmp_path: Path) -> None:
    home = healthy(tmp_path)
    database = home / "shiftboss.db"
    database.write_bytes(database.read_bytes().replace(b"CREATE INDEX", b"CREATE\xffINDEX"))

    report = check_live(home)

    assert not report.is_good
    with pytest.raises(StoreMismatch, match="damaged file"):
        verify_store(home, f"sqlite:///{database}")


def test_memory_that_is_not_text_is_found(tmp_path: Path) -> None:
    home = healthy(tmp_path)
    (home / "memory").mkdir()
    (home / "memory" / "global.md").write_bytes(b"# Global\n\xff\n")
    os.mkfifo(home / "memory" / "pipe.md")

    [finding] = check_live(home).findings

    assert finding.text == "memory/global.md is not UTF-8 text"
