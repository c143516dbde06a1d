from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from bot.config.settings import RetentionSettings
from bot.engine.llm.acp.agent_config import BUILT_IN_AGENTS
from bot.engine.tasks.system_status import measure_disk_use
from bot.engine.upkeep import RetentionService
from storage import (  # noqa: F401 - add their tables
    autonomy_schema,
    bitable_schema,
    process_schema,
    web_schema,
)
from storage.db import Database
from storage.records.tasks import Task
from storage.retention import RetentionRepo
from storage.schema import metadata
from storage.traces import SpanRepo
from tests.migrated_database import database_file, open_database

NOW = datetime(2026, 6, 1, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=400)
OLD = round(LONG_AGO.timestamp() * 1_000_000)
NEW = round((NOW - timedelta(days=1)).timestamp() * 1_000_000)
LATER = round((NOW + timedelta(days=9)).timestamp() * 1_000_000)

ROWS = f"""
INSERT INTO people VALUES ('p1', 'Ann', 'owner', 'en', 0);
INSERT INTO chats (id, channel, external_id, thread, kind, title, settings, created_at)
  VALUES ('c1', 'web', 'x', '', 'private', '', '{{}}', 0);
INSERT INTO tasks (title, instruction, priority, rank, control, chat_id, created_by, created_at,
  id, source, status, phase, files, branch, ended_at) VALUES
  ('T', 'x', 'normal', 3, 'run', 'c1', 'p1', 0,
   'done01', 'a', 'completed', 'ended', '[]', '', {OLD}),
  ('T', 'x', 'normal', 3, 'run', 'c1', 'p1', 0,
   'tree01', 'b', 'failed', 'ended', '[]', 'b1', {OLD}),
  ('T', 'x', 'normal', 3, 'run', 'c1', 'p1', 0,
   'new001', 'c', 'completed', 'ended', '[]', '', {NEW}),
  ('T', 'x', 'normal', 3, 'run', 'c1', 'p1', 0,
   'open01', 'd', 'blocked', 'doing', '["files/inbox/2/a.txt"]', '', NULL);
INSERT INTO sessions (id, key, backend, model, started_at, last_used_at) VALUES
  ('s-done', 'k1', 'b', 'm', 0, 0), ('s-open', 'k2', 'b', 'm', 0, 0),
  ('s-chat', 'k3', 'b', 'm', 0, 0);
INSERT INTO messages (session_id, seq, content, at) VALUES
  ('s-done', 0, '{{}}', {OLD}), ('s-open', 0, '{{}}', {OLD}), ('s-chat', 0, '{{}}', {OLD});
INSERT INTO node_attempts (task_id, path, attempt, session_id, started_at) VALUES
  ('done01', 'a', 1, 's-done', 0), ('open01', 'a', 1, 's-open', 0);
INSERT INTO approvals (id, kind, task_id, chat_id, title, approvers, state, created_at, expires_at)
  VALUES ('ask001', 'risk', 'open01', 'c1', 'T', '[]', 'waiting', 0, {LATER});
INSERT INTO inbox (id, channel, dedupe, chat_id, incoming, state, received_at) VALUES
  (3, 'web', 'x', 'c1', '{{}}', 'held', {NEW});
"""
CARDS = {
    "reply:1": OLD,
    "reply:2": NEW,
    "task:done01": OLD,
    "task:open01": OLD,
    "approval:ask001:c1": OLD,
    "button": OLD,
}


def fill(home: Path) -> None:
    with closing(sqlite3.connect(database_file(home))) as db, db:
        db.executescript(ROWS)
        for number, (key, at) in enumerate(CARDS.items(), start=1):
            values = (number, key, at)
            db.execute(
                "INSERT INTO outbox (id, key, chat_id, urgency, card, revision, state, due_at,"
                " created_at, updated_at) VALUES (?, ?, 'c1', 0, '{}', 1, 'shown', 0, 0, ?)",
                values,
            )
            db.execute("INSERT INTO placements VALUES ('c1', ?, ?)", (key, number))
        db.execute(
            "INSERT INTO actions (token, card_key, chat_id, action, allowed, single_use,"
            " expires_at) VALUES ('t', 'button', 'c1', '{}', '[]', 1, ?)",
            (LATER,),
        )
    for name in ("1", "2", "3", "4"):
        folder = home / "files" / "inbox" / name
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("a")
        dated = NOW.timestamp() if name == "4" else LONG_AGO.timestamp()
        os.utime(folder, (dated, dated))
    for task in ("done01", "tree01", "new001", "open01"):
        for place in ("work", "files/tasks"):
            (home / place / task).mkdir(parents=True)
            (home / place / task / "f").write_text("x")
    (home / "exports").mkdir()
    for name, written in (("old.md", LONG_AGO), ("new.md", NOW)):
        (home / "exports" / name).write_text("x")
        os.utime(home / "exports" / name, (written.timestamp(), written.timestamp()))


async def clean(db: Database, home: Path, keep: RetentionSettings) -> list[str]:
    removed: list[str] = []

    async def remove_worktree(task: Task) -> None:
        removed.append(task.id)

    async def sleep(_seconds: float) -> None:
        raise AssertionError

    await retention(db, home, keep, remove_worktree=remove_worktree, sleep=sleep).delete_old()
    return removed


def retention(
    db: Database,
    home: Path,
    keep: RetentionSettings,
    *,
    remove_worktree: Callable[[Task], Awaitable[None]],
    sleep: Callable[[float], Awaitable[None]],
    **unused: Callable[[], int],
) -> RetentionService:
    return RetentionService(
        home=home,
        keep=keep,
        repo=RetentionRepo(db),
        spans=SpanRepo(db),
        remove_worktree=remove_worktree,
        agents=lambda: BUILT_IN_AGENTS,
        unused=unused,
        now=lambda: NOW,
        sleep=sleep,
    )


def column(home: Path, query: str) -> set[str]:
    with closing(sqlite3.connect(database_file(home))) as db:
        return {str(row[0]) for row in db.execute(query)}


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


async def test_only_what_nobody_needs_is_deleted(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        fill(tmp_path)
        removed = await clean(db, tmp_path, RetentionSettings())

    kept = {"reply:2", "task:open01", "approval:ask001:c1", "button"}
    assert column(tmp_path, "SELECT key FROM outbox") == kept
    assert column(tmp_path, "SELECT message_id FROM placements") == kept
    assert column(tmp_path, "SELECT session_id FROM messages") == {"s-open", "s-chat"}
    assert names(tmp_path / "files/inbox") == {"2", "3", "4"}
    assert names(tmp_path / "work") == {"tree01", "new001", "open01"}
    assert removed == ["tree01"], "a worktree is git's: its work stays on its branch"
    assert names(tmp_path / "files/tasks") == {"new001", "open01"}
    assert names(tmp_path / "exports") == {"new.md"}
    assert column(tmp_path, "SELECT count(*) FROM pragma_foreign_key_check") == {"0"}


async def test_zero_days_keep_everything(tmp_path: Path) -> None:
    days = {name: 0 for name in RetentionSettings.model_fields if name != "inbox_days"}
    async with open_database(tmp_path) as db:
        fill(tmp_path)
        before = {str(each) for each in (tmp_path / "files").rglob("*")}
        assert await clean(db, tmp_path, RetentionSettings.model_validate(days)) == []

    assert names(tmp_path / "exports") == {"old.md", "new.md"}
    assert column(tmp_path, "SELECT key FROM outbox") == set(CARDS)
    assert {str(each) for each in (tmp_path / "files").rglob("*")} == before


RECORDS = f"""
INSERT INTO evolution_signals (kind, name, figures, outcome, fired_at) VALUES
  ('slow', 'old', '{{}}', 'noted', {OLD}), ('slow', 'new', '{{}}', 'noted', {NEW});
INSERT INTO sessions (id, key, backend, model, started_at, last_used_at, closed_at) VALUES
  ('s-old', 'chat:c1', 'b', 'm', 0, {OLD}, {OLD}), ('s-sub', 'helper:h1', 'b', 'm', 0, {OLD}, NULL),
  ('s-idle', 'chat:c1', 'b', 'm', 0, {OLD}, NULL), ('s-asks', 'chat:c1', 'b', 'm', 0, {OLD}, NULL),
  ('s-now', 'chat:c1', 'b', 'm', 0, {NEW}, NULL);
INSERT INTO messages (session_id, seq, content, at) VALUES
  ('s-old', 1, '{{}}', {OLD}), ('s-sub', 1, '{{}}', {OLD}), ('s-idle', 1, '{{}}', {OLD}),
  ('s-asks', 1, '{{}}', {OLD}), ('s-now', 1, '{{}}', {OLD}), ('s-now', 2, '{{}}', {OLD}),
  ('s-now', 3, '{{}}', {OLD});
INSERT INTO message_texts (session_id, message, ordinal, role, text, tokens, at)
  SELECT session_id, seq, 0, 'user', 'x', 1, at FROM messages WHERE seq > 0;
INSERT INTO summaries VALUES ('sum-old', 's-old', 0, 'x', 1, 0, 0, 0, 0, 0, '', 0),
  ('sum-now', 's-now', 0, 'x', 1, 0, 0, 0, 0, 0, '', 0);
INSERT INTO summary_sources VALUES ('sum-old', 0, 1, NULL), ('sum-now', 0, 1, NULL);
INSERT INTO context_items VALUES ('s-old', 0, 'sum-old', 1, 1), ('s-now', 0, 'sum-now', 2, 1);
INSERT INTO events (id, task_id, kind, at, told_at) VALUES
  (1, 'done01', 'k', 0, 0), (2, 'done01', 'k', 0, NULL), (3, 'open01', 'k', 0, 0);
INSERT INTO commands (source, task_id, kind, payload, at) VALUES
  ('gone', 'done01', 'k', '{{}}', 0), ('kept', 'open01', 'k', '{{}}', 0);
INSERT INTO approvals (id, kind, task_id, chat_id, title, approvers, state, created_at, expires_at)
  VALUES ('gone01', 'risk', 'done01', 'c1', 'T', '[]', 'approved', 0, {OLD}),
  ('gone02', 'tool', NULL, 'c1', 'T', '[]', 'denied', 0, {OLD}),
  ('kept01', 'tool', 'done01', 'c1', 'T', '[]', 'approved', 0, {OLD}),
  ('kept02', 'budget', NULL, 'c1', 'T', '[]', 'approved', 0, {OLD}),
  ('kept03', 'tool', NULL, 'c1', 'T', '[]', 'waiting', 0, {OLD});
INSERT INTO tool_grants (scope, tool, pattern, approval_id, granted_by, at)
  VALUES ('always', 't', 'p', 'kept01', 'p1', 0);
INSERT INTO budget_grants (approval_id, scope, subject, micros, tokens, at)
  VALUES ('kept02', 'day', 'p1', 1, 1, 0);
INSERT INTO tool_calls (session_id, call_id, task_id, backend, tool, kind, title, arguments,
  command_hash, verdict, state, approval_id, asked_at, ended_at) VALUES
  ('s-done', 'gone-task', 'done01', 'b', 't', 'k', 'T', '{{}}', '', 'ask', 'done', 'gone01', 0, 0),
  ('s-old', 'gone-chat', NULL, 'b', 't', 'k', 'T', '{{}}', '', 'ask', 'done', NULL, 0, {OLD}),
  ('s-now', 'kept-chat', NULL, 'b', 't', 'k', 'T', '{{}}', '', 'ask', 'done', NULL, 0, {NEW}),
  ('s-asks', 'kept-open', NULL, 'b', 't', 'k', 'T', '{{}}', '', 'ask', 'open', 'kept03', 0, NULL);
INSERT INTO helpers (id, source, parent_session, session_id, task_id, chat_id, person_id, depth,
  label, prompt, keep, status, created_at, delivered_at) VALUES
  ('h1', 'a', 's-old', 's-sub', NULL, 'c1', 'p1', 1, 'l', 'p', 0, 'done', 0, {OLD}),
  ('h2', 'b', 's-open', '', 'open01', 'c1', 'p1', 1, 'l', 'p', 0, 'done', 0, {OLD}),
  ('h3', 'c', 's-done', '', 'done01', 'c1', 'p1', 1, 'l', 'p', 0, 'done', 0, {OLD});
INSERT INTO pairings VALUES
  ('gone', 'web', 'z', 'Z', 'c1', 'pending', 0, {OLD}, NULL),
  ('kept', 'web', 'y', 'Y', 'c1', 'pending', 0, {LATER}, NULL);
INSERT INTO inbox (id, channel, dedupe, chat_id, incoming, state, received_at) VALUES
  (4, 'web', 'y', 'c1', '{{}}', 'held', {OLD});
"""


async def test_records_and_conversations_go_when_nobody_needs_them(tmp_path: Path) -> None:
    keep = RetentionSettings(conversations_days=180)
    async with open_database(tmp_path) as db:
        fill(tmp_path)
        with closing(sqlite3.connect(database_file(tmp_path))) as raw, raw:
            raw.executescript(RECORDS)
        await clean(db, tmp_path, keep)
        # The sub-agent's transcript went first.
        await clean(db, tmp_path, keep)

    left = partial(column, tmp_path)
    assert left("SELECT session_id || seq FROM messages") == {
        *("s-open0", "s-chat0", "s-asks1", "s-now3")
    }
    assert left("SELECT session_id || message FROM message_texts") == {"s-asks1", "s-now3"}
    assert left("SELECT id FROM summaries") == {"sum-now"}
    assert left("SELECT id FROM sessions WHERE key = 'chat:c1' AND closed_at IS NULL") == {
        *("s-asks", "s-now")
    }
    assert left("SELECT id FROM events") == {"2", "3"}
    assert left("SELECT source FROM commands") == {"kept"}
    assert left("SELECT call_id FROM tool_calls") == {"kept-chat", "kept-open"}
    assert left("SELECT id FROM helpers") == {"h2"}
    assert left("SELECT code FROM pairings") == {"kept"}
    assert left("SELECT id FROM inbox") == {"3"}, "the other stood on a card for a year"
    assert left("SELECT name FROM evolution_signals") == {"new"}
    assert left("SELECT count(*) FROM pragma_foreign_key_check") == {"0"}


async def test_versions_go_only_when_nothing_was_made_with_them(tmp_path: Path) -> None:
    # By number: adopted and replaced, in use, declined, on trial once, declined yesterday, newest.
    ended = {
        1: ("retired", 0, OLD),
        2: ("active", 1, None),
        3: ("retired", 2, OLD),
        4: ("retired", 2, OLD),
        5: ("retired", 2, NEW),
        6: ("retired", 2, OLD),
    }
    async with open_database(tmp_path) as db:
        fill(tmp_path)
        with closing(sqlite3.connect(database_file(tmp_path))) as raw, raw:
            for number, (state, parent, at) in ended.items():
                raw.execute(
                    "INSERT INTO prompt_versions (id, kind, name, number, content, hash, base_hash,"
                    " parent, parent_content, author, reason, signal, state, share, created_at,"
                    " ended_at) VALUES (?, 'skill', 'weekly', ?, '', '', '', ?, '', '', '', '{}',"
                    " ?, 50, 0, ?)",
                    (number, number, parent, state, at),
                )
            raw.execute(
                "INSERT INTO attempt_versions VALUES ('done01', 'a', 1, 'skill', 'weekly', 4, 4)"
            )
        await clean(db, tmp_path, RetentionSettings())

    assert column(tmp_path, "SELECT number FROM prompt_versions") == {"1", "2", "4", "5", "6"}


GROWS_WITH_SETTING = {
    "inbox_days": {"inbox", "inbox_replies"},
    "messages_days": {"outbox", "placements", "actions"},
    "transcripts_days": {"messages", "message_texts"},
    "conversations_days": {"summaries", "summary_sources", "context_items"},
    "records_days": {
        *("events", "commands", "tool_calls", "helpers", "pairings", "firings", "schedules"),
        "trigger_firings",
        *("incidents", "self_check_runs"),
        *("heartbeat_runs", "evolution_signals", "prompt_versions"),
    },
    "spans_days": {"spans"},
}
BOUNDED = {
    "people and what they configured": {
        *("people", "identities", "account_links", "chats", "skills", "tool_grants", "triggers")
    },
    "the history, some kB a task": {
        *("tasks", "task_logs", "task_graphs", "node_runs", "node_attempts", "sessions"),
        *("attempt_versions", "discarded_runs"),
    },
    "who allowed what": {"approvals"},
    "money": {"usage", "pending_model_calls", "budget_grants"},
    "its own life-time": {"web_sessions", "web_keys", "memory_uses", "memory_jobs"},
    "one row for each name": {
        "marks",
        "memory_files",
        "memory_scopes",
        "service_leases",
        "workers",
        "homes",
    },
    "until it is done": {"file_erasures", "late_files"},
    "memory's own decay": {
        *("memories", "memory_postings", "memory_blocks", "memory_vectors", "memory_links")
    },
    "a row for each of a table, which holds 20,000": {"bitable_bases", "bitable_rows"},
    "what was forgotten stays forgotten": {"memory_tombstones", "forgotten_folders"},
}


def test_every_table_has_a_retention_or_a_reason() -> None:
    sorted_out = [*GROWS_WITH_SETTING.values(), *BOUNDED.values()]
    assert sorted(each for tables in sorted_out for each in tables) == sorted(metadata.tables)
    assert {*GROWS_WITH_SETTING} <= {*RetentionSettings.model_fields}


async def test_many_rows_are_deleted_in_batches(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        fill(tmp_path)
        with closing(sqlite3.connect(database_file(tmp_path))) as raw, raw:
            raw.executemany(
                "INSERT INTO outbox (key, chat_id, urgency, card, revision, state, due_at,"
                " created_at, updated_at) VALUES (?, 'c1', 0, '{}', 1, 'shown', 0, 0, ?)",
                [(f"old:{number}", OLD) for number in range(450)],
            )
        await clean(db, tmp_path, RetentionSettings())

    assert column(tmp_path, "SELECT count(*) FROM outbox") == {"4"}


async def test_disk_use_is_told_by_kind(tmp_path: Path) -> None:
    async with open_database(tmp_path):
        fill(tmp_path)
        (tmp_path / "backups").mkdir()
        (tmp_path / "backups" / "b").write_bytes(bytes(1000))

    found = measure_disk_use(tmp_path, database_file(tmp_path), tmp_path / "backups")

    sizes = {each.kind: each.size for each in found}
    assert sizes["backups"] == 1000
    assert sizes["uploads"] == 4
    assert next(iter(sizes)) == "database"
    assert "memory" not in sizes


FIVE_YEARS_AGO = NOW - timedelta(days=1800)
QWEN = "agents/qwen/default"
CLI_FILES = {
    f"{QWEN}/.qwen/projects/-work-x/chats/old.jsonl": LONG_AGO,
    f"{QWEN}/.qwen/projects/-work-x/chats/new.jsonl": NOW,
    f"{QWEN}/.qwen/projects/-work-x/memory/notes.md": LONG_AGO,
    f"{QWEN}/.qwen/tmp/it.db": LONG_AGO,
    f"{QWEN}/.qwen/oauth_creds.json": LONG_AGO,
    f"{QWEN}/.qwen/settings.json": LONG_AGO,
    f"{QWEN}/.qwen/QWEN.md": LONG_AGO,
    f"{QWEN}/.cache/x/y": LONG_AGO,
    f"{QWEN}/scratch/mine": LONG_AGO,
    "agents/qwen/default.tmp/t": LONG_AGO,
    "agents/qwen/default.log": LONG_AGO,
    "agents/codex/ann/.codex/sessions/2025/old.jsonl": LONG_AGO,
    "agents/codex/ann/.codex/sessions/2020/older.jsonl": FIVE_YEARS_AGO,
    "agents/codex/ann/.codex/auth.json": LONG_AGO,
    "agents/codex/ann/.codex/config.toml": LONG_AGO,
    "agents/gone/default/.cache/x": LONG_AGO,
    "agents/gone/default/.gone/session": LONG_AGO,
}


def fill_cli_homes(home: Path) -> None:
    for name, written in CLI_FILES.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        os.utime(path, (written.timestamp(), written.timestamp()))
    # Hostile: links out of the home, in the place of a session folder and in one.
    outside = home / "memory"
    outside.mkdir()
    (outside / "kept").write_text("x")
    os.utime(outside / "kept", (0, 0))
    (home / "agents/gemini/default/.gemini").mkdir(parents=True)
    (home / "agents/gemini/default/.gemini/tmp").symlink_to(outside)
    (home / QWEN / ".qwen/projects/link").symlink_to(outside)
    (home / QWEN / ".qwen/tmp/file").symlink_to(outside / "kept")


def left(home: Path) -> set[str]:
    return {name for name in CLI_FILES if (home / name).exists()}


async def test_old_sessions_of_coding_clis_go_and_their_logins_and_notes_stay(
    tmp_path: Path,
) -> None:
    async with open_database(tmp_path) as db:
        fill(tmp_path)
        fill_cli_homes(tmp_path)

        await clean(db, tmp_path, RetentionSettings())

    assert set(CLI_FILES) - left(tmp_path) == {
        f"{QWEN}/.qwen/projects/-work-x/chats/old.jsonl",
        f"{QWEN}/.cache/x/y",
        "agents/qwen/default.tmp/t",
        "agents/qwen/default.log",
        "agents/codex/ann/.codex/sessions/2025/old.jsonl",
        "agents/codex/ann/.codex/sessions/2020/older.jsonl",
        "agents/gone/default/.cache/x",
    }
    assert (tmp_path / "memory/kept").exists()


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        ("closed_at = NULL, key = 'chat:c1'", True),
        ("id = 's-open'", True),
        ("closed_at = 9, id = 's-open'", False),
        ("id = 's-done'", False),
        ("closed_at = 9", False),
        ("external_id = ''", False),
    ],
)
async def test_a_session_that_can_go_on_keeps_what_its_cli_has_written_since_it_began(
    tmp_path: Path, change: str, stays: bool
) -> None:
    began = round((LONG_AGO - timedelta(days=1)).timestamp() * 1_000_000)
    async with open_database(tmp_path) as db:
        fill(tmp_path)
        fill_cli_homes(tmp_path)
        with closing(sqlite3.connect(database_file(tmp_path))) as raw, raw:
            raw.execute("PRAGMA foreign_keys = OFF")
            raw.execute("DELETE FROM sessions WHERE ? LIKE '%' || id || '%'", (change,))
            raw.execute(
                "INSERT INTO sessions (id, key, backend, model, external_id, started_at,"
                " last_used_at) VALUES ('new', 'k9', 'codex', 'm', 'e1', ?, ?)",
                (began, began),
            )
            raw.execute(f"UPDATE sessions SET {change} WHERE id = 'new'")

        await clean(db, tmp_path, RetentionSettings())

    old = "agents/codex/ann/.codex/sessions/2025/old.jsonl"
    assert (old in left(tmp_path)) is stays
    assert "agents/codex/ann/.codex/sessions/2020/older.jsonl" not in left(tmp_path)
    assert f"{QWEN}/.cache/x/y" not in left(tmp_path)


async def test_a_session_with_a_call_that_waits_keeps_its_files(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        fill(tmp_path)
        fill_cli_homes(tmp_path)
        with closing(sqlite3.connect(database_file(tmp_path))) as raw, raw:
            raw.execute(
                "UPDATE sessions SET backend = 'codex', external_id = 'e1', closed_at = 9"
                " WHERE id = 's-done'"
            )
            raw.execute(
                "INSERT INTO tool_calls (session_id, call_id, path, backend, tool, kind, title,"
                " detail, arguments, command_hash, verdict, why, pattern, state, suspended,"
                " asked_at) VALUES ('s-done', 'c', '', 'codex', 'exec', 'execute', '', '', '{}',"
                " '', 'ask', '{}', '', 'open', 1, 0)"
            )

        await clean(db, tmp_path, RetentionSettings())

    assert "agents/codex/ann/.codex/sessions/2025/old.jsonl" in left(tmp_path)


OPENCODE = "agents/opencode/default/.local/share/opencode/opencode.db"
OPENCODE_TABLES = """
CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, time_updated INTEGER NOT NULL);
CREATE TABLE message (id TEXT PRIMARY KEY, data TEXT,
    session_id TEXT NOT NULL REFERENCES session ON DELETE CASCADE);
CREATE TABLE part (id TEXT PRIMARY KEY, data TEXT,
    message_id TEXT NOT NULL REFERENCES message ON DELETE CASCADE);
CREATE TABLE account (id TEXT PRIMARY KEY);
INSERT INTO account VALUES ('a');
"""


def fill_opencode(home: Path, **sessions: datetime) -> sqlite3.Connection:
    """Its sessions by the times of their last change. As in life, it has its database open."""
    database = home / OPENCODE
    database.parent.mkdir(parents=True)
    opened = sqlite3.connect(database, isolation_level=None)
    opened.execute("PRAGMA journal_mode = wal")
    opened.executescript(OPENCODE_TABLES)
    for name, at in sessions.items():
        opened.execute(
            "INSERT INTO session VALUES (?, NULL, ?)", (name, round(at.timestamp() * 1000))
        )
        opened.execute("INSERT INTO message VALUES ('m' || ?, '', ?)", (name, name))
        opened.execute("INSERT INTO part VALUES ('p' || ?, '', 'm' || ?)", (name, name))
    return opened


def listed(opened: sqlite3.Connection, table: str) -> list[str]:
    return [row[0] for row in opened.execute(f"SELECT id FROM {table} ORDER BY id")]


@pytest.mark.parametrize("resumable", [False, True])
async def test_old_sessions_in_a_cli_s_database_go_unless_one_can_go_on(
    tmp_path: Path, *, resumable: bool
) -> None:
    began = round((LONG_AGO - timedelta(days=1)).timestamp() * 1_000_000)
    async with open_database(tmp_path) as db:
        fill(tmp_path)
        with closing(sqlite3.connect(database_file(tmp_path))) as raw, raw:
            raw.execute(
                "INSERT INTO sessions (id, key, backend, model, external_id, started_at,"
                " last_used_at, closed_at) VALUES ('new', 'k9', 'opencode', 'm', 'e1', ?, ?, ?)",
                (began, began, None if resumable else began),
            )
        opened = fill_opencode(tmp_path, old=LONG_AGO, older=FIVE_YEARS_AGO, young=NOW)
        with closing(opened):
            await clean(db, tmp_path, RetentionSettings())

            kept = ["old", "young"] if resumable else ["young"]
            assert listed(opened, "session") == kept
            assert listed(opened, "part") == [f"p{x}" for x in kept]
            assert listed(opened, "account") == ["a"]


CODEX_TABLES = """
CREATE TABLE threads (id TEXT PRIMARY KEY, first_user_message TEXT, updated_at INTEGER NOT NULL);
CREATE TABLE thread_dynamic_tools (id TEXT,
    thread_id TEXT NOT NULL REFERENCES threads ON DELETE CASCADE);
CREATE TRIGGER recent AFTER UPDATE OF updated_at ON threads BEGIN SELECT 1; END;
INSERT INTO threads VALUES ('old', 'secret', {old}), ('young', 'words', {young});
INSERT INTO thread_dynamic_tools SELECT 't' || id, id FROM threads;
"""
CODEX_HISTORY = """
CREATE TABLE thread_items (id TEXT, thread_id TEXT, created_at_ms INTEGER, item_json TEXT);
INSERT INTO thread_items VALUES ('i1', 'old', {old}000, 'secret'), ('i2', 'young', {young}000, '');
"""


async def test_old_sessions_in_codex_s_databases_go(tmp_path: Path) -> None:
    folder = tmp_path / "agents/codex/ann/.codex"
    folder.mkdir(parents=True)
    times = {"old": int(LONG_AGO.timestamp()), "young": int(NOW.timestamp())}
    async with open_database(tmp_path) as db:
        with (
            closing(sqlite3.connect(folder / "state_5.sqlite")) as state,
            closing(sqlite3.connect(folder / "thread_history_1.sqlite")) as history,
        ):
            state.executescript(CODEX_TABLES.format(**times))
            history.executescript(CODEX_HISTORY.format(**times))

            await clean(db, tmp_path, RetentionSettings())

            assert listed(state, "threads") == ["young"]
            assert listed(state, "thread_dynamic_tools") == ["tyoung"]
            assert listed(history, "thread_items") == ["i2"]
    for each in folder.iterdir():
        assert b"secret" not in each.read_bytes()


@pytest.mark.parametrize(
    ("name", "stays"), [("0192f0c1-aaaa-7bbb-8ccc-0123456789ab", False), ("shared", True)]
)
async def test_a_database_in_a_folder_of_one_session_goes_with_it(
    tmp_path: Path, name: str, *, stays: bool
) -> None:
    kept = tmp_path / "agents/qwen/ann/.qwen/projects/hash" / name / "store.db"
    kept.parent.mkdir(parents=True)
    kept.write_text("words")
    os.utime(kept, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))
    async with open_database(tmp_path) as db:
        await clean(db, tmp_path, RetentionSettings())

    assert kept.exists() is stays


@pytest.mark.parametrize("damage", ["text", "link", "other", "trigger"])
async def test_a_cli_s_database_that_is_none_stays_and_stops_nothing(
    tmp_path: Path, damage: str
) -> None:
    async with open_database(tmp_path) as db:
        fill(tmp_path)
        fill_cli_homes(tmp_path)
        opened = fill_opencode(tmp_path, old=LONG_AGO)
        match damage:
            case "trigger":
                opened.execute(
                    "CREATE TRIGGER t BEFORE DELETE ON session BEGIN DELETE FROM account; END"
                )
            case "other":
                opened.execute("ALTER TABLE session RENAME TO sessions")
        opened.close()
        match damage:
            case "text":
                (tmp_path / OPENCODE).write_text("no database")
            case "link":
                (tmp_path / OPENCODE).rename(tmp_path / "elsewhere.db")
                (tmp_path / OPENCODE).symlink_to(tmp_path / "elsewhere.db")
        before = (tmp_path / OPENCODE).read_bytes()

        await clean(db, tmp_path, RetentionSettings())

    assert (tmp_path / OPENCODE).read_bytes() == before
    assert f"{QWEN}/.cache/x/y" not in left(tmp_path)


async def test_files_of_coding_clis_are_kept_for_ever_if_a_setting_says_so(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        fill(tmp_path)
        fill_cli_homes(tmp_path)

        await clean(db, tmp_path, RetentionSettings(agents_days=0))

    assert left(tmp_path) == set(CLI_FILES)


async def test_a_disk_that_fails_is_tried_again_the_next_day(tmp_path: Path) -> None:
    tried: list[str] = []
    rests: list[float] = []

    def fails() -> int:
        tried.append("homes")
        raise OSError(5, "Input/output error")

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) > 2:
            raise asyncio.CancelledError

    async def keep_worktree(task: Task) -> None:
        raise AssertionError(task)

    async with open_database(tmp_path) as db:
        service = retention(
            db,
            tmp_path,
            RetentionSettings(),
            remove_worktree=keep_worktree,
            sleep=sleep,
            homes=fails,
        )
        with pytest.raises(asyncio.CancelledError):
            await service.run()

    assert tried == ["homes", "homes"]
    assert rests[1:] == [86_400.0, 86_400.0]
