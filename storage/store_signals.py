"""Notifications of PostgreSQL about what other processes have written."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import TypeAlias

from sqlalchemy.engine import make_url

from storage.errors import StoreUnavailable

NOTIFY_CHANNEL = "shiftboss"
"""As in the triggers of migration 0020."""

StoreNotification: TypeAlias = tuple[str, str]
"""The table that has changed, and the task that the change is about, if it is about one."""


def connection_string(url: str) -> str:
    """The store's database as PostgreSQL's own clients take it; it has the password."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@asynccontextmanager
async def open_notifications(
    url: str,
) -> AsyncGenerator[AsyncGenerator[StoreNotification, None], None]:
    """The notifications of commits from now on. Raises StoreUnavailable if the connection cannot be
    made, or, while they are read, if it is lost."""
    # Loaded only where the store is on PostgreSQL.
    import psycopg

    try:
        async with await psycopg.AsyncConnection.connect(
            connection_string(url),
            autocommit=True,
            connect_timeout=10,
            application_name="shiftboss-listen",
        ) as connection:
            await connection.execute(f"LISTEN {NOTIFY_CHANNEL}")

            async def read() -> AsyncGenerator[StoreNotification, None]:
                async for told in connection.notifies():
                    table, _, about = told.payload.partition(" ")
                    yield table, about

            async with aclosing(read()) as notifications:
                yield notifications
    except psycopg.Error as error:
        raise StoreUnavailable(str(error).strip()) from error
