"""Several fronts: replies for those who wait in another process, and which row was written."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.dialect import RowNumber

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.create_table(
        "inbox_replies",
        sa.Column("inbox_id", RowNumber, sa.ForeignKey("inbox.id", ondelete="CASCADE")),
        sa.Column("reply", sa.JSON),
        sa.PrimaryKeyConstraint("inbox_id"),
    )
    if op.get_bind().dialect.name == "postgresql":
        _name_the_rows()


# Each table whose rows are told one by one, and what of it is told.
_NOTIFIED = (("outbox", "INSERT OR UPDATE OF revision"), ("inbox", "INSERT OR UPDATE OF state"))


def _name_the_rows() -> None:
    """Not by the function of 0020, which would turn each row with its card into JSON."""
    op.execute(
        """
        CREATE FUNCTION shiftboss_notify_id() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          PERFORM pg_notify('shiftboss', TG_TABLE_NAME || ' ' || NEW.id);
          RETURN NULL;
        END $$
        """
    )
    for table, change in _NOTIFIED:
        op.execute(f"DROP TRIGGER notify_{table} ON {table}")
        op.execute(
            f"CREATE TRIGGER notify_{table} AFTER {change} ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION shiftboss_notify_id()"
        )
