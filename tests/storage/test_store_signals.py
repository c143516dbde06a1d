"""Signals among processes, on a real PostgreSQL."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from storage import store_signals
from storage.db import Database
from tests.postgresql_server import create_database, execute


async def test_a_connection_that_only_listens_finds_out_that_its_network_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the keepalives of its socket: it sends nothing itself."""
    made: list[psycopg.AsyncConnection[Any]] = []
    connect = psycopg.AsyncConnection.connect

    async def remember(*given: Any, **how: Any) -> psycopg.AsyncConnection[Any]:
        made.append(await connect(*given, **how))
        return made[-1]

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", remember)
    url = create_database(migrated=False)
    async with (
        store_signals.open_notifications(url),
        store_signals.open_live_channel(url) as channel,
    ):
        await channel.send("hello")
        told = [each.info.get_parameters() for each in made]

    assert [each["application_name"] for each in told] == ["shiftboss-listen", "shiftboss-live"]
    assert {each["keepalives_idle"] for each in told} == {"5"}
    assert {each["tcp_user_timeout"] for each in told} == {"15000"}


async def test_a_process_knows_its_own_writes() -> None:
    url = create_database()
    async with AsyncExitStack() as stack:
        db = await Database.open(url, stack)
        told = await stack.enter_async_context(store_signals.open_notifications(url))
        notify = f"SELECT pg_notify('{store_signals.NOTIFY_CHANNEL}', 'outbox 1')"

        async with db.write() as tx:
            await tx.execute(sa.text(notify))
        table, about, backend = await anext(told)
        assert (table, about, backend in db.backends) == ("outbox", "1", True)
        execute(url, notify)
        _, _, backend = await anext(told)
        assert backend not in db.backends
    assert db.backends == set(), "a process of the server may be another's afterwards"
