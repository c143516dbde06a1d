"""Defines the tables of the synchronisation with a Bitable."""

from __future__ import annotations

import sqlalchemy as sa

from storage.dialect import RowNumber, UtcTimestamp
from storage.schema import metadata

# At most one row.
bitable_bases = sa.Table(
    "bitable_bases",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("base", sa.String(64), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("language", sa.String(8), nullable=False),
    sa.Column("chat_id", sa.ForeignKey("chats.id"), nullable=False),
    sa.Column("owner", sa.ForeignKey("people.id"), nullable=False),
    sa.Column("tables", sa.JSON, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("progress", sa.JSON, nullable=False),
)

# Without foreign keys to what it mirrors: a row outlives its task until it is deleted there too.
bitable_rows = sa.Table(
    "bitable_rows",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("local_id", sa.String(240), nullable=False),
    sa.Column("record_id", sa.String(64), nullable=False),
    sa.Column("token", sa.String(40), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("cells", sa.JSON, nullable=False),
    sa.Column("wanted", sa.JSON, nullable=False),
    sa.Column("orders", sa.JSON, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("pushed_at", UtcTimestamp),
    # Neither side has anything twice.
    sa.Index(
        "uq_bitable_rows_local",
        "kind",
        "local_id",
        unique=True,
        sqlite_where=sa.text("local_id <> ''"),
    ),
    sa.Index(
        "uq_bitable_rows_record",
        "record_id",
        unique=True,
        sqlite_where=sa.text("record_id <> ''"),
    ),
    sa.Index("ix_bitable_rows_state", "state"),
)
