"""Adds the effects that a tool call would have had when a person was asked about it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    with op.batch_alter_table("tool_calls") as table:
        table.add_column(sa.Column("effect_hash", sa.String(64), server_default="", nullable=False))
