"""Defines the tables of who may use the web, and of linked accounts."""

from __future__ import annotations

import sqlalchemy as sa

from storage.dialect import UtcTimestamp
from storage.schema import brought_by, metadata

web_sessions = sa.Table(
    "web_sessions",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("cookie_hash", sa.String(64), nullable=False, unique=True),
    sa.Column("token_mark", sa.String(8), nullable=False),
    sa.Column("person_id", sa.ForeignKey("people.id"), nullable=False),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    sa.Column("seen_at", UtcTimestamp, nullable=False),
    sa.Column("expires_at", UtcTimestamp, nullable=False),
    sa.Column("user_agent", sa.Text, nullable=False),
    brought_by(),
)

web_keys = sa.Table(
    "web_keys",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("secret_hash", sa.String(64), nullable=False, unique=True),
    sa.Column("person_id", sa.ForeignKey("people.id"), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    sa.Column("seen_at", UtcTimestamp),
    sa.Column("expires_at", UtcTimestamp),
    brought_by(),
)


# Codes with which accounts are linked, and what became of them. `joined` is of `kept` from
# `linked_at` until `ended_at`.
account_links = sa.Table(
    "account_links",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("code_hash", sa.String(64), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("maker", sa.ForeignKey("people.id"), nullable=False),
    sa.Column("maker_chat", sa.ForeignKey("chats.id"), nullable=False),
    sa.Column("taker", sa.ForeignKey("people.id")),
    sa.Column("taker_chat", sa.ForeignKey("chats.id")),
    sa.Column("kept", sa.ForeignKey("people.id")),
    sa.Column("joined", sa.ForeignKey("people.id")),
    # Whether both sides must still be told.
    sa.Column("untold", sa.Boolean, nullable=False),
    sa.Column("created_at", UtcTimestamp, nullable=False),
    sa.Column("expires_at", UtcTimestamp, nullable=False),
    sa.Column("linked_at", UtcTimestamp),
    sa.Column("ended_at", UtcTimestamp),
    sa.Index(None, "joined", "state"),
)
