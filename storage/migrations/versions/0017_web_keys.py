"""Links that sign in once, and API tokens of people."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import UtcTimestamp

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.create_table(
        "web_keys",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False, unique=True),
        sa.Column("person_id", sa.String(16), sa.ForeignKey("people.id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", UtcTimestamp, nullable=False),
        sa.Column("seen_at", UtcTimestamp),
        sa.Column("expires_at", UtcTimestamp),
    )
