"""Results that count no more because a person has ordered their steps to run again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import UtcTimestamp

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "discarded_runs",
        sa.Column("task_id", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("path", sa.String(200), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("output", sa.JSON, nullable=False),
        sa.Column("error", sa.Text, nullable=False, server_default=""),
        sa.Column("wake_at", UtcTimestamp),
        sa.Column("started_at", UtcTimestamp),
        sa.Column("ended_at", UtcTimestamp),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_discarded_runs_task_id")),
        sa.PrimaryKeyConstraint("task_id", "version", "path", name=op.f("pk_discarded_runs")),
    )
