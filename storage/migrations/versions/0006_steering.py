"""How many messages of people to its task a session's unfinished turn contains."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    with op.batch_alter_table("sessions") as table:
        table.add_column(
            sa.Column("open_turn_heard", sa.Integer(), server_default="0", nullable=False)
        )
