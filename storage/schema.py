"""Every table. Migrations make them; this is what queries are written against."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from storage.dialect import Instant, RowNumber

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_QUEUE = ["status", "rank", "resumed_first", "created_at", "id", "project_dir", "let_in", "outside"]
_HEADS = "project_dir let_in rank resumed_first created_at id"
_QUEUED = "status = 'pending' AND NOT outside"
_IN_PROJECT = "status = 'running' AND project_dir <> ''"


def _partial(name: str, columns: str, where: str, *, unique: bool = False) -> Index:
    return Index(
        name,
        *columns.split(),
        unique=unique,
        sqlite_where=text(where),
    )


people = Table(
    "people",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", String(16), nullable=False),
    Column("language", String(8)),
    Column("created_at", Instant, nullable=False),
)

identities = Table(
    "identities",
    metadata,
    Column("channel", String(16), primary_key=True),
    Column("external_id", String(128), primary_key=True),
    Column("person_id", ForeignKey("people.id"), nullable=False, index=True),
)

chats = Table(
    "chats",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("channel", String(16), nullable=False),
    Column("external_id", String(128), nullable=False),
    Column("thread", String(128), nullable=False, server_default=""),
    Column("kind", String(16), nullable=False),
    Column("title", Text, nullable=False),
    Column("settings", JSON, nullable=False),
    Column("person_id", ForeignKey("people.id"), index=True),
    Column("created_at", Instant, nullable=False),
    UniqueConstraint("channel", "external_id", "thread"),
)

pairings = Table(
    "pairings",
    metadata,
    Column("code", String(16), primary_key=True),
    Column("channel", String(16), nullable=False),
    Column("external_id", String(128), nullable=False),
    Column("name", Text, nullable=False),
    Column("chat_id", ForeignKey("chats.id"), nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("decided_by", ForeignKey("people.id")),
    Index(None, "channel", "external_id"),
)

inbox = Table(
    "inbox",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("channel", String(16), nullable=False),
    Column("dedupe", String(200), nullable=False),
    Column("chat_id", ForeignKey("chats.id"), nullable=False),
    Column("incoming", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("error", Text, nullable=False, server_default=""),
    Column("received_at", Instant, nullable=False),
    Column("handled_at", Instant),
    UniqueConstraint("channel", "dedupe"),
    Index(None, "state", "id"),
    Index(None, "chat_id", "id"),
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("key", String(200), nullable=False, unique=True),
    Column("chat_id", ForeignKey("chats.id"), nullable=False),
    Column("urgency", Integer, nullable=False),
    Column("card", JSON, nullable=False),
    Column("reply_to", String(128), nullable=False, server_default=""),
    Column("revision", Integer, nullable=False),
    Column("shown_revision", Integer, nullable=False, server_default="0"),
    Column("tried_revision", Integer, nullable=False, server_default="0"),
    Column("placed", JSON),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("due_at", Instant, nullable=False),
    Column("error", Text, nullable=False, server_default=""),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index(None, "state", "due_at"),
    Index(None, "chat_id", "id"),
)

# Which message of a platform shows which card: replies and presses are traced through it.
placements = Table(
    "placements",
    metadata,
    Column("chat_id", ForeignKey("chats.id"), primary_key=True),
    Column("message_id", String(128), primary_key=True),
    Column("outbox_id", ForeignKey("outbox.id"), nullable=False, index=True),
)

actions = Table(
    "actions",
    metadata,
    Column("token", String(16), primary_key=True),
    Column("card_key", String(200), nullable=False, index=True),
    Column("chat_id", ForeignKey("chats.id"), nullable=False),
    Column("action", JSON, nullable=False),
    Column("allowed", JSON, nullable=False),
    Column("single_use", Boolean, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("used_by", ForeignKey("people.id")),
    Column("used_at", Instant),
    # The press that settled it: the same press delivered again is not a second press.
    Column("used_for", BigInteger),
    Column("retired", Boolean, nullable=False, server_default=text("false")),
)

tasks = Table(
    "tasks",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("source", String(200), nullable=False, unique=True),
    Column("title", Text, nullable=False),
    Column("instruction", Text, nullable=False),
    Column("priority", String(16), nullable=False),
    Column("rank", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("status_reason", Text, nullable=False, server_default=""),
    Column("phase", String(16), nullable=False),
    Column("control", String(16), nullable=False),
    # Interrupted work goes before new work of its priority.
    Column("resumed_first", Integer, nullable=False, server_default="1"),
    Column("chat_id", ForeignKey("chats.id"), nullable=False, index=True),
    Column("reply_to", String(128), nullable=False, server_default=""),
    Column("created_by", ForeignKey("people.id"), nullable=False),
    Column("project_dir", Text, nullable=False, server_default=""),
    Column("model", String(128), nullable=False, server_default=""),
    Column("backend", String(64), nullable=False, server_default=""),
    Column("files", JSON, nullable=False),
    Column("graph_version", Integer, nullable=False, server_default="0"),
    Column("epoch", Integer, nullable=False, server_default="0"),
    Column("owner", String(64), nullable=False, server_default=""),
    Column("lease_until", Instant),
    Column("wake_at", Instant),
    Column("failures_in_row", Integer, nullable=False, server_default="0"),
    Column("replans", Integer, nullable=False, server_default="0"),
    Column("summary", Text, nullable=False, server_default=""),
    Column("created_at", Instant, nullable=False),
    # When it was last put in the queue: who has waited too long goes first.
    Column("waiting_since", Instant, nullable=False, server_default="0"),
    Column("started_at", Instant),
    Column("ended_at", Instant),
    Column("errors", Integer, nullable=False, server_default="0"),
    Column("branch", String(128), nullable=False, server_default=""),
    Column("holds_dir", Boolean, nullable=False, server_default=text("false")),
    Column("let_in", Boolean, nullable=False, server_default=text("false")),
    Column("outside", Boolean, nullable=False, server_default=text("false")),
    Column("stage", Text, nullable=False, server_default=""),
    Column("tokens_before", BigInteger),
    Column("deleted_at", Instant),
    Column("persona", String(64), nullable=False, server_default=""),
    Index("ix_tasks_queue", *_QUEUE),
    _partial("ix_tasks_aging", "waiting_since", "status = 'pending' AND rank > 1"),
    _partial("ix_tasks_wake", "wake_at", "wake_at IS NOT NULL"),
    _partial("ix_tasks_holders", "project_dir", "holds_dir"),
    # The head of each project's queue, so that a busy one is skipped without being walked through.
    _partial("ix_tasks_heads", _HEADS, _QUEUED),
    # One running task per project directory is a fact of the database, not of our code.
    _partial("uq_tasks_running_project", "project_dir", _IN_PROJECT, unique=True),
)

task_logs = Table(
    "task_logs",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("task_id", ForeignKey("tasks.id"), nullable=False),
    # The message or step that wrote it: handled again, it writes nothing.
    Column("source", String(200), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("text", Text, nullable=False),
    Column("stage", Text, nullable=False, server_default=""),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("file", Text, nullable=False, server_default=""),
    Column("person_id", ForeignKey("people.id")),
    Column("at", Instant, nullable=False),
    Index(None, "task_id", "id"),
)

task_graphs = Table(
    "task_graphs",
    metadata,
    Column("task_id", ForeignKey("tasks.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("body", JSON, nullable=False),
    Column("reason", Text, nullable=False),
    Column("author", String(32), nullable=False),
    Column("at", Instant, nullable=False),
)

node_runs = Table(
    "node_runs",
    metadata,
    Column("task_id", ForeignKey("tasks.id"), primary_key=True),
    Column("path", String(200), primary_key=True),
    Column("status", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("output", JSON, nullable=False),
    Column("error", Text, nullable=False, server_default=""),
    Column("wake_at", Instant),
    Column("started_at", Instant),
    Column("ended_at", Instant),
)

node_attempts = Table(
    "node_attempts",
    metadata,
    Column("task_id", ForeignKey("tasks.id"), primary_key=True),
    Column("path", String(200), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    # Written before the paid call, so that a second try can go on instead of paying again.
    Column("session_id", String(64), nullable=False, server_default=""),
    Column("started_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Column("error", Text, nullable=False, server_default=""),
)

commands = Table(
    "commands",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("source", String(200), nullable=False, unique=True),
    Column("task_id", ForeignKey("tasks.id"), nullable=False, index=True),
    Column("kind", String(32), nullable=False),
    Column("payload", JSON, nullable=False),
    Column("person_id", ForeignKey("people.id")),
    Column("at", Instant, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("task_id", ForeignKey("tasks.id"), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("text", Text, nullable=False, server_default=""),
    Column("at", Instant, nullable=False),
    Column("told_at", Instant),
    Index(None, "task_id", "id"),
    _partial("ix_events_untold", "id", "told_at IS NULL"),
)

approvals = Table(
    "approvals",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("task_id", ForeignKey("tasks.id"), index=True),
    Column("path", String(200), nullable=False, server_default=""),
    Column("subject", String(200), nullable=False, server_default=""),
    Column("chat_id", ForeignKey("chats.id"), nullable=False),
    Column("title", Text, nullable=False),
    Column("detail", Text, nullable=False, server_default=""),
    Column("command_hash", String(64), nullable=False, server_default=""),
    Column("payload", JSON, nullable=False, server_default="{}"),
    Column("approvers", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("decided_by", ForeignKey("people.id")),
    Column("decided_at", Instant),
    # The arrival that settled it: the same one handled again is not a second decision.
    Column("decided_for", String(200), nullable=False, server_default=""),
    Column("reason", Text, nullable=False, server_default=""),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Index(None, "state", "chat_id"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("key", String(200), nullable=False, index=True),
    Column("backend", String(64), nullable=False),
    Column("model", String(128), nullable=False),
    Column("external_id", String(128), nullable=False, server_default=""),
    # Whose home a coding CLI keeps it in.
    Column("persona", String(64), nullable=False, server_default=""),
    Column("turns", Integer, nullable=False, server_default="0"),
    Column("tokens", Integer, nullable=False, server_default="0"),
    Column("started_at", Instant, nullable=False),
    Column("last_used_at", Instant, nullable=False),
    Column("closed_at", Instant),
)

messages = Table(
    "messages",
    metadata,
    Column("session_id", ForeignKey("sessions.id"), primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("content", JSON, nullable=False),
    Column("at", Instant, nullable=False),
)

usage = Table(
    "usage",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("at", Instant, nullable=False, index=True),
    Column("purpose", String(16), nullable=False),
    Column("backend", String(64), nullable=False),
    Column("model", String(128), nullable=False),
    Column("person_id", ForeignKey("people.id"), index=True),
    Column("chat_id", ForeignKey("chats.id"), index=True),
    Column("task_id", ForeignKey("tasks.id"), index=True),
    Column("requests", Integer, nullable=False),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("cache_read_tokens", Integer, nullable=False),
    Column("cache_write_tokens", Integer, nullable=False),
    # US dollars in millionths; null where no price is known.
    Column("cost_micros", BigInteger),
)

# What people allowed beyond a cap. `day` is empty for a task's.
budget_grants = Table(
    "budget_grants",
    metadata,
    Column("approval_id", ForeignKey("approvals.id"), primary_key=True),
    Column("scope", String(16), nullable=False),
    Column("subject", String(64), nullable=False),
    Column("day", String(10), nullable=False, server_default=""),
    Column("micros", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("at", Instant, nullable=False),
    Index(None, "scope", "subject", "day"),
)

marks = Table(
    "marks",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("value", JSON, nullable=False),
)
