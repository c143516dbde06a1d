"""Notifications of PostgreSQL: of rows that other processes have written, and of what is told among
processes without being stored."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

from sqlalchemy.engine import make_url

from storage.errors import StoreUnavailable

NOTIFY_CHANNEL = "shiftboss"
"""As in the triggers of migrations 0020, 0024 and 0026."""
LIVE_CHANNEL = "shiftboss_live"
MAX_LIVE_BYTES = 7_900
"""PostgreSQL takes less than 8,000."""

StoreNotification: TypeAlias = tuple[str, str, int]
"""The table that has changed, the row or the task that the change is about, if it is about one,
and the server's process that has written it. Of `LIVE_CHANNEL`: its name, and the text that was
sent."""


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
        async with await _connect(url, "shiftboss-listen") as connection:
            for channel in (NOTIFY_CHANNEL, LIVE_CHANNEL):
                await connection.execute(f"LISTEN {channel}".encode())

            async def read() -> AsyncGenerator[StoreNotification, None]:
                async for told in connection.notifies():
                    if told.channel == LIVE_CHANNEL:
                        yield LIVE_CHANNEL, told.payload, told.pid
                    else:
                        table, _, about = told.payload.partition(" ")
                        yield table, about, told.pid

            async with aclosing(read()) as notifications:
                yield notifications
    except psycopg.Error as error:
        raise StoreUnavailable(str(error).strip()) from error


@asynccontextmanager
async def open_live_channel(url: str) -> AsyncGenerator[LiveChannel, None]:
    """Raises StoreUnavailable if the connection cannot be made, or is lost while it is used."""
    import psycopg

    try:
        async with await _connect(url, "shiftboss-live") as connection:
            yield LiveChannel(connection)
    except psycopg.Error as error:
        raise StoreUnavailable(str(error).strip()) from error


async def _connect(url: str, name: str) -> Any:
    """A connection of psycopg. One that only listens sends nothing: without keepalives it would not
    find out that its network is gone."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    from storage.postgresql import KEEPALIVE

    where = connection_string(url)
    given = conninfo_to_dict(where)
    own: dict[str, Any] = {key: value for key, value in KEEPALIVE.items() if key not in given}
    return await psycopg.AsyncConnection.connect(
        where, autocommit=True, application_name=name, **own
    )


class LiveChannel:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def send(self, text: str) -> None:
        """Tell all processes that listen now, this one included."""
        await self._connection.execute("SELECT pg_notify(%s, %s)", (LIVE_CHANNEL, text))


def pack_live(sender: str, kind: str, data: Any) -> str | None:
    """None for what is too long to be told."""
    text = json.dumps([sender, kind, data], ensure_ascii=False, separators=(",", ":"))
    packed = text.encode("utf-8", "replace")
    return packed.decode() if len(packed) <= MAX_LIVE_BYTES else None


def unpack_live(text: str) -> tuple[str, str, Any]:
    """The sender, the kind and the data. Raises ValueError."""
    sender, kind, data = json.loads(text)
    return str(sender), str(kind), data
