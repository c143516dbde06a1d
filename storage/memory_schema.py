"""Defines the memory tables and converts entry rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage.db import record_from, row_from
from storage.dialect import RowNumber, UtcTimestamp
from storage.records.memory import (
    MAX_ENTRY_TEXT,
    MemoryEntry,
    MemoryOrigin,
    MemoryScope,
    MemoryStrength,
    NewMemoryEntry,
    text_hash,
)
from storage.schema import brought_by, metadata

memories = sa.Table(
    "memories",
    metadata,
    sa.Column("number", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(16), nullable=False, unique=True),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    # Hash of the text without spaces, case and punctuation, to recognize repetitions.
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("category", sa.String(16), nullable=False),
    sa.Column("label", sa.Text, nullable=False, server_default=""),
    sa.Column("abstract", sa.Text, nullable=False, server_default=""),
    sa.Column("overview", sa.Text, nullable=False, server_default=""),
    sa.Column("keywords", sa.JSON, nullable=False),
    sa.Column("importance", sa.Float, nullable=False),
    sa.Column("confidence", sa.Float, nullable=False),
    sa.Column("tier", sa.String(16), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("dynamic", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("key", sa.Text, nullable=False, server_default=""),
    sa.Column("origin", sa.String(16), nullable=False),
    # The conversation span, file line or import that it came from.
    sa.Column("source", sa.Text, unique=True),
    sa.Column("evidence", sa.JSON, nullable=False),
    sa.Column("sender", sa.Text, nullable=False, server_default=""),
    sa.Column("thread", sa.Text, nullable=False, server_default=""),
    sa.Column("person_id", sa.ForeignKey("people.id"), index=True),
    sa.Column("chat_id", sa.ForeignKey("chats.id")),
    sa.Column("task_id", sa.ForeignKey("tasks.id")),
    sa.Column("said_at", UtcTimestamp, nullable=False),
    sa.Column("valid_from", UtcTimestamp, nullable=False),
    sa.Column("valid_until", UtcTimestamp),
    sa.Column("invalidated_at", UtcTimestamp),
    sa.Column("supersedes", sa.String(16)),
    sa.Column("superseded_by", sa.String(16)),
    sa.Column("strength", sa.Float, nullable=False),
    sa.Column("stability", sa.Float, nullable=False),
    sa.Column("decay", sa.Float, nullable=False),
    sa.Column("reinforced", sa.Integer, nullable=False, server_default="0"),
    sa.Column("reinforced_at", UtcTimestamp),
    sa.Column("used", sa.Integer, nullable=False, server_default="0"),
    sa.Column("last_used_at", UtcTimestamp),
    sa.Column("shown", sa.Integer, nullable=False, server_default="0"),
    sa.Column("last_shown_at", UtcTimestamp),
    sa.Column("bad_recalls", sa.Integer, nullable=False, server_default="0"),
    sa.Column("suppressed_until", UtcTimestamp),
    sa.Column("extra", sa.JSON, nullable=False),
    brought_by(),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    sa.Column("updated_at", UtcTimestamp, nullable=False),
    sa.Index(None, "scope", "state", "kind"),
    sa.Index(None, "scope", "hash"),
    sa.Index(None, "scope", "key"),
    sa.Index(None, "scope", "thread", "said_at"),
)

# One number for each scope, and its totals for BM25.
memory_scopes = sa.Table(
    "memory_scopes",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("entries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("length", sa.Float, nullable=False, server_default="0"),
)

# Packed postings of a word in a block of 2,048 entries of a scope (search/inverted_index.py).
memory_postings = sa.Table(
    "memory_postings",
    metadata,
    sa.Column("scope_id", sa.ForeignKey("memory_scopes.id"), primary_key=True),
    sa.Column("block", sa.Integer, primary_key=True),
    sa.Column("term", sa.String(80), primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

# The length of each entry in a block, one byte each.
memory_blocks = sa.Table(
    "memory_blocks",
    metadata,
    sa.Column("scope_id", sa.ForeignKey("memory_scopes.id"), primary_key=True),
    sa.Column("block", sa.Integer, primary_key=True),
    sa.Column("lengths", sa.LargeBinary, nullable=False),
    sa.Index(None, "block"),
)

# Vectors of different models cannot be compared, so each model has its own.
memory_vectors = sa.Table(
    "memory_vectors",
    metadata,
    sa.Column("number", sa.ForeignKey("memories.number"), primary_key=True),
    sa.Column("model", sa.String(128), primary_key=True),
    sa.Column("scope_id", sa.ForeignKey("memory_scopes.id"), nullable=False),
    sa.Column("vector", sa.LargeBinary, nullable=False),
    sa.Index(None, "scope_id", "model"),
)

memory_links = sa.Table(
    "memory_links",
    metadata,
    sa.Column("one", sa.ForeignKey("memories.number"), primary_key=True),
    sa.Column("other", sa.ForeignKey("memories.number"), primary_key=True),
    sa.Column("kind", sa.String(16), primary_key=True),
    sa.Column("weight", sa.Float, nullable=False),
    sa.Index(None, "other"),
)

# A forgotten entry must not come back from a transcript.
memory_tombstones = sa.Table(
    "memory_tombstones",
    metadata,
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("hash", sa.String(64), primary_key=True),
    sa.Column("at", UtcTimestamp, nullable=False),
)

# Entries shown to a model for an answer: `/memory why`.
memory_uses = sa.Table(
    "memory_uses",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("session_id", sa.ForeignKey("sessions.id"), nullable=False),
    sa.Column("turn", sa.Integer, nullable=False),
    sa.Column("chat_id", sa.ForeignKey("chats.id"), index=True),
    sa.Column("task_id", sa.ForeignKey("tasks.id"), index=True),
    sa.Column("entry", sa.String(16), nullable=False),
    sa.Column("block", sa.String(16), nullable=False),
    sa.Column("score", sa.Float, nullable=False),
    sa.Column("parts", sa.JSON, nullable=False),
    sa.Column("at", UtcTimestamp, nullable=False),
    sa.Column("confirmed_at", UtcTimestamp),
    sa.UniqueConstraint("session_id", "turn", "entry"),
)

# Jobs on new cells, created in the same transaction, processed later and once.
memory_jobs = sa.Table(
    "memory_jobs",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("source", sa.Text, nullable=False, unique=True),
    sa.Column("payload", sa.JSON, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("due_at", UtcTimestamp, nullable=False),
    sa.Column("why", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    sa.Column("ended_at", UtcTimestamp),
    sa.Index(None, "state", "due_at"),
)

# A file as last written or read: the common base of both sides.
memory_files = sa.Table(
    "memory_files",
    metadata,
    sa.Column("path", sa.String(400), primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("at", UtcTimestamp, nullable=False),
)

# A summary of messages (`leaf`, depth 0) or of summaries (`condensed`).
summaries = sa.Table(
    "summaries",
    metadata,
    sa.Column("id", sa.String(24), primary_key=True),
    sa.Column("session_id", sa.ForeignKey("sessions.id"), nullable=False),
    sa.Column("depth", sa.Integer, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
    sa.Column("earliest_at", UtcTimestamp, nullable=False),
    sa.Column("latest_at", UtcTimestamp, nullable=False),
    sa.Column("descendants", sa.Integer, nullable=False),
    sa.Column("descendant_tokens", sa.Integer, nullable=False),
    sa.Column("source_tokens", sa.Integer, nullable=False),
    sa.Column("model", sa.String(128), nullable=False, server_default=""),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    sa.Index(None, "session_id", "depth"),
)

# Sources of a summary: messages of its session by number, or older summaries.
summary_sources = sa.Table(
    "summary_sources",
    metadata,
    sa.Column("summary_id", sa.ForeignKey("summaries.id"), primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("message", sa.Integer),
    sa.Column("part", sa.ForeignKey("summaries.id"), index=True),
)

# The model's view of a session, in order: these summaries, each replacing its messages up to
# `through`, then all later messages as they are.
context_items = sa.Table(
    "context_items",
    metadata,
    sa.Column("session_id", sa.ForeignKey("sessions.id"), primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("summary_id", sa.ForeignKey("summaries.id"), nullable=False),
    sa.Column("through", sa.Integer, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
)

# The text, role and length of each message: an index of `messages`.
message_texts = sa.Table(
    "message_texts",
    metadata,
    sa.Column("session_id", sa.ForeignKey("sessions.id"), primary_key=True),
    sa.Column("message", sa.Integer, primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
    sa.Column("at", UtcTimestamp, nullable=False),
    sa.Index(None, "session_id", "at"),
)


MANUAL_STABILITY_HOURS = 168.0
"""Hours, for entries written by hand."""


def entry_from_row(row: sa.Row[Any]) -> MemoryEntry:
    return record_from(
        MemoryEntry,
        row,
        scope=MemoryScope.parse(row.scope),
        keywords=tuple(row.keywords),
        evidence=tuple(row.evidence),
        person=row.person_id,
        chat=row.chat_id,
        task=row.task_id,
        strength=record_from(MemoryStrength, row, value=row.strength),
    )


def new_entry_row(new: NewMemoryEntry, *, id: str, now: datetime) -> dict[str, Any]:
    by_hand = new.origin is MemoryOrigin.MANUAL
    said = new.said_at or now
    return _shared_values(new) | {
        "id": id,
        "revision": 1,
        "said_at": said,
        "valid_from": new.valid_from or said,
        "strength": 100.0,
        "stability": MANUAL_STABILITY_HOURS if by_hand else MemoryStrength().stability,
        "decay": 1.0,
        "created_at": now,
        "updated_at": now,
    }


def entry_update_values(entry: MemoryEntry) -> dict[str, Any]:
    """All columns except those that never change: number, id, source and creation time."""
    values = _shared_values(entry) | row_from(entry.strength)
    values["strength"] = values.pop("value")
    for fixed in ("number", "id", "source", "created_at"):
        del values[fixed]
    return values


def _shared_values(entry: MemoryEntry | NewMemoryEntry) -> dict[str, Any]:
    values = row_from(entry)
    for name in ("person", "chat", "task"):
        values[f"{name}_id"] = values.pop(name)
    for name in ("text", "abstract", "overview"):
        values[name] = values[name][:MAX_ENTRY_TEXT]
    return values | {"scope": str(entry.scope), "hash": text_hash(values["text"])}
