"""Defines the tables of what Shiftboss does by itself: heartbeats, self-checks and versions of
prompts."""

from __future__ import annotations

import sqlalchemy as sa

from storage.dialect import RowNumber, UtcTimestamp
from storage.schema import brought_by, metadata

heartbeat_runs = sa.Table(
    "heartbeat_runs",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("reasons", sa.JSON, nullable=False),
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("started_at", UtcTimestamp, nullable=False),
    sa.Column("ended_at", UtcTimestamp),
    sa.Column("session_id", sa.String(64), nullable=False, server_default=""),
    sa.Column("text", sa.Text, nullable=False, server_default=""),
    sa.Column("claims", sa.JSON, nullable=False),
    sa.Column("to_tick", sa.JSON, nullable=False),
    sa.Column("note", sa.Text, nullable=False, server_default=""),
)
# Each run of the self-check.
self_check_runs = sa.Table(
    "self_check_runs",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("at", UtcTimestamp, nullable=False, index=True),
    sa.Column("score", sa.Integer, nullable=False),
    sa.Column("results", sa.JSON, nullable=False),
    sa.Column("repairs", sa.JSON, nullable=False),
)

# Problems that the self-check tells owners of, each once: one row lasts for each key.
incidents = sa.Table(
    "incidents",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("key", sa.String(220), nullable=False),
    sa.Column("check_name", sa.String(32), nullable=False),
    sa.Column("finding", sa.JSON, nullable=False),
    sa.Column("opened_at", UtcTimestamp, nullable=False),
    sa.Column("absent_since", UtcTimestamp),
    sa.Column("ended_at", UtcTimestamp),
    sa.Column("reopened", sa.Integer, nullable=False, server_default="0"),
    sa.Column("task_id", sa.ForeignKey("tasks.id")),
    sa.Index(None, "key", "ended_at"),
    sa.Index("uq_incidents_lasting", "key", unique=True, sqlite_where=sa.text("ended_at IS NULL")),
)


def _unique(name: str, where: str) -> sa.Index:
    return sa.Index(name, "kind", "name", unique=True, sqlite_where=sa.text(where))


prompt_versions = sa.Table(
    "prompt_versions",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("base_hash", sa.String(64), nullable=False),
    sa.Column("parent", sa.Integer, nullable=False),
    sa.Column("parent_content", sa.Text, nullable=False),
    sa.Column("author", sa.String(32), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("signal", sa.JSON, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("share", sa.Integer, nullable=False),
    sa.Column("end_reason", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    sa.Column("trial_since", UtcTimestamp),
    sa.Column("active_since", UtcTimestamp),
    sa.Column("ended_at", UtcTimestamp),
    sa.UniqueConstraint("kind", "name", "number"),
    # The database enforces one change at a time, and one version in effect.
    _unique("uq_prompt_versions_open", "state IN ('draft', 'trial')"),
    _unique("uq_prompt_versions_active", "state IN ('active')"),
)

# An attempt without a row used the text as it was written. Rows with an empty path are of the task
# as a whole.
attempt_versions = sa.Table(
    "attempt_versions",
    metadata,
    sa.Column("task_id", sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("path", sa.String(200), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("kind", sa.String(16), primary_key=True),
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("version_id", sa.ForeignKey("prompt_versions.id")),
    sa.Index(None, "kind", "name"),
)

evolution_signals = sa.Table(
    "evolution_signals",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("figures", sa.JSON, nullable=False),
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("note", sa.Text, nullable=False, server_default=""),
    sa.Column("fired_at", UtcTimestamp, nullable=False),
    sa.Index(None, "kind", "fired_at"),
)

# What starts a named workflow besides people and schedules. Only the hash of a token is stored.
triggers = sa.Table(
    "triggers",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("workflow", sa.String(64), nullable=False),
    sa.Column("chat_id", sa.ForeignKey("chats.id"), nullable=False),
    sa.Column("owner_id", sa.ForeignKey("people.id"), nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column("token_hash", sa.String(64), unique=True),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    brought_by(),
)

# One row for each event, in the transaction that creates its task.
trigger_firings = sa.Table(
    "trigger_firings",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("trigger_id", sa.ForeignKey("triggers.id"), nullable=False),
    sa.Column("key", sa.String(200), nullable=False),
    sa.Column("task_id", sa.ForeignKey("tasks.id")),
    sa.Column("note", sa.Text, nullable=False, server_default=""),
    sa.Column("fired_at", UtcTimestamp, nullable=False),
    sa.UniqueConstraint("trigger_id", "key"),
)
