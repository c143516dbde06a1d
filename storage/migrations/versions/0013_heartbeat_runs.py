"""Runs of the heartbeat and what came of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import RowNumber, UtcTimestamp

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "heartbeat_runs",
        sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
        sa.Column("reasons", sa.JSON, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("started_at", UtcTimestamp, nullable=False),
        sa.Column("ended_at", UtcTimestamp),
        sa.Column("session_id", sa.String(64), nullable=False, server_default=""),
        sa.Column("text", sa.Text, nullable=False, server_default=""),
        sa.Column("claims", sa.JSON, nullable=False),
        sa.Column("to_tick", sa.JSON, nullable=False),
        sa.Column("note", sa.Text, nullable=False, server_default=""),
    )
