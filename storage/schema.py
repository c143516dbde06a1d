"""Defines the database tables that queries are written against; migrations create them."""

from __future__ import annotations

import sqlalchemy as sa

from storage.dialect import RowNumber, UtcTimestamp

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_QUEUE = ["status", "rank", "resumed_first", "created_at", "id", "project_dir", "let_in", "outside"]
_PROJECT_QUEUE = "project_dir let_in rank resumed_first created_at id"
_QUEUED = "status = 'pending' AND NOT outside"
_IN_PROJECT = "status = 'running' AND project_dir <> ''"


def _partial(name: str, columns: str, where: str, *, unique: bool = False) -> sa.Index:
    return sa.Index(
        name,
        *columns.split(),
        unique=unique,
        sqlite_where=sa.text(where),
    )


def brought_by() -> sa.Column[str]:
    """A column for the person whose account brought a row when it was linked; null for rows that
    always belonged to their person."""
    # Without a foreign key: SQLite cannot add one to a table.
    return sa.Column("brought_by", sa.String(16))


people = sa.Table(
    "people",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("language", sa.String(8)),
    sa.Column("created_at", UtcTimestamp, nullable=False),
)

identities = sa.Table(
    "identities",
    metadata,
    sa.Column("channel", sa.String(16), primary_key=True),
    sa.Column("external_id", sa.String(128), primary_key=True),
    sa.Column("person_id", sa.ForeignKey("people.id"), nullable=False, index=True),
    brought_by(),
)

chats = sa.Table(
    "chats",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("channel", sa.String(16), nullable=False),
    sa.Column("external_id", sa.String(128), nullable=False),
    sa.Column("thread", sa.String(128), nullable=False, server_default=""),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column("person_id", sa.ForeignKey("people.id"), index=True),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    brought_by(),
    sa.UniqueConstraint("channel", "external_id", "thread"),
)

pairings = sa.Table(
    "pairings",
    metadata,
    sa.Column("code", sa.String(16), primary_key=True),
    sa.Column("channel", sa.String(16), nullable=False),
    sa.Column("external_id", sa.String(128), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("chat_id", sa.ForeignKey("chats.id"), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    sa.Column("expires_at", UtcTimestamp, nullable=False),
    sa.Column("decided_by", sa.ForeignKey("people.id")),
    sa.Index(None, "channel", "external_id"),
)

inbox = sa.Table(
    "inbox",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("channel", sa.String(16), nullable=False),
    sa.Column("dedupe", sa.String(200), nullable=False),
    sa.Column("chat_id", sa.ForeignKey("chats.id"), nullable=False),
    sa.Column("incoming", sa.JSON, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("error", sa.Text, nullable=False, server_default=""),
    sa.Column("received_at", UtcTimestamp, nullable=False),
    sa.Column("handled_at", UtcTimestamp),
    sa.Column("outcome", sa.String(220), nullable=False, server_default=""),
    sa.UniqueConstraint("channel", "dedupe"),
    sa.Index(None, "state", "id"),
    sa.Index(None, "chat_id", "id"),
)

outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("key", sa.String(200), nullable=False, unique=True),
    sa.Column("chat_id", sa.ForeignKey("chats.id"), nullable=False),
    sa.Column("urgency", sa.Integer, nullable=False),
    sa.Column("card", sa.JSON, nullable=False),
    sa.Column("reply_to", sa.String(128), nullable=False, server_default=""),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("shown_revision", sa.Integer, nullable=False, server_default="0"),
    sa.Column("tried_revision", sa.Integer, nullable=False, server_default="0"),
    sa.Column("placed", sa.JSON),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("due_at", UtcTimestamp, nullable=False),
    sa.Column("error", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    sa.Column("updated_at", UtcTimestamp, nullable=False),
    sa.Index(None, "state", "due_at"),
    sa.Index(None, "chat_id", "id"),
)

# Maps platform messages to cards, for replies and presses.
placements = sa.Table(
    "placements",
    metadata,
    sa.Column("chat_id", sa.ForeignKey("chats.id"), primary_key=True),
    sa.Column("message_id", sa.String(128), primary_key=True),
    sa.Column("outbox_id", sa.ForeignKey("outbox.id"), nullable=False, index=True),
)

actions = sa.Table(
    "actions",
    metadata,
    sa.Column("token", sa.String(16), primary_key=True),
    sa.Column("card_key", sa.String(200), nullable=False, index=True),
    sa.Column("chat_id", sa.ForeignKey("chats.id"), nullable=False),
    sa.Column("action", sa.JSON, nullable=False),
    sa.Column("allowed", sa.JSON, nullable=False),
    sa.Column("single_use", sa.Boolean, nullable=False),
    sa.Column("expires_at", UtcTimestamp, nullable=False),
    sa.Column("used_by", sa.ForeignKey("people.id")),
    sa.Column("used_at", UtcTimestamp),
    # The press that settled it: a repeated delivery is not a second press.
    sa.Column("used_for", sa.BigInteger),
    sa.Column("retired", sa.Boolean, nullable=False, server_default=sa.text("false")),
)

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("source", sa.String(200), nullable=False, unique=True),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("instruction", sa.Text, nullable=False),
    sa.Column("priority", sa.String(16), nullable=False),
    sa.Column("rank", sa.Integer, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("status_reason", sa.Text, nullable=False, server_default=""),
    sa.Column("phase", sa.String(16), nullable=False),
    sa.Column("control", sa.String(16), nullable=False),
    # Interrupted work goes before new work of its priority.
    sa.Column("resumed_first", sa.Integer, nullable=False, server_default="1"),
    sa.Column("chat_id", sa.ForeignKey("chats.id"), nullable=False, index=True),
    sa.Column("reply_to", sa.String(128), nullable=False, server_default=""),
    sa.Column("created_by", sa.ForeignKey("people.id"), nullable=False),
    sa.Column("project_dir", sa.Text, nullable=False, server_default=""),
    sa.Column("model", sa.String(128), nullable=False, server_default=""),
    sa.Column("backend", sa.String(64), nullable=False, server_default=""),
    sa.Column("files", sa.JSON, nullable=False),
    sa.Column("graph_version", sa.Integer, nullable=False, server_default="0"),
    sa.Column("epoch", sa.Integer, nullable=False, server_default="0"),
    sa.Column("owner", sa.String(64), nullable=False, server_default=""),
    sa.Column("lease_until", UtcTimestamp),
    sa.Column("wake_at", UtcTimestamp),
    sa.Column("failures_in_row", sa.Integer, nullable=False, server_default="0"),
    sa.Column("replans", sa.Integer, nullable=False, server_default="0"),
    sa.Column("summary", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    # When it was last queued: tasks that waited too long go first.
    sa.Column("waiting_since", UtcTimestamp, nullable=False, server_default="0"),
    sa.Column("started_at", UtcTimestamp),
    sa.Column("ended_at", UtcTimestamp, index=True),
    sa.Column("errors", sa.Integer, nullable=False, server_default="0"),
    sa.Column("branch", sa.String(128), nullable=False, server_default=""),
    # Keeps other tasks out of `project_dir` until it ends; `let_in` may enter all the same. A task
    # done by a person (`outside`) is never claimed.
    sa.Column("holds_dir", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("let_in", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("outside", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("stage", sa.Text, nullable=False, server_default=""),
    sa.Column("tokens_before", sa.BigInteger),
    sa.Column("deleted_at", UtcTimestamp),
    sa.Column("persona", sa.String(64), nullable=False, server_default=""),
    sa.Column("cap", sa.String(32), nullable=False, server_default=""),
    sa.Column("use_memory", sa.Boolean, nullable=False, server_default=sa.true()),
    brought_by(),
    sa.Index("ix_tasks_queue", *_QUEUE),
    _partial("ix_tasks_aging", "waiting_since", "status = 'pending' AND rank > 1"),
    _partial("ix_tasks_wake", "wake_at", "wake_at IS NOT NULL"),
    _partial("ix_tasks_holders", "project_dir", "holds_dir"),
    # The head of each project's queue, so that a busy project is skipped without a scan.
    _partial("ix_tasks_heads", _PROJECT_QUEUE, _QUEUED),
    # The database enforces one running task per project directory.
    _partial("uq_tasks_running_project", "project_dir", _IN_PROJECT, unique=True),
)

task_logs = sa.Table(
    "task_logs",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("task_id", sa.ForeignKey("tasks.id"), nullable=False),
    # The message or step that wrote it: a repeat writes nothing.
    sa.Column("source", sa.String(200), nullable=False, unique=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("stage", sa.Text, nullable=False, server_default=""),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("file", sa.Text, nullable=False, server_default=""),
    sa.Column("person_id", sa.ForeignKey("people.id")),
    sa.Column("at", UtcTimestamp, nullable=False),
    sa.Index(None, "task_id", "id"),
)

task_graphs = sa.Table(
    "task_graphs",
    metadata,
    sa.Column("task_id", sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("body", sa.JSON, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("author", sa.String(32), nullable=False),
    sa.Column("at", UtcTimestamp, nullable=False),
)

node_runs = sa.Table(
    "node_runs",
    metadata,
    sa.Column("task_id", sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("path", sa.String(200), primary_key=True),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("output", sa.JSON, nullable=False),
    sa.Column("error", sa.Text, nullable=False, server_default=""),
    sa.Column("wake_at", UtcTimestamp),
    sa.Column("started_at", UtcTimestamp),
    sa.Column("ended_at", UtcTimestamp),
)

node_attempts = sa.Table(
    "node_attempts",
    metadata,
    sa.Column("task_id", sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("path", sa.String(200), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    # Stored before the paid call, so that a retry continues instead of paying again.
    sa.Column("session_id", sa.String(64), nullable=False, server_default=""),
    sa.Column("started_at", UtcTimestamp, nullable=False, index=True),
    sa.Column("ended_at", UtcTimestamp),
    sa.Column("error", sa.Text, nullable=False, server_default=""),
)

commands = sa.Table(
    "commands",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("source", sa.String(200), nullable=False, unique=True),
    sa.Column("task_id", sa.ForeignKey("tasks.id"), nullable=False, index=True),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("payload", sa.JSON, nullable=False),
    sa.Column("person_id", sa.ForeignKey("people.id")),
    sa.Column("at", UtcTimestamp, nullable=False),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("task_id", sa.ForeignKey("tasks.id"), nullable=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("text", sa.Text, nullable=False, server_default=""),
    sa.Column("at", UtcTimestamp, nullable=False),
    sa.Column("told_at", UtcTimestamp),
    sa.Index(None, "task_id", "id"),
    _partial("ix_events_untold", "id", "told_at IS NULL"),
)

approvals = sa.Table(
    "approvals",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("task_id", sa.ForeignKey("tasks.id"), index=True),
    sa.Column("path", sa.String(200), nullable=False, server_default=""),
    sa.Column("subject", sa.String(200), nullable=False, server_default=""),
    sa.Column("chat_id", sa.ForeignKey("chats.id"), nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False, server_default=""),
    sa.Column("command_hash", sa.String(64), nullable=False, server_default=""),
    sa.Column("payload", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("approvers", sa.JSON, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("decided_by", sa.ForeignKey("people.id")),
    sa.Column("decided_at", UtcTimestamp),
    # The event that settled it: a repeated delivery is not a second decision.
    sa.Column("decided_for", sa.String(200), nullable=False, server_default=""),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    sa.Column("expires_at", UtcTimestamp, nullable=False),
    sa.Index(None, "state", "chat_id"),
)

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("key", sa.String(200), nullable=False, index=True),
    sa.Column("backend", sa.String(64), nullable=False),
    sa.Column("model", sa.String(128), nullable=False),
    sa.Column("external_id", sa.String(128), nullable=False, server_default=""),
    # The persona whose CLI home stores the session.
    sa.Column("persona", sa.String(64), nullable=False, server_default=""),
    sa.Column("turns", sa.Integer, nullable=False, server_default="0"),
    sa.Column("tokens", sa.Integer, nullable=False, server_default="0"),
    # The request whose turn is stored in part, and the number of messages before that turn.
    sa.Column("open_turn", sa.String(64), nullable=False, server_default=""),
    sa.Column("open_turn_start", sa.Integer, nullable=False, server_default="0"),
    sa.Column("open_turn_heard", sa.Integer, nullable=False, server_default="0"),
    sa.Column("started_at", UtcTimestamp, nullable=False),
    sa.Column("last_used_at", UtcTimestamp, nullable=False),
    sa.Column("closed_at", UtcTimestamp),
)

messages = sa.Table(
    "messages",
    metadata,
    sa.Column("session_id", sa.ForeignKey("sessions.id"), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("content", sa.JSON, nullable=False),
    sa.Column("at", UtcTimestamp, nullable=False),
)

usage = sa.Table(
    "usage",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("at", UtcTimestamp, nullable=False, index=True),
    sa.Column("purpose", sa.String(16), nullable=False),
    sa.Column("backend", sa.String(64), nullable=False),
    sa.Column("model", sa.String(128), nullable=False),
    sa.Column("person_id", sa.ForeignKey("people.id"), index=True),
    sa.Column("chat_id", sa.ForeignKey("chats.id"), index=True),
    sa.Column("task_id", sa.ForeignKey("tasks.id"), index=True),
    sa.Column("requests", sa.Integer, nullable=False),
    sa.Column("input_tokens", sa.Integer, nullable=False),
    sa.Column("output_tokens", sa.Integer, nullable=False),
    sa.Column("cache_read_tokens", sa.Integer, nullable=False),
    sa.Column("cache_write_tokens", sa.Integer, nullable=False),
    # US dollars in millionths; null without a known price.
    sa.Column("cost_micros", sa.BigInteger),
    # The estimated part of the tokens: those of an answer or call that was cut off.
    sa.Column("estimated_tokens", sa.Integer, nullable=False, server_default="0"),
    brought_by(),
)

# Calls that a model service may bill although their answer never arrives.
pending_model_calls = sa.Table(
    "pending_model_calls",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("at", UtcTimestamp, nullable=False),
    sa.Column("purpose", sa.String(16), nullable=False),
    sa.Column("backend", sa.String(64), nullable=False),
    sa.Column("model", sa.String(128), nullable=False),
    sa.Column("person_id", sa.ForeignKey("people.id")),
    sa.Column("chat_id", sa.ForeignKey("chats.id")),
    sa.Column("task_id", sa.ForeignKey("tasks.id")),
    sa.Column("requests", sa.Integer, nullable=False),
    # With an upper bound for this call.
    sa.Column("input_tokens", sa.Integer, nullable=False),
    sa.Column("output_tokens", sa.Integer, nullable=False),
    sa.Column("cost_micros", sa.BigInteger),
    # The process that makes the call, what the run has used so far of what is not in `usage` yet,
    # and the most that it may have used after this call: both count against the caps.
    sa.Column("holder", sa.String(32), nullable=False, server_default=""),
    sa.Column("spent_micros", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("spent_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("reserved_micros", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("reserved_tokens", sa.BigInteger, nullable=False, server_default="0"),
)

# Approved extensions of caps. `day` is empty for a task's.
budget_grants = sa.Table(
    "budget_grants",
    metadata,
    sa.Column("approval_id", sa.ForeignKey("approvals.id"), primary_key=True),
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("subject", sa.String(64), nullable=False),
    sa.Column("day", sa.String(10), nullable=False, server_default=""),
    sa.Column("micros", sa.BigInteger, nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("at", UtcTimestamp, nullable=False),
    sa.Index(None, "scope", "subject", "day"),
)

marks = sa.Table(
    "marks",
    metadata,
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("value", sa.JSON, nullable=False),
)


# Every tool call from request to result: the audit log and the calls awaiting approval.
tool_calls = sa.Table(
    "tool_calls",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("session_id", sa.ForeignKey("sessions.id"), nullable=False),
    # The model's own id, unique within its session.
    sa.Column("call_id", sa.String(128), nullable=False),
    sa.Column("task_id", sa.ForeignKey("tasks.id"), index=True),
    sa.Column("path", sa.String(200), nullable=False, server_default=""),
    sa.Column("chat_id", sa.ForeignKey("chats.id")),
    sa.Column("person_id", sa.ForeignKey("people.id")),
    sa.Column("backend", sa.String(64), nullable=False),
    sa.Column("tool", sa.String(128), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    # The subject of a decision, masked: the exact command, or the change as a diff.
    sa.Column("detail", sa.Text, nullable=False, server_default=""),
    sa.Column("arguments", sa.JSON, nullable=False),
    # Covers the exact tool and arguments before masking.
    sa.Column("command_hash", sa.String(64), nullable=False),
    # Covers what the call would run or change, as it was when a person was asked.
    sa.Column("effect_hash", sa.String(64), nullable=False, server_default=""),
    sa.Column("verdict", sa.String(16), nullable=False),
    sa.Column("why", sa.Text, nullable=False, server_default=""),
    # The calls that a standing permission would cover; empty if none can be given.
    sa.Column("pattern", sa.Text, nullable=False, server_default=""),
    sa.Column("state", sa.String(16), nullable=False),
    # The session's transcript ends with this request; its next run starts with the answer.
    sa.Column("suspended", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("approval_id", sa.ForeignKey("approvals.id")),
    # A person's answer, or the reason for a rejection.
    sa.Column("answer", sa.Text, nullable=False, server_default=""),
    sa.Column("outcome", sa.Text, nullable=False, server_default=""),
    sa.Column("size", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("asked_at", UtcTimestamp, nullable=False),
    sa.Column("started_at", UtcTimestamp),
    sa.Column("ended_at", UtcTimestamp),
    sa.UniqueConstraint("session_id", "call_id"),
    sa.Index(
        "ix_tool_calls_suspended",
        "session_id",
        # On PostgreSQL the migration makes it partial: naming it here would load that dialect.
        sqlite_where=sa.text("suspended"),
    ),
)

# Standing permissions. `subject` is the id of a task or chat, empty for always.
tool_grants = sa.Table(
    "tool_grants",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("subject", sa.String(64), nullable=False, server_default=""),
    sa.Column("tool", sa.String(128), nullable=False),
    sa.Column("pattern", sa.Text, nullable=False),
    sa.Column("approval_id", sa.ForeignKey("approvals.id")),
    sa.Column("granted_by", sa.ForeignKey("people.id"), nullable=False),
    sa.Column("at", UtcTimestamp, nullable=False),
    sa.Column("revoked_at", UtcTimestamp),
    sa.Index(None, "scope", "subject", "tool"),
)

# Sub-agents. The row exists before the worker learns that the call was accepted.
helpers = sa.Table(
    "helpers",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    # The requesting call: a repeat gets the same sub-agent.
    sa.Column("source", sa.String(300), nullable=False, unique=True),
    sa.Column("parent_session", sa.ForeignKey("sessions.id"), nullable=False),
    # The user's message whose answer started it: that answer may be repeated.
    sa.Column("turn", sa.Text, nullable=False, server_default=""),
    sa.Column("session_id", sa.String(64), nullable=False, server_default=""),
    sa.Column("task_id", sa.ForeignKey("tasks.id"), index=True),
    sa.Column("path", sa.String(200), nullable=False, server_default=""),
    sa.Column("chat_id", sa.ForeignKey("chats.id"), nullable=False),
    sa.Column("person_id", sa.ForeignKey("people.id"), nullable=False),
    sa.Column("depth", sa.Integer, nullable=False),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("prompt", sa.Text, nullable=False),
    sa.Column("persona", sa.String(64), nullable=False, server_default=""),
    sa.Column("keep", sa.Boolean, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("result", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    sa.Column("started_at", UtcTimestamp),
    sa.Column("ended_at", UtcTimestamp),
    sa.Column("delivered_at", UtcTimestamp),
    # The process that runs it.
    sa.Column("holder", sa.String(32), nullable=False, server_default=""),
    sa.Index(None, "parent_session", "delivered_at"),
    sa.Index(None, "status"),
)

# Enabled skills by exact hash: changed files need a new decision.
skills = sa.Table(
    "skills",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("hash", sa.String(64), primary_key=True),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("decided_by", sa.ForeignKey("people.id"), nullable=False),
    sa.Column("decided_at", UtcTimestamp, nullable=False),
)

spans = sa.Table(
    "spans",
    metadata,
    sa.Column("span_id", sa.String(16), primary_key=True),
    sa.Column("trace_id", sa.String(32), nullable=False, index=True),
    sa.Column("parent_id", sa.String(16), nullable=False, server_default=""),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("task_id", sa.ForeignKey("tasks.id"), index=True),
    sa.Column("status", sa.String(16), nullable=False, server_default=""),
    sa.Column("attributes", sa.JSON, nullable=False),
    sa.Column("started_at", UtcTimestamp, nullable=False),
    sa.Column("ended_at", UtcTimestamp),
)

# Only schedules that fire have a due time.
_DUE = "next_due IS NOT NULL"
_RETRY = "retry_at IS NOT NULL"

schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("timing", sa.JSON, nullable=False),
    sa.Column("zone", sa.String(64), nullable=False),
    sa.Column("body", sa.JSON, nullable=False),
    sa.Column("owner_id", sa.ForeignKey("people.id"), nullable=False, index=True),
    sa.Column("chat_id", sa.ForeignKey("chats.id"), nullable=False, index=True),
    sa.Column("source", sa.String(220), nullable=False, unique=True),
    sa.Column("reply_to", sa.String(128), nullable=False, server_default=""),
    sa.Column("project_dir", sa.Text, nullable=False, server_default=""),
    sa.Column("model", sa.Text, nullable=False, server_default=""),
    sa.Column("backend", sa.String(64), nullable=False, server_default=""),
    sa.Column("persona", sa.String(64), nullable=False, server_default=""),
    sa.Column("cap", sa.String(32), nullable=False, server_default=""),
    sa.Column("use_memory", sa.Boolean, nullable=False),
    sa.Column("missed", sa.String(16), nullable=False),
    sa.Column("retries", sa.Integer, nullable=False),
    sa.Column("retry_seconds", sa.Float, nullable=False),
    sa.Column("respects_quiet_hours", sa.Boolean, nullable=False),
    sa.Column("next_due", UtcTimestamp),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    brought_by(),
    _partial("ix_schedules_due", "next_due id", _DUE),
)

firings = sa.Table(
    "firings",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("schedule_id", sa.ForeignKey("schedules.id"), nullable=False),
    sa.Column("due_at", UtcTimestamp, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("retry_at", UtcTimestamp),
    sa.Column("fired_at", UtcTimestamp, nullable=False, index=True),
    sa.Column("ended_at", UtcTimestamp),
    sa.Column("task_id", sa.ForeignKey("tasks.id"), index=True),
    sa.Column("note", sa.Text, nullable=False, server_default=""),
    sa.UniqueConstraint("schedule_id", "due_at"),
    _partial("ix_firings_retry", "retry_at id", _RETRY),
    sa.Index(None, "state"),
)
