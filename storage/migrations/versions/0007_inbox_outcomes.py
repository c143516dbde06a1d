"""How each incoming event ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    with op.batch_alter_table("inbox") as table:
        table.add_column(sa.Column("outcome", sa.String(220), server_default="", nullable=False))
