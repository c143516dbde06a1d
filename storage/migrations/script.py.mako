"""${message}."""

from __future__ import annotations

from alembic import op
import sqlalchemy as sa
import storage.dialect
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
