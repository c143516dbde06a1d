"""Accounts of one person, and what each of them brought."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import UtcTimestamp

revision = "0018"
down_revision = "0017"

_TABLES = ("identities", "chats", "tasks", "schedules", "usage", "web_sessions", "web_keys")


def upgrade() -> None:
    op.create_table(
        "account_links",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("code_hash", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("maker", sa.String(16), sa.ForeignKey("people.id"), nullable=False),
        sa.Column("maker_chat", sa.String(16), sa.ForeignKey("chats.id"), nullable=False),
        sa.Column("taker", sa.String(16), sa.ForeignKey("people.id")),
        sa.Column("taker_chat", sa.String(16), sa.ForeignKey("chats.id")),
        sa.Column("kept", sa.String(16), sa.ForeignKey("people.id")),
        sa.Column("joined", sa.String(16), sa.ForeignKey("people.id")),
        sa.Column("untold", sa.Boolean, nullable=False),
        sa.Column("created_at", UtcTimestamp, nullable=False),
        sa.Column("expires_at", UtcTimestamp, nullable=False),
        sa.Column("linked_at", UtcTimestamp),
        sa.Column("ended_at", UtcTimestamp),
    )
    op.create_index("ix_account_links_joined_state", "account_links", ["joined", "state"])
    for table in (*_TABLES, "memories"):
        op.add_column(table, sa.Column("brought_by", sa.String(16), nullable=True))
