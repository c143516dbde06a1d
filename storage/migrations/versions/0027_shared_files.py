"""Files of several machines: results that are late, and what must be erased everywhere."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import UtcTimestamp

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.create_table(
        "homes",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("seen_at", UtcTimestamp, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "forgotten_folders",
        sa.Column("path", sa.String(256), nullable=False),
        sa.Column("at", UtcTimestamp, nullable=False),
        sa.PrimaryKeyConstraint("path"),
    )
    op.create_table(
        "file_erasures",
        sa.Column("home", sa.String(32), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("what", sa.JSON, nullable=False),
        sa.Column("asked_at", UtcTimestamp, nullable=False),
        sa.Column("due_at", UtcTimestamp, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("home", "key"),
    )
    op.create_table(
        "late_files",
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("home", sa.String(32), nullable=False),
        sa.Column("task_id", sa.String(32), nullable=False),
        sa.Column("is_told", sa.Boolean, nullable=False),
        sa.Column("due_at", UtcTimestamp, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("path"),
    )
