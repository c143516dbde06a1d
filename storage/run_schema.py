"""Defines the table of results that count no more, because their steps run again."""

from __future__ import annotations

import sqlalchemy as sa

from storage.dialect import UtcTimestamp
from storage.schema import metadata

discarded_runs = sa.Table(
    "discarded_runs",
    metadata,
    sa.Column("task_id", sa.ForeignKey("tasks.id"), primary_key=True),
    # The version of the plan under which the result counted.
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("path", sa.String(200), primary_key=True),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("output", sa.JSON, nullable=False),
    sa.Column("error", sa.Text, nullable=False, server_default=""),
    sa.Column("wake_at", UtcTimestamp),
    sa.Column("started_at", UtcTimestamp),
    sa.Column("ended_at", UtcTimestamp),
)
