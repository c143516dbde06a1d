"""Indexes for reports, which read what happened in a time."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_index("ix_tasks_ended_at", "tasks", ["ended_at"])
    op.create_index("ix_node_attempts_started_at", "node_attempts", ["started_at"])
    op.create_index("ix_firings_fired_at", "firings", ["fired_at"])
