"""Versions of prompts, those that attempts used, and the signals that led to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import RowNumber, UtcTimestamp

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "prompt_versions",
        sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("base_hash", sa.String(64), nullable=False),
        sa.Column("parent", sa.Integer, nullable=False),
        sa.Column("parent_content", sa.Text, nullable=False),
        sa.Column("author", sa.String(32), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("signal", sa.JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("share", sa.Integer, nullable=False),
        sa.Column("end_reason", sa.Text, nullable=False, server_default=""),
        sa.Column("created_at", UtcTimestamp, nullable=False),
        sa.Column("trial_since", UtcTimestamp),
        sa.Column("active_since", UtcTimestamp),
        sa.Column("ended_at", UtcTimestamp),
        sa.UniqueConstraint("kind", "name", "number"),
    )
    for name, states in (("open", "('draft', 'trial')"), ("active", "('active')")):
        op.create_index(
            f"uq_prompt_versions_{name}",
            "prompt_versions",
            ["kind", "name"],
            unique=True,
            sqlite_where=sa.text(f"state IN {states}"),
            postgresql_where=sa.text(f"state IN {states}"),
        )
    op.create_table(
        "attempt_versions",
        sa.Column("task_id", sa.String(16), sa.ForeignKey("tasks.id"), primary_key=True),
        sa.Column("path", sa.String(200), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("version_id", RowNumber, sa.ForeignKey("prompt_versions.id")),
    )
    op.create_index("ix_attempt_versions_kind_name", "attempt_versions", ["kind", "name"])
    op.create_table(
        "evolution_signals",
        sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("figures", sa.JSON, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("note", sa.Text, nullable=False, server_default=""),
        sa.Column("fired_at", UtcTimestamp, nullable=False),
    )
    op.create_index("ix_evolution_signals_kind_fired_at", "evolution_signals", ["kind", "fired_at"])
