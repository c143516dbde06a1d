"""Triggers of named workflows, and what they have started."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import RowNumber, UtcTimestamp

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.create_table(
        "triggers",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("workflow", sa.String(64), nullable=False),
        sa.Column("chat_id", sa.String(16), nullable=False),
        sa.Column("owner_id", sa.String(16), nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("token_hash", sa.String(64)),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("created_at", UtcTimestamp, nullable=False),
        sa.Column("brought_by", sa.String(16)),
        sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name=op.f("fk_triggers_chat_id")),
        sa.ForeignKeyConstraint(["owner_id"], ["people.id"], name=op.f("fk_triggers_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_triggers")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_triggers_token_hash")),
    )
    op.create_table(
        "trigger_firings",
        sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
        sa.Column("trigger_id", sa.String(16), nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("task_id", sa.String(16)),
        sa.Column("note", sa.Text, nullable=False, server_default=""),
        sa.Column("fired_at", UtcTimestamp, nullable=False),
        sa.ForeignKeyConstraint(
            ["trigger_id"], ["triggers.id"], name=op.f("fk_trigger_firings_trigger_id")
        ),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_trigger_firings_task_id")),
        sa.UniqueConstraint("trigger_id", "key", name=op.f("uq_trigger_firings_trigger_id_key")),
    )
