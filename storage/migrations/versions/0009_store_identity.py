"""The id of the store, which the marker file in its data directory repeats."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    marks = sa.table("marks", sa.column("name", sa.Text), sa.column("value", sa.JSON))
    op.bulk_insert(marks, [{"name": "store.id", "value": secrets.token_hex(8)}])
