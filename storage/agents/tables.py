"""Tables of workers: their calls of tools, what people allowed them, helpers, skills, spans."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

from storage.dialect import Instant, RowNumber
from storage.schema import metadata

__all__ = ["helpers", "metadata", "skills", "spans", "tool_calls", "tool_grants", "workers"]

# Every call of a tool, from the model's wish to its outcome: the audit, and what waits for leave.
tool_calls = Table(
    "tool_calls",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("session_id", ForeignKey("sessions.id"), nullable=False),
    # The model's own number for it, unique within its session.
    Column("call_id", String(128), nullable=False),
    Column("task_id", ForeignKey("tasks.id"), index=True),
    Column("path", String(200), nullable=False, server_default=""),
    Column("chat_id", ForeignKey("chats.id")),
    Column("person_id", ForeignKey("people.id")),
    Column("backend", String(64), nullable=False),
    Column("tool", String(128), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("title", Text, nullable=False),
    # What a person decides about, masked: the exact command, or the change as a diff.
    Column("detail", Text, nullable=False, server_default=""),
    Column("arguments", JSON, nullable=False),
    # Of the exact tool and arguments, before masking.
    Column("command_hash", String(64), nullable=False),
    Column("verdict", String(16), nullable=False),
    Column("why", Text, nullable=False, server_default=""),
    # What leave for more than this one call would cover; empty where that cannot be given.
    Column("pattern", Text, nullable=False, server_default=""),
    Column("state", String(16), nullable=False),
    # Its session's transcript ends with this wish: the next run there begins with its answer.
    Column("suspended", Boolean, nullable=False, server_default=false()),
    Column("approval_id", ForeignKey("approvals.id")),
    # What a person said to it: an answer, or why not.
    Column("answer", Text, nullable=False, server_default=""),
    Column("outcome", Text, nullable=False, server_default=""),
    Column("size", BigInteger, nullable=False, server_default="0"),
    Column("asked_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("ended_at", Instant),
    UniqueConstraint("session_id", "call_id"),
    Index(
        "ix_tool_calls_suspended",
        "session_id",
        # On PostgreSQL it is partial by its migration: named here, SQLAlchemy loads that dialect.
        sqlite_where=text("suspended"),
    ),
)

# What people allowed beyond one call. `subject` is a task's or a chat's id, empty for always.
tool_grants = Table(
    "tool_grants",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("scope", String(16), nullable=False),
    Column("subject", String(64), nullable=False, server_default=""),
    Column("tool", String(128), nullable=False),
    Column("pattern", Text, nullable=False),
    Column("approval_id", ForeignKey("approvals.id")),
    Column("granted_by", ForeignKey("people.id"), nullable=False),
    Column("at", Instant, nullable=False),
    Column("revoked_at", Instant),
    Index(None, "scope", "subject", "tool"),
)

# Helpers that a worker has sent off. The row is there before the worker is told “accepted”.
helpers = Table(
    "helpers",
    metadata,
    Column("id", String(16), primary_key=True),
    # The call that asked for it: asked again, it is the same helper.
    Column("source", String(300), nullable=False, unique=True),
    Column("parent_session", ForeignKey("sessions.id"), nullable=False),
    # What was said in the chat whose answer asked for it: that answer may be made anew.
    Column("turn", Text, nullable=False, server_default=""),
    Column("session_id", String(64), nullable=False, server_default=""),
    Column("task_id", ForeignKey("tasks.id"), index=True),
    Column("path", String(200), nullable=False, server_default=""),
    Column("chat_id", ForeignKey("chats.id"), nullable=False),
    Column("person_id", ForeignKey("people.id"), nullable=False),
    Column("depth", Integer, nullable=False),
    Column("label", Text, nullable=False),
    Column("prompt", Text, nullable=False),
    Column("persona", String(64), nullable=False, server_default=""),
    Column("keep", Boolean, nullable=False),
    Column("status", String(16), nullable=False),
    Column("result", Text, nullable=False, server_default=""),
    Column("created_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("ended_at", Instant),
    Column("delivered_at", Instant),
    Index(None, "parent_session", "delivered_at"),
    Index(None, "status"),
)

# Which skills an owner has let in, as they were then: another hash is another skill.
skills = Table(
    "skills",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("hash", String(64), primary_key=True),
    Column("source", Text, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("decided_by", ForeignKey("people.id"), nullable=False),
    Column("decided_at", Instant, nullable=False),
)

workers = Table(
    "workers",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("host", String(128), nullable=False),
    Column("slots", Integer, nullable=False),
    Column("seen_at", Instant, nullable=False),
)

spans = Table(
    "spans",
    metadata,
    Column("span_id", String(16), primary_key=True),
    Column("trace_id", String(32), nullable=False, index=True),
    Column("parent_id", String(16), nullable=False, server_default=""),
    Column("name", Text, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("task_id", ForeignKey("tasks.id"), index=True),
    Column("status", String(16), nullable=False, server_default=""),
    Column("attributes", JSON, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("ended_at", Instant),
)
