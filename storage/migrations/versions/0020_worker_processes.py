"""Processes that share a store: their heartbeats, service leases and budget reservations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import UtcTimestamp

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    # Nothing has written to it so far.
    op.drop_table("workers")
    op.create_table(
        "workers",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("host", sa.String(128), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("version", sa.String(32), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("abilities", sa.JSON, nullable=False),
        sa.Column("draining", sa.Boolean, nullable=False),
        sa.Column("started_at", UtcTimestamp, nullable=False),
        sa.Column("seen_at", UtcTimestamp, nullable=False),
    )
    op.create_table(
        "service_leases",
        sa.Column("service", sa.String(64), primary_key=True),
        sa.Column("holder", sa.String(32), nullable=False),
        sa.Column("taken_at", UtcTimestamp, nullable=False),
    )
    with op.batch_alter_table("pending_model_calls") as calls:
        calls.add_column(sa.Column("holder", sa.String(32), nullable=False, server_default=""))
        for name in ("spent_micros", "spent_tokens", "reserved_micros", "reserved_tokens"):
            calls.add_column(sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    if op.get_bind().dialect.name == "postgresql":
        _notify_of_changes()


# Each changed table and what of it wakes other processes.
_NOTIFIED = (
    ("tasks", "INSERT OR UPDATE OF status, control, wake_at, let_in", "id"),
    ("commands", "INSERT", "task_id"),
    ("events", "INSERT", ""),
    ("approvals", "INSERT OR UPDATE OF state", ""),
    ("outbox", "INSERT OR UPDATE OF revision", ""),
    ("inbox", "INSERT", ""),
)


def _notify_of_changes() -> None:
    """A notification is sent with the commit, so no process has to be told apart from it."""
    op.execute(
        """
        CREATE FUNCTION shiftboss_notify() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF TG_LEVEL = 'ROW' THEN
            PERFORM pg_notify('shiftboss', TG_TABLE_NAME || ' ' ||
              coalesce(to_jsonb(NEW) ->> TG_ARGV[0], ''));
          ELSE
            PERFORM pg_notify('shiftboss', TG_TABLE_NAME);
          END IF;
          RETURN NULL;
        END $$
        """
    )
    for table, change, column in _NOTIFIED:
        level, argument = ("ROW", f"'{column}'") if column else ("STATEMENT", "")
        op.execute(
            f"CREATE TRIGGER notify_{table} AFTER {change} ON {table}"
            f" FOR EACH {level} EXECUTE FUNCTION shiftboss_notify({argument})"
        )
