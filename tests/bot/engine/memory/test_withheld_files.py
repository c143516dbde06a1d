"""Tests which files go with words that must not be kept, and which stay."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bot.engine.llm.acp.agent_config import BUILT_IN_AGENTS
from bot.engine.memory.withheld_files import WithheldFileEraser
from storage.backup_archive import BackupSource
from storage.memory.withheld_turns import CliSession, WithheldTraces, WithheldTurns
from storage.records.people import ChatId
from storage.records.tasks import TaskId

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
SAID, ANSWERED = NOW - timedelta(minutes=9), NOW - timedelta(minutes=8)


def write(path: Path, text: str, at: datetime) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (at.timestamp(), at.timestamp()))
    return path


def eraser(home: Path) -> WithheldFileEraser:
    source = BackupSource(
        home=home,
        database=home / "none.db",
        version="1",
        mask=lambda _name, text: text,
        secret_names=frozenset(),
    )
    return WithheldFileEraser(
        home=home,
        agents=lambda: BUILT_IN_AGENTS,
        source=source,
        folder=home / "backups",
        now=lambda: NOW,
    )


def traces(*sessions: CliSession) -> WithheldTraces:
    turns = WithheldTurns(chat=ChatId("c1"), inbox=(7,), spans=((SAID, NOW),))
    return WithheldTraces(
        turns=turns,
        tasks=[TaskId("tsk111")],
        windows=[(SAID, ANSWERED)],
        cli_sessions=sessions,
    )


async def test_files_of_these_messages_go_and_those_of_others_stay(tmp_path: Path) -> None:
    during, before, after = SAID + timedelta(seconds=5), SAID - timedelta(hours=1), NOW
    chat = tmp_path / "workspaces" / "chat-c1"
    gone = [
        write(tmp_path / "files/inbox/7/passport.txt", "p", during),
        write(tmp_path / "files/tasks/tsk111/result.txt", "r", during),
        write(tmp_path / "work/tsk111/notes.txt", "n", during),
        write(chat / "inbox/passport.txt", "p", during),
        write(tmp_path / "exports/memory.jsonl", "e", after),
    ]
    kept = [
        write(tmp_path / "files/inbox/8/other.txt", "o", during),
        write(chat / "inbox/older.txt", "o", before),
        write(chat / "report.md", "of a later message", after),
        write(tmp_path / "exports/older.jsonl", "e", before),
        write(tmp_path / "workspaces/chat-c2/mine.txt", "m", during),
    ]

    await eraser(tmp_path).erase(traces())

    assert [each for each in gone if each.exists()] == []
    assert [each for each in kept if not each.exists()] == []


async def test_a_coding_clis_own_session_goes_by_its_id(tmp_path: Path) -> None:
    codex = tmp_path / "agents/codex/default"
    gone = [
        write(codex / ".codex/sessions/2026/11/26/rollout-0192-aaaa.jsonl", "secret", NOW),
        write(codex / ".codex/log/tui.log", "session 0192-aaaa began", NOW),
        write(tmp_path / "agents/codex/default.log", "stderr", NOW),
        write(codex / ".codex/sessions/memory/notes.md", "the words, without a session", NOW),
    ]
    kept = [
        write(codex / ".codex/sessions/2026/11/26/rollout-0192-bbbb.jsonl", "other", NOW),
        write(codex / ".codex/auth.json", "login", NOW),
        write(codex / ".codex/sessions/memory/older.md", "of before", SAID - timedelta(days=1)),
    ]
    database = tmp_path / "agents/opencode/default/.local/share/opencode/opencode.db"
    database.parent.mkdir(parents=True)
    with closing(sqlite3.connect(database)) as cli, cli:
        cli.execute("CREATE TABLE session (id TEXT PRIMARY KEY, title TEXT, time_updated INTEGER)")
        rows = [("ses_1", "secret " * 50, 1), ("ses_2", "other", 1)]
        cli.executemany("INSERT INTO session VALUES (?, ?, ?)", rows)
    sessions = [
        CliSession(backend="codex", id="0192-aaaa", started_at=SAID),
        CliSession(backend="opencode", id="ses_1", started_at=SAID),
    ]

    await eraser(tmp_path).erase(traces(*sessions))

    assert [each for each in gone if each.exists()] == []
    assert [each for each in kept if not each.exists()] == []
    with closing(sqlite3.connect(database)) as cli:
        assert cli.execute("SELECT id FROM session").fetchall() == [("ses_2",)]
    assert b"secret" not in database.read_bytes()


async def test_where_no_backup_can_be_made_the_old_ones_stay(tmp_path: Path) -> None:
    old = write(tmp_path / "backups/shiftboss-20261126-115959.tar.gz", "x", NOW)

    done = await eraser(tmp_path).replace_backups(SAID)

    assert not done
    assert old.exists()
