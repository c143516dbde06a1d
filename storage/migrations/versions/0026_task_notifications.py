"""Notifications of tasks say what has become of them, and only when something has."""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"

_TOLD = ("status", "control", "wake_at", "let_in")


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute(
        """
        CREATE FUNCTION shiftboss_notify_task() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          PERFORM pg_notify('shiftboss', 'tasks ' || NEW.id || ' ' || NEW.status);
          RETURN NULL;
        END $$
        """
    )
    op.execute("DROP TRIGGER notify_tasks ON tasks")
    changed = " OR ".join(f"OLD.{each} IS DISTINCT FROM NEW.{each}" for each in _TOLD)
    for name, when in (
        ("notify_tasks", "AFTER INSERT ON tasks FOR EACH ROW"),
        # An update may name columns that keep their values.
        (
            "notify_changed_tasks",
            f"AFTER UPDATE OF {', '.join(_TOLD)} ON tasks FOR EACH ROW WHEN ({changed})",
        ),
    ):
        op.execute(f"CREATE TRIGGER {name} {when} EXECUTE FUNCTION shiftboss_notify_task()")
