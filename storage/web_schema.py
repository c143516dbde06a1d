"""Defines the tables of who may use the web."""

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
