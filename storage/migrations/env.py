"""Alembic's entry: run the revisions on the connection we were handed."""

from __future__ import annotations

from alembic import context

from storage.memory.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
