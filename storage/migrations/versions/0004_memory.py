"""Adds memory entries with their indexes, usage, jobs and summaries, and the turn of a chat that
has started a sub-agent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import RowNumber, UtcTimestamp

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    with op.batch_alter_table("helpers") as table:
        table.add_column(sa.Column("turn", sa.Text(), server_default="", nullable=False))
    _add_memory_files()
    _add_memory_jobs()
    _add_memory_scopes()
    _add_memory_tombstones()
    _add_memory_postings()
    _add_memory_blocks()
    _add_message_texts()
    _add_summaries()
    _add_context_items()
    _add_summary_sources()
    _add_memories()
    _add_memory_uses()
    _add_memory_links()
    _add_memory_vectors()


def _add_memory_files() -> None:
    op.create_table(
        "memory_files",
        sa.Column("path", sa.String(length=400), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("at", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("path", name="pk_memory_files"),
    )


def _add_memory_jobs() -> None:
    op.create_table(
        "memory_jobs",
        sa.Column("id", RowNumber, autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("due_at", UtcTimestamp(), nullable=False),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", UtcTimestamp(), nullable=False),
        sa.Column("ended_at", UtcTimestamp(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_memory_jobs"),
        sa.UniqueConstraint("source", name="uq_memory_jobs_source"),
    )
    op.create_index("ix_memory_jobs_state_due_at", "memory_jobs", ["state", "due_at"])


def _add_memory_scopes() -> None:
    op.create_table(
        "memory_scopes",
        sa.Column("id", RowNumber, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("entries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("length", sa.Float(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_memory_scopes"),
        sa.UniqueConstraint("name", name="uq_memory_scopes_name"),
    )


def _add_memory_tombstones() -> None:
    op.create_table(
        "memory_tombstones",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("at", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "hash", name="pk_memory_tombstones"),
    )


def _add_memory_postings() -> None:
    op.create_table(
        "memory_postings",
        sa.Column("scope_id", RowNumber, nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column("term", sa.String(length=80), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["scope_id"], ["memory_scopes.id"], name="fk_memory_postings_scope_id"
        ),
        sa.PrimaryKeyConstraint("scope_id", "block", "term", name="pk_memory_postings"),
        sqlite_with_rowid=False,
    )


def _add_memory_blocks() -> None:
    op.create_table(
        "memory_blocks",
        sa.Column("scope_id", RowNumber, nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column("lengths", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["scope_id"], ["memory_scopes.id"], name="fk_memory_blocks_scope_id"
        ),
        sa.PrimaryKeyConstraint("scope_id", "block", name="pk_memory_blocks"),
    )
    op.create_index("ix_memory_blocks_block", "memory_blocks", ["block"])


def _add_message_texts() -> None:
    op.create_table(
        "message_texts",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("message", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("at", UtcTimestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name="fk_message_texts_session_id"
        ),
        sa.PrimaryKeyConstraint("session_id", "message", "ordinal", name="pk_message_texts"),
    )
    op.create_index("ix_message_texts_session_id_at", "message_texts", ["session_id", "at"])


def _add_summaries() -> None:
    op.create_table(
        "summaries",
        sa.Column("id", sa.String(length=24), nullable=False),
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("earliest_at", UtcTimestamp(), nullable=False),
        sa.Column("latest_at", UtcTimestamp(), nullable=False),
        sa.Column("descendants", sa.Integer(), nullable=False),
        sa.Column("descendant_tokens", sa.Integer(), nullable=False),
        sa.Column("source_tokens", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(length=128), server_default="", nullable=False),
        sa.Column("created_at", UtcTimestamp(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_summaries_session_id"),
        sa.PrimaryKeyConstraint("id", name="pk_summaries"),
    )
    op.create_index("ix_summaries_session_id_depth", "summaries", ["session_id", "depth"])


def _add_context_items() -> None:
    op.create_table(
        "context_items",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("summary_id", sa.String(length=24), nullable=False),
        sa.Column("through", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name="fk_context_items_session_id"
        ),
        sa.ForeignKeyConstraint(
            ["summary_id"], ["summaries.id"], name="fk_context_items_summary_id"
        ),
        sa.PrimaryKeyConstraint("session_id", "ordinal", name="pk_context_items"),
    )


def _add_summary_sources() -> None:
    op.create_table(
        "summary_sources",
        sa.Column("summary_id", sa.String(length=24), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("message", sa.Integer(), nullable=True),
        sa.Column("part", sa.String(length=24), nullable=True),
        sa.ForeignKeyConstraint(["part"], ["summaries.id"], name="fk_summary_sources_part"),
        sa.ForeignKeyConstraint(
            ["summary_id"], ["summaries.id"], name="fk_summary_sources_summary_id"
        ),
        sa.PrimaryKeyConstraint("summary_id", "ordinal", name="pk_summary_sources"),
    )
    op.create_index("ix_summary_sources_part", "summary_sources", ["part"])


def _add_memories() -> None:
    op.create_table(
        "memories",
        sa.Column("number", RowNumber, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("category", sa.String(length=16), nullable=False),
        sa.Column("label", sa.Text(), server_default="", nullable=False),
        sa.Column("abstract", sa.Text(), server_default="", nullable=False),
        sa.Column("overview", sa.Text(), server_default="", nullable=False),
        sa.Column("keywords", sa.JSON(), nullable=False),
        sa.Column("importance", sa.Float(), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("tier", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("dynamic", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("pinned", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("key", sa.Text(), server_default="", nullable=False),
        sa.Column("origin", sa.String(length=16), nullable=False),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("sender", sa.Text(), server_default="", nullable=False),
        sa.Column("thread", sa.Text(), server_default="", nullable=False),
        sa.Column("person_id", sa.String(length=16), nullable=True),
        sa.Column("chat_id", sa.String(length=16), nullable=True),
        sa.Column("task_id", sa.String(length=16), nullable=True),
        sa.Column("said_at", UtcTimestamp(), nullable=False),
        sa.Column("valid_from", UtcTimestamp(), nullable=False),
        sa.Column("valid_until", UtcTimestamp(), nullable=True),
        sa.Column("invalidated_at", UtcTimestamp(), nullable=True),
        sa.Column("supersedes", sa.String(length=16), nullable=True),
        sa.Column("superseded_by", sa.String(length=16), nullable=True),
        sa.Column("strength", sa.Float(), nullable=False),
        sa.Column("stability", sa.Float(), nullable=False),
        sa.Column("decay", sa.Float(), nullable=False),
        sa.Column("reinforced", sa.Integer(), server_default="0", nullable=False),
        sa.Column("reinforced_at", UtcTimestamp(), nullable=True),
        sa.Column("used", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_used_at", UtcTimestamp(), nullable=True),
        sa.Column("shown", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_shown_at", UtcTimestamp(), nullable=True),
        sa.Column("bad_recalls", sa.Integer(), server_default="0", nullable=False),
        sa.Column("suppressed_until", UtcTimestamp(), nullable=True),
        sa.Column("extra", sa.JSON(), nullable=False),
        sa.Column("created_at", UtcTimestamp(), nullable=False),
        sa.Column("updated_at", UtcTimestamp(), nullable=False),
        sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name="fk_memories_chat_id"),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name="fk_memories_person_id"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name="fk_memories_task_id"),
        sa.PrimaryKeyConstraint("number", name="pk_memories"),
        sa.UniqueConstraint("id", name="uq_memories_id"),
        sa.UniqueConstraint("source", name="uq_memories_source"),
    )
    op.create_index("ix_memories_person_id", "memories", ["person_id"])
    op.create_index("ix_memories_scope_hash", "memories", ["scope", "hash"])
    op.create_index("ix_memories_scope_key", "memories", ["scope", "key"])
    op.create_index("ix_memories_scope_state_kind", "memories", ["scope", "state", "kind"])
    op.create_index("ix_memories_scope_thread_said_at", "memories", ["scope", "thread", "said_at"])


def _add_memory_uses() -> None:
    op.create_table(
        "memory_uses",
        sa.Column("id", RowNumber, autoincrement=True, nullable=False),
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("chat_id", sa.String(length=16), nullable=True),
        sa.Column("task_id", sa.String(length=16), nullable=True),
        sa.Column("entry", sa.String(length=16), nullable=False),
        sa.Column("block", sa.String(length=16), nullable=False),
        sa.Column("score", sa.Float(), nullable=False),
        sa.Column("parts", sa.JSON(), nullable=False),
        sa.Column("at", UtcTimestamp(), nullable=False),
        sa.Column("confirmed_at", UtcTimestamp(), nullable=True),
        sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name="fk_memory_uses_chat_id"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_memory_uses_session_id"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name="fk_memory_uses_task_id"),
        sa.PrimaryKeyConstraint("id", name="pk_memory_uses"),
        sa.UniqueConstraint(
            "session_id", "turn", "entry", name="uq_memory_uses_session_id_turn_entry"
        ),
    )
    op.create_index("ix_memory_uses_chat_id", "memory_uses", ["chat_id"])
    op.create_index("ix_memory_uses_task_id", "memory_uses", ["task_id"])


def _add_memory_links() -> None:
    op.create_table(
        "memory_links",
        sa.Column("one", RowNumber, nullable=False),
        sa.Column("other", RowNumber, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["one"], ["memories.number"], name="fk_memory_links_one"),
        sa.ForeignKeyConstraint(["other"], ["memories.number"], name="fk_memory_links_other"),
        sa.PrimaryKeyConstraint("one", "other", "kind", name="pk_memory_links"),
    )
    op.create_index("ix_memory_links_other", "memory_links", ["other"])


def _add_memory_vectors() -> None:
    op.create_table(
        "memory_vectors",
        sa.Column("number", RowNumber, nullable=False),
        sa.Column("model", sa.String(length=128), nullable=False),
        sa.Column("scope_id", RowNumber, nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["number"], ["memories.number"], name="fk_memory_vectors_number"),
        sa.ForeignKeyConstraint(
            ["scope_id"], ["memory_scopes.id"], name="fk_memory_vectors_scope_id"
        ),
        sa.PrimaryKeyConstraint("number", "model", name="pk_memory_vectors"),
    )
    op.create_index("ix_memory_vectors_scope_id_model", "memory_vectors", ["scope_id", "model"])
