"""The Bitable that tasks, logs and memories are synchronised with, and its rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import RowNumber, UtcTimestamp

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.create_table(
        "bitable_bases",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("base", sa.String(64), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("language", sa.String(8), nullable=False),
        sa.Column("chat_id", sa.String(16), sa.ForeignKey("chats.id"), nullable=False),
        sa.Column("owner", sa.String(16), sa.ForeignKey("people.id"), nullable=False),
        sa.Column("tables", sa.JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("progress", sa.JSON, nullable=False),
    )
    op.create_table(
        "bitable_rows",
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
    )
    for name, columns in (
        ("uq_bitable_rows_local", ["kind", "local_id"]),
        ("uq_bitable_rows_record", ["record_id"]),
    ):
        given = sa.text(f"{columns[-1]} <> ''")
        op.create_index(
            name,
            "bitable_rows",
            columns,
            unique=True,
            sqlite_where=given,
            postgresql_where=given,
        )
    op.create_index("ix_bitable_rows_state", "bitable_rows", ["state"])
