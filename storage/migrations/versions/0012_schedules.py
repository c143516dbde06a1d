"""Schedules and their firings, and what a task takes over from its schedule."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import RowNumber, UtcTimestamp

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("timing", sa.JSON, nullable=False),
        sa.Column("zone", sa.String(64), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("owner_id", sa.String(16), sa.ForeignKey("people.id"), nullable=False),
        sa.Column("chat_id", sa.String(16), sa.ForeignKey("chats.id"), nullable=False),
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
    )
    op.create_index("ix_schedules_owner_id", "schedules", ["owner_id"])
    op.create_index("ix_schedules_chat_id", "schedules", ["chat_id"])
    op.create_index(
        "ix_schedules_due",
        "schedules",
        ["next_due", "id"],
        sqlite_where=sa.text("next_due IS NOT NULL"),
        postgresql_where=sa.text("next_due IS NOT NULL"),
    )
    op.create_table(
        "firings",
        sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
        sa.Column("schedule_id", sa.String(16), sa.ForeignKey("schedules.id"), nullable=False),
        sa.Column("due_at", UtcTimestamp, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("retry_at", UtcTimestamp),
        sa.Column("fired_at", UtcTimestamp, nullable=False),
        sa.Column("ended_at", UtcTimestamp),
        sa.Column("task_id", sa.String(16), sa.ForeignKey("tasks.id")),
        sa.Column("note", sa.Text, nullable=False, server_default=""),
        sa.UniqueConstraint("schedule_id", "due_at"),
    )
    op.create_index("ix_firings_task_id", "firings", ["task_id"])
    op.create_index("ix_firings_state", "firings", ["state"])
    op.create_index(
        "ix_firings_retry",
        "firings",
        ["retry_at", "id"],
        sqlite_where=sa.text("retry_at IS NOT NULL"),
        postgresql_where=sa.text("retry_at IS NOT NULL"),
    )
    op.add_column("tasks", sa.Column("cap", sa.String(32), nullable=False, server_default=""))
    op.add_column(
        "tasks",
        sa.Column("use_memory", sa.Boolean, nullable=False, server_default=sa.true()),
    )
