"""Tables of what is remembered: entries, their indexes and links, what was used, what is to do."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

from storage.agents.tables import metadata
from storage.dialect import Instant, RowNumber

__all__ = ["metadata"]

memories = Table(
    "memories",
    metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=True),
    Column("id", String(16), nullable=False, unique=True),
    Column("revision", Integer, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("scope", Text, nullable=False),
    Column("text", Text, nullable=False),
    # The text without spaces, case and punctuation, hashed: the same words again are the same.
    Column("hash", String(64), nullable=False),
    Column("category", String(16), nullable=False),
    Column("label", Text, nullable=False, server_default=""),
    Column("abstract", Text, nullable=False, server_default=""),
    Column("overview", Text, nullable=False, server_default=""),
    Column("keywords", JSON, nullable=False),
    Column("importance", Float, nullable=False),
    Column("confidence", Float, nullable=False),
    Column("tier", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("dynamic", Boolean, nullable=False, server_default=false()),
    Column("pinned", Boolean, nullable=False, server_default=false()),
    Column("key", Text, nullable=False, server_default=""),
    Column("origin", String(16), nullable=False),
    # The span of a conversation, the line of a file or the import that it came from.
    Column("source", Text, unique=True),
    Column("evidence", JSON, nullable=False),
    Column("sender", Text, nullable=False, server_default=""),
    Column("thread", Text, nullable=False, server_default=""),
    Column("person_id", ForeignKey("people.id"), index=True),
    Column("chat_id", ForeignKey("chats.id")),
    Column("task_id", ForeignKey("tasks.id")),
    Column("said_at", Instant, nullable=False),
    Column("valid_from", Instant, nullable=False),
    Column("valid_until", Instant),
    Column("invalidated_at", Instant),
    Column("supersedes", String(16)),
    Column("superseded_by", String(16)),
    Column("strength", Float, nullable=False),
    Column("stability", Float, nullable=False),
    Column("decay", Float, nullable=False),
    Column("reinforced", Integer, nullable=False, server_default="0"),
    Column("reinforced_at", Instant),
    Column("used", Integer, nullable=False, server_default="0"),
    Column("last_used_at", Instant),
    Column("shown", Integer, nullable=False, server_default="0"),
    Column("last_shown_at", Instant),
    Column("bad_recalls", Integer, nullable=False, server_default="0"),
    Column("suppressed_until", Instant),
    Column("extra", JSON, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index(None, "scope", "state", "kind"),
    Index(None, "scope", "hash"),
    Index(None, "scope", "key"),
    Index(None, "scope", "thread", "said_at"),
)

# One number for each scope, and what BM25 must know of it as a whole.
memory_scopes = Table(
    "memory_scopes",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False, unique=True),
    Column("entries", Integer, nullable=False, server_default="0"),
    Column("length", Float, nullable=False, server_default="0"),
)

# Entries stand in blocks of 2,048 by their number. Which of a block's entries of a scope have a
# word and how often, packed (storage/memory/bm25/blocks.py).
memory_postings = Table(
    "memory_postings",
    metadata,
    Column("scope_id", ForeignKey("memory_scopes.id"), primary_key=True),
    Column("block", Integer, primary_key=True),
    Column("term", String(80), primary_key=True),
    Column("data", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

# How long each entry of a block is, one byte each.
memory_blocks = Table(
    "memory_blocks",
    metadata,
    Column("scope_id", ForeignKey("memory_scopes.id"), primary_key=True),
    Column("block", Integer, primary_key=True),
    Column("lengths", LargeBinary, nullable=False),
    Index(None, "block"),
)

# Of each model its own: vectors of two models cannot be compared.
memory_vectors = Table(
    "memory_vectors",
    metadata,
    Column("number", ForeignKey("memories.number"), primary_key=True),
    Column("model", String(128), primary_key=True),
    Column("scope_id", ForeignKey("memory_scopes.id"), nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Index(None, "scope_id", "model"),
)

memory_links = Table(
    "memory_links",
    metadata,
    Column("one", ForeignKey("memories.number"), primary_key=True),
    Column("other", ForeignKey("memories.number"), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("weight", Float, nullable=False),
    Index(None, "other"),
)

# What was forgotten on somebody's word must not come back out of a transcript.
memory_tombstones = Table(
    "memory_tombstones",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("hash", String(64), primary_key=True),
    Column("at", Instant, nullable=False),
)

# Which entries stood before a model when it answered: `/memory why`.
memory_uses = Table(
    "memory_uses",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("session_id", ForeignKey("sessions.id"), nullable=False),
    Column("turn", Integer, nullable=False),
    Column("chat_id", ForeignKey("chats.id"), index=True),
    Column("task_id", ForeignKey("tasks.id"), index=True),
    Column("entry", String(16), nullable=False),
    Column("block", String(16), nullable=False),
    Column("score", Float, nullable=False),
    Column("parts", JSON, nullable=False),
    Column("at", Instant, nullable=False),
    Column("confirmed_at", Instant),
    UniqueConstraint("session_id", "turn", "entry"),
)

# What is still to be done with what was said: written with it, done later, once.
memory_jobs = Table(
    "memory_jobs",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("kind", String(16), nullable=False),
    Column("source", Text, nullable=False, unique=True),
    Column("payload", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("due_at", Instant, nullable=False),
    Column("why", Text, nullable=False, server_default=""),
    Column("created_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Index(None, "state", "due_at"),
)

# A file as it was last written by us or read from a person: what both sides began from.
memory_files = Table(
    "memory_files",
    metadata,
    Column("path", String(400), primary_key=True),
    Column("body", Text, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("at", Instant, nullable=False),
)

# A summary of messages (`leaf`, depth 0) or of summaries (`condensed`).
summaries = Table(
    "summaries",
    metadata,
    Column("id", String(24), primary_key=True),
    Column("session_id", ForeignKey("sessions.id"), nullable=False),
    Column("depth", Integer, nullable=False),
    Column("content", Text, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("earliest_at", Instant, nullable=False),
    Column("latest_at", Instant, nullable=False),
    Column("descendants", Integer, nullable=False),
    Column("descendant_tokens", Integer, nullable=False),
    Column("source_tokens", Integer, nullable=False),
    Column("model", String(128), nullable=False, server_default=""),
    Column("created_at", Instant, nullable=False),
    Index(None, "session_id", "depth"),
)

# What a summary was made of: messages of its session by their number, or older summaries.
summary_sources = Table(
    "summary_sources",
    metadata,
    Column("summary_id", ForeignKey("summaries.id"), primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("message", Integer),
    Column("part", ForeignKey("summaries.id"), index=True),
)

# What a model sees of a session, in order: these summaries, each in the place of its messages up
# to `through`, and then all later messages as they are.
context_items = Table(
    "context_items",
    metadata,
    Column("session_id", ForeignKey("sessions.id"), primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("summary_id", ForeignKey("summaries.id"), nullable=False),
    Column("through", Integer, nullable=False),
    Column("tokens", Integer, nullable=False),
)

# The words of each message, who said them and how long they are: a view of `messages`.
message_texts = Table(
    "message_texts",
    metadata,
    Column("session_id", ForeignKey("sessions.id"), primary_key=True),
    Column("message", Integer, primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("role", String(16), nullable=False),
    Column("text", Text, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("at", Instant, nullable=False),
    Index(None, "session_id", "at"),
)
