"""Adds fair waiting, held folders, typed logs and budgets of the execution core."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import RowNumber, UtcTimestamp

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    _widen_tasks()
    with op.batch_alter_table("approvals") as table:
        table.add_column(sa.Column("payload", sa.JSON(), server_default="{}", nullable=False))
    _add_task_logs()
    _add_budget_grants()


def _widen_tasks() -> None:
    no = sa.text("false")
    with op.batch_alter_table("tasks") as table:
        table.add_column(
            sa.Column("waiting_since", UtcTimestamp(), server_default="0", nullable=False)
        )
        table.add_column(sa.Column("errors", sa.Integer(), server_default="0", nullable=False))
        table.add_column(sa.Column("branch", sa.String(128), server_default="", nullable=False))
        table.add_column(sa.Column("holds_dir", sa.Boolean(), server_default=no, nullable=False))
        table.add_column(sa.Column("let_in", sa.Boolean(), server_default=no, nullable=False))
        table.add_column(sa.Column("outside", sa.Boolean(), server_default=no, nullable=False))
        table.add_column(sa.Column("stage", sa.Text(), server_default="", nullable=False))
        table.add_column(sa.Column("tokens_before", sa.BigInteger(), nullable=True))
        table.add_column(sa.Column("deleted_at", UtcTimestamp(), nullable=True))
    op.execute("UPDATE tasks SET waiting_since = created_at")
    op.drop_index("ix_tasks_queue", "tasks")
    queue = "status rank resumed_first created_at id project_dir let_in outside"
    op.create_index("ix_tasks_queue", "tasks", queue.split())
    _partial("ix_tasks_aging", "waiting_since", "status = 'pending' AND rank > 1")
    _partial("ix_tasks_wake", "wake_at", "wake_at IS NOT NULL")
    _partial("ix_tasks_holders", "project_dir", "holds_dir")


def _partial(name: str, column: str, where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "tasks", [column], sqlite_where=condition, postgresql_where=condition)


def _add_task_logs() -> None:
    op.create_table(
        "task_logs",
        sa.Column("id", RowNumber, autoincrement=True, nullable=False),
        sa.Column("task_id", sa.String(16), nullable=False),
        sa.Column("source", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), server_default="", nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("file", sa.Text(), server_default="", nullable=False),
        sa.Column("person_id", sa.String(16), nullable=True),
        sa.Column("at", UtcTimestamp(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name="fk_task_logs_task_id"),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name="fk_task_logs_person_id"),
        sa.PrimaryKeyConstraint("id", name="pk_task_logs"),
        sa.UniqueConstraint("source", name="uq_task_logs_source"),
    )
    op.create_index("ix_task_logs_task_id_id", "task_logs", ["task_id", "id"])


def _add_budget_grants() -> None:
    op.create_table(
        "budget_grants",
        sa.Column("approval_id", sa.String(16), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("subject", sa.String(64), nullable=False),
        sa.Column("day", sa.String(10), server_default="", nullable=False),
        sa.Column("micros", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("at", UtcTimestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["approval_id"], ["approvals.id"], name="fk_budget_grants_approval_id"
        ),
        sa.PrimaryKeyConstraint("approval_id", name="pk_budget_grants"),
    )
    op.create_index(
        "ix_budget_grants_scope_subject_day", "budget_grants", ["scope", "subject", "day"]
    )
