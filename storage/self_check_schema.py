"""Defines the tables of the self-check."""

from __future__ import annotations

import sqlalchemy as sa

from storage.dialect import RowNumber, UtcTimestamp
from storage.schema import metadata

# Each run of the self-check.
self_check_runs = sa.Table(
    "self_check_runs",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("at", UtcTimestamp, nullable=False, index=True),
    sa.Column("score", sa.Integer, nullable=False),
    sa.Column("results", sa.JSON, nullable=False),
    sa.Column("repairs", sa.JSON, nullable=False),
)

# Problems that the self-check tells owners of, each once: one row lasts for each key.
incidents = sa.Table(
    "incidents",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("key", sa.String(220), nullable=False),
    sa.Column("check_name", sa.String(32), nullable=False),
    sa.Column("finding", sa.JSON, nullable=False),
    sa.Column("opened_at", UtcTimestamp, nullable=False),
    sa.Column("absent_since", UtcTimestamp),
    sa.Column("ended_at", UtcTimestamp),
    sa.Column("reopened", sa.Integer, nullable=False, server_default="0"),
    sa.Column("task_id", sa.ForeignKey("tasks.id")),
    sa.Index(None, "key", "ended_at"),
    sa.Index("uq_incidents_lasting", "key", unique=True, sqlite_where=sa.text("ended_at IS NULL")),
)
