"""The timer runs each source when its earliest row is due, and survives what a source does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from storage.errors import StoreUnavailable
from tests.due_timer import run_timer
from tests.waiting import wait_until


class FakeSource:
    """Rows at these times; `on_run` may raise."""

    name = "rows"

    def __init__(self, *due: datetime, on_run: Callable[[int], None] = lambda _n: None) -> None:
        self.due = sorted(due)
        self.done: list[datetime] = []
        self.runs = 0
        self.on_run = on_run

    async def next_due(self) -> datetime | None:
        return min(self.due, default=None)

    async def run_due(self) -> None:
        self.runs += 1
        self.on_run(self.runs)
        present = now()
        self.done += [each for each in self.due if each <= present]
        self.due = [each for each in self.due if each > present]


def now() -> datetime:
    return datetime.now(UTC)


async def test_rows_that_are_due_at_nearly_the_same_time_are_all_done() -> None:
    start = now()
    due = [start + timedelta(milliseconds=n) for n in range(300)]
    source = FakeSource(*due)
    async with run_timer(source, now=now):
        await wait_until(lambda: len(source.done) == len(due))

    assert source.done == due


async def test_a_row_that_is_due_at_once_whatever_happens_never_stops_the_timer() -> None:
    class Greedy(FakeSource):
        async def next_due(self) -> datetime | None:
            return now() if self.runs < 200 else None

    source = Greedy()
    async with run_timer(source, now=now):
        await wait_until(lambda: source.runs == 200)


async def test_waking_looks_at_rows_that_came_later() -> None:
    source = FakeSource()
    async with run_timer(source, now=now) as timer:
        await wait_until(lambda: source.runs == 1)
        source.due = [now()]
        timer.wake(source.name)
        await wait_until(lambda: len(source.done) == 1)


async def test_a_wake_during_a_run_is_not_lost() -> None:
    source = FakeSource()
    async with run_timer(source, now=now) as timer:

        def wake_once(runs: int) -> None:
            if runs == 1:
                timer.wake(source.name)

        source.on_run = wake_once
        timer.wake(source.name)
        await wait_until(lambda: source.runs >= 2)


async def test_trouble_with_the_store_or_a_source_stops_neither_it_nor_the_others() -> None:
    def fail(runs: int) -> None:
        if runs == 1:
            raise StoreUnavailable("disk full")

    broken = FakeSource(now(), on_run=fail)
    other = FakeSource(now())
    other.name = "other"
    async with run_timer(broken, other, now=now):
        await wait_until(lambda: len(other.done) == 1)
        await wait_until(lambda: len(broken.done) == 1)


async def test_the_clock_that_a_source_goes_by_decides_not_the_machines() -> None:
    """A clock that is an hour behind: what is due in its hour waits, while what is due now is done
    again and again."""

    class Behind(FakeSource):
        async def run_due(self) -> None:
            self.runs += 1

    later, due = Behind(now()), Behind(now() - timedelta(hours=1))
    due.name = "due"
    async with run_timer(later, due, now=lambda: now() - timedelta(hours=1)):
        await wait_until(lambda: later.runs and due.runs > 100)

    assert later.runs == 1


async def test_a_source_that_runs_as_the_program_stops_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Slow(FakeSource):
        async def run_due(self) -> None:
            self.runs += 1
            await asyncio.Event().wait()

    source = Slow(now())
    async with run_timer(source, now=now):
        await wait_until(lambda: source.runs == 1)
    # The scheduler ends it in a later turn of the loop, and logs in one after that.
    for _ in range(10):
        await asyncio.sleep(0)

    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_what_ran_has_ended_when_the_timer_has_stopped_and_nothing_starts_later() -> None:
    class Slow(FakeSource):
        is_ended = False

        async def run_due(self) -> None:
            self.runs += 1
            try:
                await asyncio.Event().wait()
            finally:
                # As a transaction that is rolled back.
                for _ in range(10):
                    await asyncio.sleep(0)
                self.is_ended = True

    slow, idle = Slow(now()), FakeSource()
    idle.name = "idle"
    async with run_timer(slow, idle, now=now) as timer:
        await wait_until(lambda: slow.runs == idle.runs == 1)

    assert slow.is_ended
    runs = idle.runs
    timer.wake(idle.name)
    for _ in range(10):
        await asyncio.sleep(0)
    assert idle.runs == runs
