"""Adds columns by which a turn survives inside a step: the start of a session's unfinished turn,
and the calls that a model service may bill although their answer never arrives."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import UtcTimestamp

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    with op.batch_alter_table("sessions") as table:
        table.add_column(sa.Column("open_turn", sa.String(64), server_default="", nullable=False))
        table.add_column(
            sa.Column("open_turn_start", sa.Integer(), server_default="0", nullable=False)
        )
    with op.batch_alter_table("usage") as table:
        table.add_column(
            sa.Column("estimated_tokens", sa.Integer(), server_default="0", nullable=False)
        )
    op.create_table(
        "pending_model_calls",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("at", UtcTimestamp(), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("backend", sa.String(length=64), nullable=False),
        sa.Column("model", sa.String(length=128), nullable=False),
        sa.Column("person_id", sa.String(length=16), nullable=True),
        sa.Column("chat_id", sa.String(length=16), nullable=True),
        sa.Column("task_id", sa.String(length=16), nullable=True),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("input_tokens", sa.Integer(), nullable=False),
        sa.Column("output_tokens", sa.Integer(), nullable=False),
        sa.Column("cost_micros", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name="fk_pending_model_calls_chat_id"),
        sa.ForeignKeyConstraint(
            ["person_id"], ["people.id"], name="fk_pending_model_calls_person_id"
        ),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name="fk_pending_model_calls_task_id"),
        sa.PrimaryKeyConstraint("id", name="pk_pending_model_calls"),
    )
