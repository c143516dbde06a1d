"""Make the first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

import storage.dialect

revision = "0001"
down_revision = None


def upgrade() -> None:

    op.create_table(
        "marks",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_marks")),
    )
    op.create_table(
        "people",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("language", sa.String(length=8), nullable=True),
        sa.Column("created_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_people")),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("backend", sa.String(length=64), nullable=False),
        sa.Column("model", sa.String(length=128), nullable=False),
        sa.Column("external_id", sa.String(length=128), server_default="", nullable=False),
        sa.Column("turns", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tokens", sa.Integer(), server_default="0", nullable=False),
        sa.Column("started_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.Column("last_used_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.Column("closed_at", storage.dialect.UtcTimestamp(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
    )
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_sessions_key"), ["key"], unique=False)

    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("host", sa.String(length=128), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("seen_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_table(
        "chats",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("channel", sa.String(length=16), nullable=False),
        sa.Column("external_id", sa.String(length=128), nullable=False),
        sa.Column("thread", sa.String(length=128), server_default="", nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("person_id", sa.String(length=16), nullable=True),
        sa.Column("created_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name=op.f("fk_chats_person_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_chats")),
        sa.UniqueConstraint(
            "channel", "external_id", "thread", name=op.f("uq_chats_channel_external_id_thread")
        ),
    )
    with op.batch_alter_table("chats", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_chats_person_id"), ["person_id"], unique=False)

    op.create_table(
        "identities",
        sa.Column("channel", sa.String(length=16), nullable=False),
        sa.Column("external_id", sa.String(length=128), nullable=False),
        sa.Column("person_id", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name=op.f("fk_identities_person_id")),
        sa.PrimaryKeyConstraint("channel", "external_id", name=op.f("pk_identities")),
    )
    with op.batch_alter_table("identities", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_identities_person_id"), ["person_id"], unique=False)

    op.create_table(
        "messages",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_messages_session_id")
        ),
        sa.PrimaryKeyConstraint("session_id", "seq", name=op.f("pk_messages")),
    )
    op.create_table(
        "actions",
        sa.Column("token", sa.String(length=16), nullable=False),
        sa.Column("card_key", sa.String(length=200), nullable=False),
        sa.Column("chat_id", sa.String(length=16), nullable=False),
        sa.Column("action", sa.JSON(), nullable=False),
        sa.Column("allowed", sa.JSON(), nullable=False),
        sa.Column("single_use", sa.Boolean(), nullable=False),
        sa.Column("expires_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.Column("used_by", sa.String(length=16), nullable=True),
        sa.Column("used_at", storage.dialect.UtcTimestamp(), nullable=True),
        sa.Column("used_for", sa.BigInteger(), nullable=True),
        sa.Column("retired", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name=op.f("fk_actions_chat_id")),
        sa.ForeignKeyConstraint(["used_by"], ["people.id"], name=op.f("fk_actions_used_by")),
        sa.PrimaryKeyConstraint("token", name=op.f("pk_actions")),
    )
    with op.batch_alter_table("actions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_actions_card_key"), ["card_key"], unique=False)

    op.create_table(
        "inbox",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("channel", sa.String(length=16), nullable=False),
        sa.Column("dedupe", sa.String(length=200), nullable=False),
        sa.Column("chat_id", sa.String(length=16), nullable=False),
        sa.Column("incoming", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("received_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.Column("handled_at", storage.dialect.UtcTimestamp(), nullable=True),
        sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name=op.f("fk_inbox_chat_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inbox")),
        sa.UniqueConstraint("channel", "dedupe", name=op.f("uq_inbox_channel_dedupe")),
    )
    with op.batch_alter_table("inbox", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_inbox_chat_id_id"), ["chat_id", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_inbox_state_id"), ["state", "id"], unique=False)

    op.create_table(
        "outbox",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("chat_id", sa.String(length=16), nullable=False),
        sa.Column("urgency", sa.Integer(), nullable=False),
        sa.Column("card", sa.JSON(), nullable=False),
        sa.Column("reply_to", sa.String(length=128), server_default="", nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("shown_revision", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tried_revision", sa.Integer(), server_default="0", nullable=False),
        sa.Column("placed", sa.JSON(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("due_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.Column("updated_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name=op.f("fk_outbox_chat_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
        sa.UniqueConstraint("key", name=op.f("uq_outbox_key")),
    )
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_outbox_chat_id_id"), ["chat_id", "id"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_outbox_state_due_at"), ["state", "due_at"], unique=False
        )

    op.create_table(
        "pairings",
        sa.Column("code", sa.String(length=16), nullable=False),
        sa.Column("channel", sa.String(length=16), nullable=False),
        sa.Column("external_id", sa.String(length=128), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("chat_id", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.Column("expires_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.Column("decided_by", sa.String(length=16), nullable=True),
        sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name=op.f("fk_pairings_chat_id")),
        sa.ForeignKeyConstraint(["decided_by"], ["people.id"], name=op.f("fk_pairings_decided_by")),
        sa.PrimaryKeyConstraint("code", name=op.f("pk_pairings")),
    )
    with op.batch_alter_table("pairings", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_pairings_channel_external_id"), ["channel", "external_id"], unique=False
        )

    op.create_table(
        "tasks",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("source", sa.String(length=200), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("instruction", sa.Text(), nullable=False),
        sa.Column("priority", sa.String(length=16), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("status_reason", sa.Text(), server_default="", nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("control", sa.String(length=16), nullable=False),
        sa.Column("resumed_first", sa.Integer(), server_default="1", nullable=False),
        sa.Column("chat_id", sa.String(length=16), nullable=False),
        sa.Column("reply_to", sa.String(length=128), server_default="", nullable=False),
        sa.Column("created_by", sa.String(length=16), nullable=False),
        sa.Column("project_dir", sa.Text(), server_default="", nullable=False),
        sa.Column("model", sa.String(length=128), server_default="", nullable=False),
        sa.Column("backend", sa.String(length=64), server_default="", nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("graph_version", sa.Integer(), server_default="0", nullable=False),
        sa.Column("epoch", sa.Integer(), server_default="0", nullable=False),
        sa.Column("owner", sa.String(length=64), server_default="", nullable=False),
        sa.Column("lease_until", storage.dialect.UtcTimestamp(), nullable=True),
        sa.Column("wake_at", storage.dialect.UtcTimestamp(), nullable=True),
        sa.Column("failures_in_row", sa.Integer(), server_default="0", nullable=False),
        sa.Column("replans", sa.Integer(), server_default="0", nullable=False),
        sa.Column("summary", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.Column("started_at", storage.dialect.UtcTimestamp(), nullable=True),
        sa.Column("ended_at", storage.dialect.UtcTimestamp(), nullable=True),
        sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name=op.f("fk_tasks_chat_id")),
        sa.ForeignKeyConstraint(["created_by"], ["people.id"], name=op.f("fk_tasks_created_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("source", name=op.f("uq_tasks_source")),
    )
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_tasks_chat_id"), ["chat_id"], unique=False)
        batch_op.create_index(
            "ix_tasks_queue", ["status", "rank", "resumed_first", "created_at"], unique=False
        )
        batch_op.create_index(
            "uq_tasks_running_project",
            ["project_dir"],
            unique=True,
            sqlite_where=sa.text("status = 'running' AND project_dir <> ''"),
            postgresql_where=sa.text("status = 'running' AND project_dir <> ''"),
        )

    op.create_table(
        "approvals",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("task_id", sa.String(length=16), nullable=True),
        sa.Column("path", sa.String(length=200), server_default="", nullable=False),
        sa.Column("subject", sa.String(length=200), server_default="", nullable=False),
        sa.Column("chat_id", sa.String(length=16), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), server_default="", nullable=False),
        sa.Column("command_hash", sa.String(length=64), server_default="", nullable=False),
        sa.Column("approvers", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("decided_by", sa.String(length=16), nullable=True),
        sa.Column("decided_at", storage.dialect.UtcTimestamp(), nullable=True),
        sa.Column("decided_for", sa.String(length=200), server_default="", nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.Column("expires_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name=op.f("fk_approvals_chat_id")),
        sa.ForeignKeyConstraint(
            ["decided_by"], ["people.id"], name=op.f("fk_approvals_decided_by")
        ),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_approvals_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
    )
    with op.batch_alter_table("approvals", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_approvals_state_chat_id"), ["state", "chat_id"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_approvals_task_id"), ["task_id"], unique=False)

    op.create_table(
        "commands",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("source", sa.String(length=200), nullable=False),
        sa.Column("task_id", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("person_id", sa.String(length=16), nullable=True),
        sa.Column("at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name=op.f("fk_commands_person_id")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_commands_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_commands")),
        sa.UniqueConstraint("source", name=op.f("uq_commands_source")),
    )
    with op.batch_alter_table("commands", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_commands_task_id"), ["task_id"], unique=False)

    op.create_table(
        "events",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("task_id", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("text", sa.Text(), server_default="", nullable=False),
        sa.Column("at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.Column("told_at", storage.dialect.UtcTimestamp(), nullable=True),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_events_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_events_task_id_id"), ["task_id", "id"], unique=False)
        batch_op.create_index(
            "ix_events_untold",
            ["id"],
            unique=False,
            sqlite_where=sa.text("told_at IS NULL"),
            postgresql_where=sa.text("told_at IS NULL"),
        )

    op.create_table(
        "node_attempts",
        sa.Column("task_id", sa.String(length=16), nullable=False),
        sa.Column("path", sa.String(length=200), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("session_id", sa.String(length=64), server_default="", nullable=False),
        sa.Column("started_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.Column("ended_at", storage.dialect.UtcTimestamp(), nullable=True),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_node_attempts_task_id")),
        sa.PrimaryKeyConstraint("task_id", "path", "attempt", name=op.f("pk_node_attempts")),
    )
    op.create_table(
        "node_runs",
        sa.Column("task_id", sa.String(length=16), nullable=False),
        sa.Column("path", sa.String(length=200), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("output", sa.JSON(), nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("wake_at", storage.dialect.UtcTimestamp(), nullable=True),
        sa.Column("started_at", storage.dialect.UtcTimestamp(), nullable=True),
        sa.Column("ended_at", storage.dialect.UtcTimestamp(), nullable=True),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_node_runs_task_id")),
        sa.PrimaryKeyConstraint("task_id", "path", name=op.f("pk_node_runs")),
    )
    op.create_table(
        "placements",
        sa.Column("chat_id", sa.String(length=16), nullable=False),
        sa.Column("message_id", sa.String(length=128), nullable=False),
        sa.Column(
            "outbox_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name=op.f("fk_placements_chat_id")),
        sa.ForeignKeyConstraint(["outbox_id"], ["outbox.id"], name=op.f("fk_placements_outbox_id")),
        sa.PrimaryKeyConstraint("chat_id", "message_id", name=op.f("pk_placements")),
    )
    with op.batch_alter_table("placements", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_placements_outbox_id"), ["outbox_id"], unique=False)

    op.create_table(
        "spans",
        sa.Column("span_id", sa.String(length=16), nullable=False),
        sa.Column("trace_id", sa.String(length=32), nullable=False),
        sa.Column("parent_id", sa.String(length=16), server_default="", nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("task_id", sa.String(length=16), nullable=True),
        sa.Column("status", sa.String(length=16), server_default="", nullable=False),
        sa.Column("attributes", sa.JSON(), nullable=False),
        sa.Column("started_at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.Column("ended_at", storage.dialect.UtcTimestamp(), nullable=True),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_spans_task_id")),
        sa.PrimaryKeyConstraint("span_id", name=op.f("pk_spans")),
    )
    with op.batch_alter_table("spans", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_spans_task_id"), ["task_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_spans_trace_id"), ["trace_id"], unique=False)

    op.create_table(
        "task_graphs",
        sa.Column("task_id", sa.String(length=16), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.String(length=32), nullable=False),
        sa.Column("at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_task_graphs_task_id")),
        sa.PrimaryKeyConstraint("task_id", "version", name=op.f("pk_task_graphs")),
    )
    op.create_table(
        "usage",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("at", storage.dialect.UtcTimestamp(), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("backend", sa.String(length=64), nullable=False),
        sa.Column("model", sa.String(length=128), nullable=False),
        sa.Column("person_id", sa.String(length=16), nullable=True),
        sa.Column("chat_id", sa.String(length=16), nullable=True),
        sa.Column("task_id", sa.String(length=16), nullable=True),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("input_tokens", sa.Integer(), nullable=False),
        sa.Column("output_tokens", sa.Integer(), nullable=False),
        sa.Column("cache_read_tokens", sa.Integer(), nullable=False),
        sa.Column("cache_write_tokens", sa.Integer(), nullable=False),
        sa.Column("cost_micros", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name=op.f("fk_usage_chat_id")),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name=op.f("fk_usage_person_id")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_usage_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_usage")),
    )
    with op.batch_alter_table("usage", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_usage_at"), ["at"], unique=False)
        batch_op.create_index(batch_op.f("ix_usage_chat_id"), ["chat_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_usage_person_id"), ["person_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_usage_task_id"), ["task_id"], unique=False)
