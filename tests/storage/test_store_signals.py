"""Signals among processes, on a real PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from storage import store_signals
from tests.postgresql_server import create_database


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
