"""A process among those that share a store, and its machine's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bot.engine.autonomy.doctor import describe_process_clocks
from bot.engine.tasks.processes import FRONT_SERVICE, ProcessMembership
from bot.transports.ports import SystemClock
from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.records.processes import ProcessRole, WorkerProcess
from storage.worker_processes import WorkerProcessRepo


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (timedelta(minutes=5), [("machine_clock_fast", 5)]),
        (timedelta(minutes=-5), [("machine_clock_slow", 5)]),
        (timedelta(), []),
    ],
)
async def test_a_machine_with_a_wrong_clock_goes_by_the_stores_and_the_doctor_says_so(
    postgres_url: str, wrong: timedelta, told: list[tuple[str, int]]
) -> None:
    clock = SystemClock()
    clock.adjust(wrong)
    async with AsyncExitStack() as stack:
        db = await Database.open(postgres_url, stack)
        repo = WorkerProcessRepo(db)
        await membership(db, repo, clock).start(stack)
        found = await describe_process_clocks(lambda: repo.list_situations(now=clock.now()))

    # The server has the clock of this machine.
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(minutes=1)
    assert [(each.text, round(int(each.facts["seconds"]) / 60)) for each in found] == told


async def test_a_wrong_clock_is_told_again_if_the_commit_that_told_it_failed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, reported = SystemClock(), asyncio.Event()

    async def sleep(_seconds: float) -> None:
        if db.write is write:
            reported.set()
            await asyncio.Event().wait()
        monkeypatch.setattr(db, "write", write)

    async with AsyncExitStack() as stack:
        db = await Database.open(postgres_url, stack)
        write = db.write

        @asynccontextmanager
        async def fail_to_commit() -> AsyncIterator[Transaction]:
            async with write() as tx:
                yield tx
                raise StoreUnavailable("cut off")

        repo = WorkerProcessRepo(db)
        member = membership(db, repo, clock, sleep)
        await member.start(stack)
        clock.adjust(timedelta(minutes=5))
        monkeypatch.setattr(db, "write", fail_to_commit)
        running = asyncio.create_task(member.run())
        await reported.wait()
        running.cancel()
        found = await describe_process_clocks(lambda: repo.list_situations(now=clock.now()))

    assert [each.text for each in found] == ["machine_clock_fast"]


async def test_a_process_that_was_killed_is_not_waited_for_in_its_own_place(
    postgres_url: str,
) -> None:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        db = await Database.open(postgres_url, stack)
        repo = WorkerProcessRepo(db)
        killed, other, following = (
            membership(db, repo, clock, name=name, place=place)
            for name, place in (("first", "a home"), ("other", "elsewhere"), ("next", "a home"))
        )
        await killed.start(stack)
        assert await killed.hold(FRONT_SERVICE)
        await other.start(stack)
        assert not await other.hold(FRONT_SERVICE)

        await following.start(stack)

        assert await following.hold(FRONT_SERVICE)
        async with db.read() as view:
            assert await repo.list_ids(view) == {"other", "next"}


def membership(
    db: Database,
    repo: WorkerProcessRepo,
    clock: SystemClock,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    *,
    name: str = "one",
    place: str = "a home",
) -> ProcessMembership:
    async def describe() -> Mapping[str, Any]:
        return {}

    async def recover(_tx: Transaction) -> None:
        pass

    return ProcessMembership(
        db=db,
        repo=repo,
        process=WorkerProcess(
            id=name,
            name=name,
            host="host",
            pid=1,
            version="1",
            role=ProcessRole.WORKER,
            slots=1,
            started_at=clock.now(),
            seen_at=clock.now(),
        ),
        place=place,
        describe=describe,
        recover=recover,
        now=clock.now,
        adjust_clock=clock.adjust,
        sleep=sleep,
    )
