"""Runs of the self-check and the problems that owners are told of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import RowNumber, UtcTimestamp

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "self_check_runs",
        sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
        sa.Column("at", UtcTimestamp, nullable=False),
        sa.Column("score", sa.Integer, nullable=False),
        sa.Column("results", sa.JSON, nullable=False),
        sa.Column("repairs", sa.JSON, nullable=False),
    )
    op.create_index("ix_self_check_runs_at", "self_check_runs", ["at"])
    op.create_table(
        "incidents",
        sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
        sa.Column("key", sa.String(220), nullable=False),
        sa.Column("check_name", sa.String(32), nullable=False),
        sa.Column("finding", sa.JSON, nullable=False),
        sa.Column("opened_at", UtcTimestamp, nullable=False),
        sa.Column("absent_since", UtcTimestamp),
        sa.Column("ended_at", UtcTimestamp),
        sa.Column("reopened", sa.Integer, nullable=False, server_default="0"),
        sa.Column("task_id", sa.String(16), sa.ForeignKey("tasks.id")),
    )
    op.create_index("ix_incidents_key_ended_at", "incidents", ["key", "ended_at"])
    op.create_index(
        "uq_incidents_lasting",
        "incidents",
        ["key"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
