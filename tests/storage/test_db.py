from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import insert, update

from storage import schema
from storage.db import Database, Transaction, finish_despite_cancel
from storage.dialect import PreparedWrite
from storage.errors import ConcurrentUpdate, StoreUnavailable
from storage.key_value import KeyValueStore
from tests.migrated_database import migrated_url, open_database
from tests.postgresql_server import sqlite_only
from tests.waiting import wait_until


@sqlite_only("a file is deleted or moved")
async def test_nothing_is_written_into_a_file_that_was_deleted_or_moved(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        marks = KeyValueStore(db)
        await marks.put("kept", 1)
        (tmp_path / "shiftboss.db").rename(tmp_path / "elsewhere.db")
        with pytest.raises(StoreUnavailable, match="moved, deleted or replaced"):
            await marks.put("lost", 1)
        assert not (tmp_path / "shiftboss.db").exists(), "no empty one is made in its place"

        (tmp_path / "elsewhere.db").rename(tmp_path / "shiftboss.db")
        await marks.put("kept too", 2)

        assert [await marks.get(name) for name in ("kept", "lost", "kept too")] == [1, None, 2]


@sqlite_only("a file is replaced")
async def test_nothing_is_written_beside_a_file_that_took_its_place(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    migrated_url(other)
    async with open_database(tmp_path) as db:
        await KeyValueStore(db).put("kept", 1)
        (other / "shiftboss.db").rename(tmp_path / "shiftboss.db")

        with pytest.raises(StoreUnavailable):
            await KeyValueStore(db).put("lost", 1)


@sqlite_only("another process locks the file")
async def test_a_store_another_process_holds_is_unavailable_and_then_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.db._PRAGMAS", ("PRAGMA busy_timeout=50",))
    async with open_database(tmp_path) as db:
        with closing(sqlite3.connect(tmp_path / "shiftboss.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="locked"):
                await KeyValueStore(db).put("first", 1)
        await KeyValueStore(db).put("second", 2)

        assert await KeyValueStore(db).get("first") is None
        assert await KeyValueStore(db).get("second") == 2


@sqlite_only("its limit of pages")
async def test_a_full_disk_leaves_what_was_there_and_takes_more_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(migrated_url(tmp_path).removeprefix("sqlite:///"))) as store:
        (pages,) = store.execute("PRAGMA page_count").fetchone()
    monkeypatch.setattr("storage.db._PRAGMAS", (f"PRAGMA max_page_count={pages + 5}",))
    async with open_database(tmp_path) as db:
        await KeyValueStore(db).put("small", 1)
        with pytest.raises(StoreUnavailable, match="full"):
            await KeyValueStore(db).put("large", "x" * 100_000)
        await KeyValueStore(db).put("small too", 2)

        names = ("small", "large", "small too")
        assert [await KeyValueStore(db).get(name) for name in names] == [1, None, 2]


_PUT = PreparedWrite(lambda _: insert(schema.marks), "name", "value")
_NOBODYS = PreparedWrite(lambda _: update(schema.marks).where(schema.marks.c.name == "nobody"))


async def broken(db: Database) -> None:
    async with db.write() as tx:
        await _PUT.send(tx, {"name": "first", "value": 1})
        raise RuntimeError


async def overtaken(db: Database) -> None:
    async with db.write() as tx:
        await _PUT.send(tx, {"name": "first", "value": 1})
        await _NOBODYS.send(tx, {"value": 3}, must_change=True)


@pytest.mark.parametrize("failing", [broken, overtaken])
async def test_a_transaction_that_fails_leaves_nothing_to_the_next(
    tmp_path: Path, failing: Callable[[Database], Awaitable[None]]
) -> None:
    async with open_database(tmp_path) as db:
        with pytest.raises((RuntimeError, ConcurrentUpdate)):
            await failing(db)
        async with db.write() as tx:
            await _PUT.send(tx, {"name": "second", "value": 2})

        assert await KeyValueStore(db).get("first") is None
        assert await KeyValueStore(db).get("second") == 2


class GroupWork:
    """Puts marks with `write_together`; `transactions` are the ones it ran in."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.marks = KeyValueStore(db)
        self.transactions: list[int] = []

    async def put(self, name: str, *, fails: bool = False) -> None:
        async def work(tx: Transaction) -> None:
            self.transactions.append(id(tx))
            await self.marks.write(tx, name, 1)
            if fails:
                raise ValueError(name)

        await self.db.write_together(work)

    async def stored(self, *names: str) -> list[str]:
        return [name for name in names if await self.marks.get(name) == 1]

    async def start(self, *names: str, fails: str = "") -> list[asyncio.Task[None]]:
        """Start them while another write is under way."""
        async with self.db.write():
            tasks = [asyncio.create_task(self.put(each, fails=each == fails)) for each in names]
            await asyncio.sleep(0.01)
        return tasks


async def test_work_that_arrives_together_shares_a_transaction(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        group = GroupWork(db)
        await asyncio.gather(*await group.start("a", "b", "c"))

        assert len(group.transactions) == 3
        assert len(set(group.transactions)) == 1
        assert await group.stored("a", "b", "c") == ["a", "b", "c"]
        await group.put("later")
        assert await group.stored("later") == ["later"]


async def test_a_member_that_fails_fails_alone(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        group = GroupWork(db)
        tasks = await group.start("a", "bad", "c", fails="bad")
        ended = await asyncio.gather(*tasks, return_exceptions=True)

        assert [type(each) for each in ended] == [type(None), ValueError, type(None)]
        assert await group.stored("a", "bad", "c") == ["a", "c"]


async def test_work_that_has_not_begun_is_dropped_with_its_caller(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        group = GroupWork(db)
        async with db.write():
            kept, dropped = (asyncio.create_task(group.put(each)) for each in ("kept", "dropped"))
            await asyncio.sleep(0.01)
            dropped.cancel()
            await asyncio.gather(dropped, return_exceptions=True)
        await kept

        assert dropped.cancelled()
        assert await group.stored("kept", "dropped") == ["kept"]


async def test_a_member_is_stored_although_the_one_who_began_the_group_is_cancelled(
    tmp_path: Path,
) -> None:
    async with open_database(tmp_path) as db:
        group = GroupWork(db)
        async with db.write():
            first, second = (asyncio.create_task(group.put(each)) for each in ("first", "second"))
            await asyncio.sleep(0.01)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        await second

        assert first.cancelled()
        assert await group.stored("first", "second") == ["second"]


async def test_a_closed_store_opens_no_connection(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        await KeyValueStore(db).put("kept", 1)
        holding = asyncio.create_task(_hold_lock(db, release := asyncio.Event()))
        await wait_until(db._write_lock.locked)
        waiting = asyncio.create_task(KeyValueStore(db).put("lost", 1))

    release.set()
    await holding
    for refused in (waiting, KeyValueStore(db).get("kept"), KeyValueStore(db).put("lost", 1)):
        with pytest.raises(StoreUnavailable, match="closed"):
            await refused
    async with open_database(tmp_path) as db:
        assert await KeyValueStore(db).get("lost") is None


async def _hold_lock(db: Database, release: asyncio.Event) -> None:
    async with db._write_lock:
        await release.wait()


@sqlite_only("its connections have threads")
async def test_a_connection_in_use_while_the_store_is_closed_ends_when_it_is_given_back(
    tmp_path: Path,
) -> None:
    threads = set(threading.enumerate())
    closed = asyncio.Event()

    async def read(db: Database) -> None:
        async with db.read() as view:
            await view.exec_driver_sql("SELECT 1")
            reading.set()
            await closed.wait()

    async with open_database(tmp_path) as db:
        reading = asyncio.Event()
        user = asyncio.create_task(read(db))
        await reading.wait()
    closed.set()
    await user

    await wait_until(lambda: set(threading.enumerate()) <= threads)


async def test_a_write_that_takes_too_long_has_ended_when_its_cancelled_caller_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("storage.db.CANCELLED_WRITE_SECONDS", 0.0)
    ended, begun = [], asyncio.Event()

    async def write() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            ended.append("rolled back")

    caller = asyncio.create_task(finish_despite_cancel(write()))
    await begun.wait()
    caller.cancel()
    await asyncio.wait({caller})

    assert caller.cancelled()
    assert ended == ["rolled back"]
