"""Signed-in browsers of the web chat."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import UtcTimestamp

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "web_sessions",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("cookie_hash", sa.String(64), nullable=False, unique=True),
        sa.Column("token_mark", sa.String(8), nullable=False),
        sa.Column("person_id", sa.String(16), sa.ForeignKey("people.id"), nullable=False),
        sa.Column("created_at", UtcTimestamp, nullable=False),
        sa.Column("seen_at", UtcTimestamp, nullable=False),
        sa.Column("expires_at", UtcTimestamp, nullable=False),
        sa.Column("user_agent", sa.Text, nullable=False),
    )
