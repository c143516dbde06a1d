"""Defines the tables of what Shiftboss begins by itself."""

from __future__ import annotations

import sqlalchemy as sa

from storage.dialect import RowNumber, UtcTimestamp
from storage.schema import metadata

heartbeat_runs = sa.Table(
    "heartbeat_runs",
    metadata,
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
