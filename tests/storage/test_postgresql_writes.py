"""Writers in several processes are one after another, and a connection that is cut costs nothing:
what was acknowledged is stored, once, and what was not is not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import repeat
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, OperationalError

from storage import postgresql
from storage.db import Database, Transaction, retry_until_stored
from storage.errors import StoreUnavailable
from storage.key_value import KeyValueStore
from storage.tasks import TaskRepo
from tests.postgresql_server import execute
from tests.thoroughness import sampled

_COUNTER = "counter"
_CUT_ALL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'shiftboss'"
    " AND datname = current_database()"
)


@asynccontextmanager
async def opened(url: str, count: int) -> AsyncIterator[list[Database]]:
    """As many processes would have it open."""
    async with AsyncExitStack() as stack:
        yield [await Database.open(url, stack) for _ in range(count)]


async def count_up(db: Database) -> None:
    """Read, then write what was read and one."""
    marks = KeyValueStore(db)
    async with db.write() as tx:
        seen = await marks.read(tx, _COUNTER) or 0
        await marks.write(tx, _COUNTER, seen + 1)


async def put_and(db: Database, name: str, then: Awaitable[object]) -> None:
    """Write a mark, and have something else happen before the commit."""
    async with db.write() as tx:
        await KeyValueStore(db).write(tx, name, 1)
        await then


async def test_what_a_transaction_has_read_is_so_until_it_ends(postgres_url: str) -> None:
    times = sampled(200, 20)
    async with opened(postgres_url, 4) as processes:
        await asyncio.gather(*(count_up(db) for _ in range(times) for db in processes))

        assert await KeyValueStore(processes[0]).get(_COUNTER) == times * len(processes)


async def test_connections_that_are_cut_lose_and_double_nothing(postgres_url: str) -> None:
    chance, ended = random.Random(7), asyncio.Event()

    async def cut() -> None:
        while not ended.is_set():
            await asyncio.sleep(chance.uniform(0.001, 0.05))
            await asyncio.to_thread(execute, postgres_url, _CUT_ALL)

    async def count(db: Database) -> None:
        for _ in range(times):
            await retry_until_stored(lambda: count_up(db), asyncio.sleep, "a count", repeat(0.001))

    times = sampled(300, 30)
    async with opened(postgres_url, 2) as processes:
        cutting = asyncio.create_task(cut())
        await asyncio.gather(*map(count, processes))
        ended.set()
        await cutting

        assert await count_in(processes[0]) == times * len(processes)


async def count_in(db: Database) -> int:
    """Also where the pool still has connections that were cut."""
    while True:
        try:
            return int(await KeyValueStore(db).get(_COUNTER))
        except StoreUnavailable:
            continue


async def commit_and_lose_the_answer(transaction: Transaction) -> None:
    held = await transaction.get_raw_connection()
    driver: Any = held.driver_connection
    await transaction.commit()
    try:
        await driver.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    except Exception as error:
        raise OperationalError("COMMIT", None, error) from error


async def test_a_commit_whose_answer_was_lost_counts_as_what_it_was(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgres_url, 1) as (db,):
        with pytest.raises(StoreUnavailable, match="nothing was stored"):
            await put_and(db, "lost", asyncio.to_thread(execute, postgres_url, _CUT_ALL))
        with monkeypatch.context() as patch:
            patch.setattr(postgresql, "_send_commit", commit_and_lose_the_answer)
            await KeyValueStore(db).put("kept", 2)

        assert await KeyValueStore(db).get("lost") is None
        assert await KeyValueStore(db).get("kept") == 2


async def test_a_process_that_stops_in_a_transaction_does_not_stop_the_others(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        (other,) = await stack.enter_async_context(opened(postgres_url, 1))
        # Not of the other one, which may have to wait for a busy machine.
        monkeypatch.setitem(postgresql._OPTIONS, "idle_in_transaction_session_timeout", "100ms")
        (stopped,) = await stack.enter_async_context(opened(postgres_url, 1))
        # Only the end of the first one's session lets the other write.
        with pytest.raises(StoreUnavailable):
            await put_and(stopped, "stopped", KeyValueStore(other).put("other", 2))

        assert await KeyValueStore(other).get("stopped") is None
        assert await KeyValueStore(other).get("other") == 2


async def test_readers_see_one_state_and_may_not_write(postgres_url: str) -> None:
    async with opened(postgres_url, 2) as (db, other):
        async with db.read() as view:
            before = await KeyValueStore(db).read(view, _COUNTER)
            await count_up(other)
            assert await KeyValueStore(db).read(view, _COUNTER) == before

        with pytest.raises(StoreUnavailable, match="read-only"):
            async with db.read() as view:
                await KeyValueStore(db).write(view, _COUNTER, 9)
        with pytest.raises(StoreUnavailable, match="read-only"):
            await db.fetch_all(sa.text("DELETE FROM marks RETURNING name"))


_REFUSALS = {
    "the disk is full": ("53100", StoreUnavailable),
    "too many connections": ("53300", StoreUnavailable),
    "a deadlock": ("40P01", StoreUnavailable),
    "a conflict of transactions": ("40001", StoreUnavailable),
    "a lock was not free in time": ("55P03", StoreUnavailable),
    "the server stops": ("57P01", StoreUnavailable),
    "our own mistake": ("23505", IntegrityError),
}


async def test_a_transaction_begins_with_one_message_and_a_single_read_is_one(
    postgres_url: str,
) -> None:
    last = (
        "SELECT query FROM pg_stat_activity WHERE application_name = 'shiftboss'"
        " AND datname = current_database()"
    )
    async with opened(postgres_url, 1) as (db,):
        async with db.write() as tx:
            await tx.begin()
            ((begun,),) = execute(postgres_url, last)
        assert postgresql.WRITE_LOCK in str(begun)
        assert str(begun).endswith("BEGIN")
    async with opened(postgres_url, 1) as (db,):
        async with db.read_once() as view:
            await view.exec_driver_sql("SELECT 1")
        assert execute(postgres_url, last) == [("SELECT 1",)]


async def test_a_server_with_other_defaults_changes_no_transaction(postgres_url: str) -> None:
    name = make_url(postgres_url).database
    execute(postgres_url, f"ALTER DATABASE {name} SET default_transaction_isolation = serializable")
    async with opened(postgres_url, 1) as (db,), db.write() as tx:
        shown = await tx.exec_driver_sql("SHOW transaction_isolation")
        assert shown.scalar_one() == "read committed"


async def test_the_uses_of_folders_are_read(postgres_url: str) -> None:
    async with opened(postgres_url, 1) as (db,):
        assert await TaskRepo(db).newest_uses({"/a/project"}) == ({}, {})


async def test_sums_and_averages_are_plain_numbers(postgres_url: str) -> None:
    query = sa.text("SELECT sum(n::bigint), avg(n), max(n) FROM generate_series(1, 2) AS n")
    async with opened(postgres_url, 1) as (db,):
        row = await db.fetch_one(query)
    assert row is not None
    # They go into requests to models: a Decimal is no JSON.
    assert [*map(repr, row)] == ["3", "1.5", "2"]


async def test_what_the_server_refuses_for_now_is_unavailable(postgres_url: str) -> None:
    async with opened(postgres_url, 1) as (db,):
        for reason, (state, wrong) in _REFUSALS.items():
            with pytest.raises(wrong, match=reason):
                await refused(
                    db, f"DO $$ BEGIN RAISE EXCEPTION '{reason}' USING ERRCODE = '{state}'; END $$"
                )
            await KeyValueStore(db).put("next", reason)


async def refused(db: Database, statement: str) -> None:
    async with db.write() as tx:
        await tx.exec_driver_sql(statement)
