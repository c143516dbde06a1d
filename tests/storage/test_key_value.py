from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.postgresql_server import sqlite_only
from tests.storage.message_store import MessageStore


async def test_a_mark_is_what_was_last_put(room: MessageStore) -> None:
    await room.key_values.put("feishu.calls", {"month": "2026-03", "n": 1})
    await room.key_values.put("feishu.calls", {"month": "2026-03", "n": 2})

    assert await room.key_values.get("feishu.calls") == {"month": "2026-03", "n": 2}


async def test_a_mark_never_put_is_none(room: MessageStore) -> None:
    assert await room.key_values.get("nothing") is None


async def test_a_mark_put_in_a_transaction_that_fails_was_not_put(room: MessageStore) -> None:
    with pytest.raises(LookupError):
        await _put_and_fail(room)

    assert await room.key_values.get("a") is None


async def _put_and_fail(room: MessageStore) -> None:
    async with room.db.write() as tx:
        await room.key_values.write(tx, "a", 1)
        raise LookupError


@sqlite_only("JSON as it is in the file")
async def test_values_are_stored_compactly_and_come_back_as_they_were(
    room: MessageStore, tmp_path: Path
) -> None:
    value = {"text": "部署到生产环境", "odd": "half \ud83d pair \0", "list": [1, None]}
    await room.key_values.put("a", value)
    await room.key_values.put("b", {"text": "部署", "n": [1, 2]})

    assert await room.key_values.get("a") == value
    with closing(sqlite3.connect(tmp_path / "shiftboss.db")) as db:
        stored = db.execute("SELECT value FROM marks WHERE name = 'b'").fetchone()[0]
    assert stored == '{"text":"部署","n":[1,2]}'


async def test_the_first_time_is_kept_for_a_day_and_the_newest_only(
    room: MessageStore,
) -> None:
    store, now = room.key_values, datetime(2026, 5, 1, tzinfo=UTC)

    first = await store.first_time("calls", "a", now=now)
    again = await store.first_time("calls", "a", now=now + timedelta(hours=23))
    other = await store.first_time("calls", "b", now=now + timedelta(hours=1))
    later = await store.first_time("calls", "a", now=now + timedelta(hours=25))
    for n in range(600):
        await store.first_time("calls", f"n{n}", now=later)

    assert (first, again) == (now, now)
    assert other == now + timedelta(hours=1)
    assert later == now + timedelta(hours=25)
    assert len(await store.get("calls")) == 500
    assert await store.first_time("calls", "n599", now=later + timedelta(hours=1)) == later
