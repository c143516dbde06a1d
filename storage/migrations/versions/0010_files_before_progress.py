"""Files of a message wait with a rank of their own, before progress."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.execute("UPDATE outbox SET urgency = 4 WHERE urgency = 3")
