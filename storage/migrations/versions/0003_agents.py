"""Adds personas, tool calls, standing permissions, sub-agents and skills."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import RowNumber, UtcTimestamp

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("tasks") as table:
        table.add_column(sa.Column("persona", sa.String(64), server_default="", nullable=False))
    with op.batch_alter_table("sessions") as table:
        table.add_column(sa.Column("persona", sa.String(64), server_default="", nullable=False))
    queued = sa.text("status = 'pending' AND NOT outside")
    op.create_index(
        "ix_tasks_heads",
        "tasks",
        ["project_dir", "let_in", "rank", "resumed_first", "created_at", "id"],
        sqlite_where=queued,
        postgresql_where=queued,
    )
    _add_tool_calls()
    _add_tool_grants()
    _add_helpers()
    _add_skills()


def _add_tool_calls() -> None:
    suspended_ones = sa.text("suspended")
    op.create_table(
        "tool_calls",
        sa.Column("id", RowNumber, autoincrement=True, nullable=False),
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("call_id", sa.String(128), nullable=False),
        sa.Column("task_id", sa.String(16), nullable=True),
        sa.Column("path", sa.String(200), server_default="", nullable=False),
        sa.Column("chat_id", sa.String(16), nullable=True),
        sa.Column("person_id", sa.String(16), nullable=True),
        sa.Column("backend", sa.String(64), nullable=False),
        sa.Column("tool", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), server_default="", nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("command_hash", sa.String(64), nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.Column("pattern", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("suspended", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("approval_id", sa.String(16), nullable=True),
        sa.Column("answer", sa.Text(), server_default="", nullable=False),
        sa.Column("outcome", sa.Text(), server_default="", nullable=False),
        sa.Column("size", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("asked_at", UtcTimestamp(), nullable=False),
        sa.Column("started_at", UtcTimestamp(), nullable=True),
        sa.Column("ended_at", UtcTimestamp(), nullable=True),
        *_references("tool_calls", "session_id task_id chat_id person_id approval_id"),
        sa.PrimaryKeyConstraint("id", name="pk_tool_calls"),
        sa.UniqueConstraint("session_id", "call_id", name="uq_tool_calls_session_id_call_id"),
    )
    op.create_index("ix_tool_calls_task_id", "tool_calls", ["task_id"])
    op.create_index(
        "ix_tool_calls_suspended",
        "tool_calls",
        ["session_id"],
        sqlite_where=suspended_ones,
        postgresql_where=suspended_ones,
    )


def _add_tool_grants() -> None:
    op.create_table(
        "tool_grants",
        sa.Column("id", RowNumber, autoincrement=True, nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("subject", sa.String(64), server_default="", nullable=False),
        sa.Column("tool", sa.String(128), nullable=False),
        sa.Column("pattern", sa.Text(), nullable=False),
        sa.Column("approval_id", sa.String(16), nullable=True),
        sa.Column("granted_by", sa.String(16), nullable=False),
        sa.Column("at", UtcTimestamp(), nullable=False),
        sa.Column("revoked_at", UtcTimestamp(), nullable=True),
        *_references("tool_grants", "approval_id granted_by"),
        sa.PrimaryKeyConstraint("id", name="pk_tool_grants"),
    )
    op.create_index(
        "ix_tool_grants_scope_subject_tool", "tool_grants", ["scope", "subject", "tool"]
    )


def _add_helpers() -> None:
    op.create_table(
        "helpers",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("source", sa.String(300), nullable=False),
        sa.Column("parent_session", sa.String(64), nullable=False),
        sa.Column("session_id", sa.String(64), server_default="", nullable=False),
        sa.Column("task_id", sa.String(16), nullable=True),
        sa.Column("path", sa.String(200), server_default="", nullable=False),
        sa.Column("chat_id", sa.String(16), nullable=False),
        sa.Column("person_id", sa.String(16), nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("persona", sa.String(64), server_default="", nullable=False),
        sa.Column("keep", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("result", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", UtcTimestamp(), nullable=False),
        sa.Column("started_at", UtcTimestamp(), nullable=True),
        sa.Column("ended_at", UtcTimestamp(), nullable=True),
        sa.Column("delivered_at", UtcTimestamp(), nullable=True),
        *_references("helpers", "parent_session task_id chat_id person_id"),
        sa.PrimaryKeyConstraint("id", name="pk_helpers"),
        sa.UniqueConstraint("source", name="uq_helpers_source"),
    )
    op.create_index("ix_helpers_task_id", "helpers", ["task_id"])
    op.create_index("ix_helpers_status", "helpers", ["status"])
    op.create_index(
        "ix_helpers_parent_session_delivered_at", "helpers", ["parent_session", "delivered_at"]
    )


def _add_skills() -> None:
    op.create_table(
        "skills",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("decided_by", sa.String(16), nullable=False),
        sa.Column("decided_at", UtcTimestamp(), nullable=False),
        *_references("skills", "decided_by"),
        sa.PrimaryKeyConstraint("name", "hash", name="pk_skills"),
    )


_TARGETS = {
    "session_id": "sessions",
    "parent_session": "sessions",
    "task_id": "tasks",
    "chat_id": "chats",
    "person_id": "people",
    "granted_by": "people",
    "decided_by": "people",
    "approval_id": "approvals",
}


def _references(table: str, columns: str) -> list[sa.ForeignKeyConstraint]:
    return [
        sa.ForeignKeyConstraint([name], [f"{_TARGETS[name]}.id"], name=f"fk_{table}_{name}")
        for name in columns.split()
    ]
