"""Which process runs a sub-agent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.add_column("helpers", sa.Column("holder", sa.String(32), nullable=False, server_default=""))
