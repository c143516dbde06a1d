"""Membership of this process in those that share a store: its heartbeat, who takes over the work of
dead ones, and services that one process at a time may run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.records.processes import (
    CLOCK_AHEAD,
    CLOCK_TOLERANCE,
    HEARTBEAT_SECONDS,
    PLACE,
    STOPS_AFTER_SECONDS,
    WorkerProcess,
)
from storage.worker_processes import WorkerProcessRepo

log = logging.getLogger(__name__)

FRONT_SERVICE = "front"
"""The lease of all that must happen in one process: channels, schedules, checks, upkeep."""

_STEADY_SECONDS = 2 * HEARTBEAT_SECONDS
"""Only who has reported for so long without a gap may take others for dead: after an outage of the
store, all of them are silent."""


class ProcessLost(Exception):
    """Others took this process for dead, and have its work."""


class ProcessMembership:
    """Reports this process to the store and takes over from dead ones.

    On SQLite a process is alone, so it registers once. On PostgreSQL each one sends heartbeats; one
    that cannot writes nothing else until it can, and ends with ProcessLost if others have taken it
    for dead meanwhile. `place` is what one process at a time can be, so one that was killed
    there is not waited for. The store's clock counts for all of them: where this machine's differs,
    `adjust_clock` gets by how much `now` is to be later, and the others are told. `recover` takes
    over the work of processes that are none any more; `must_drain` is set when a command tells this
    one to stop.
    """

    name = "heartbeat of the process"

    def __init__(
        self,
        *,
        db: Database,
        repo: WorkerProcessRepo,
        process: WorkerProcess,
        place: str,
        describe: Callable[[], Awaitable[Mapping[str, Any]]],
        recover: Callable[[Transaction], Awaitable[object]],
        now: Callable[[], datetime],
        adjust_clock: Callable[[timedelta], None],
        sleep: Callable[[float], Awaitable[None]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._repo = repo
        self.process = process
        self._place = place
        self._describe = describe
        self._recover = recover
        self._now = now
        self._adjust_clock = adjust_clock
        self._sleep = sleep
        self._monotonic = monotonic
        self.is_shared = db.dialect != "sqlite"
        self.must_drain = asyncio.Event()
        self._reported_at = monotonic()
        self._steady_since = self._reported_at
        self._looked_at = 0.0
        self._others = 1
        self._told_ahead = process.clock_ahead
        self._reporting: asyncio.Task[Any] | None = None

    async def start(self, stack: AsyncExitStack) -> None:
        """Must come before this process claims or reserves anything."""
        abilities = {**await self._describe(), PLACE: self._place}
        self.process = replace(self.process, abilities=abilities)
        async with self._db.write() as tx:
            if not self.is_shared:
                await self._repo.remove_all(tx)
            else:
                for each in await self._repo.remove_predecessors(tx, self._place):
                    log.info("%s %s (%s) has ended without a word", each.role, each.name, each.id)
            called_at = self._now()
            at = await self._repo.register(tx, self.process)
            await self._compare_clocks(tx, called_at, at)
        self._told_ahead = self.process.clock_ahead
        self._reported_at = self._steady_since = self._monotonic()
        stack.push_async_callback(self._leave)
        if self.is_shared:
            self._db.write_guard = self._refuse_without_heartbeat

    async def run(self) -> None:
        """Raises ProcessLost."""
        self._reporting = asyncio.current_task()
        while True:
            if self.is_shared:
                try:
                    await self._report()
                except StoreUnavailable as error:
                    log.warning("no heartbeat can be stored: %s", error)
            await self._sleep(HEARTBEAT_SECONDS)

    async def hold(self, service: str) -> bool:
        """Try to become the one process that runs this service, until it ends."""
        with suppress(StoreUnavailable):
            # Those who wait ask often, and each write is in the way of all others.
            holder = await self._repo.find_living_holder(service)
            if holder not in {None, self.process.id}:
                return False
            async with self._db.write() as tx:
                return await self._repo.take_lease(tx, service, self.process.id, now=self._now())
        return False

    async def _report(self) -> None:
        began = self._monotonic()
        async with self._db.write() as tx:
            called_at = self._now()
            beaten = await self._repo.beat(tx, self.process.id, now=called_at)
            if beaten is None:
                raise ProcessLost(self.process.name)
            at, drains = beaten
            await self._compare_clocks(tx, called_at, at)
            if self._may_look_after_others(began):
                await self._look_after_others(tx)
        self._told_ahead = self.process.clock_ahead
        if began - self._reported_at > _STEADY_SECONDS:
            self._steady_since = began
        self._reported_at = began
        if drains and not self.must_drain.is_set():
            log.info("a command drains this process")
            self.must_drain.set()

    async def _compare_clocks(self, tx: Transaction, called_at: datetime, at: datetime) -> None:
        """The store told its time `at` some time after `called_at`, and before now: the wait for
        the other writers is in between."""
        answered_at = self._now()
        later = max(called_at - at, at - answered_at)
        if self.is_shared and later >= CLOCK_TOLERANCE:
            self._correct_clock(called_at, answered_at, at)
        if self.process.clock_ahead != self._told_ahead:
            # Told again if this commit fails.
            await self._repo.set_abilities(tx, self.process.id, self.process.abilities)

    def _correct_clock(self, called_at: datetime, answered_at: datetime, at: datetime) -> None:
        by = at - called_at if at < called_at else at - answered_at
        self._adjust_clock(by)
        ahead = self.process.clock_ahead - by
        log.warning("this machine's clock is %.0f s ahead of the store's", ahead.total_seconds())
        abilities = {**self.process.abilities, CLOCK_AHEAD: round(ahead.total_seconds(), 3)}
        self.process = replace(self.process, abilities=abilities)

    def _may_look_after_others(self, now: float) -> bool:
        """With each heartbeat; the more processes there are, the less often each of them."""
        steady = now - self._reported_at <= _STEADY_SECONDS
        pause = max(1.0, 0.2 * self._others) * HEARTBEAT_SECONDS
        return (
            steady
            and now - self._steady_since >= _STEADY_SECONDS
            and now - self._looked_at >= pause - HEARTBEAT_SECONDS / 2
        )

    async def _look_after_others(self, tx: Transaction) -> None:
        dead = await self._repo.remove_dead(tx, now=self._now(), except_id=self.process.id)
        for each in dead:
            log.warning("%s %s (%s) is dead: others take its work", each.role, each.name, each.id)
        await self._recover(tx)
        self._others = len(await self._repo.list_ids(tx))
        self._looked_at = self._monotonic()

    async def _leave(self) -> None:
        self._db.write_guard = None
        with suppress(StoreUnavailable):
            async with self._db.write() as tx:
                await self._repo.remove(tx, [self.process.id])

    def _refuse_without_heartbeat(self) -> None:
        silent = self._monotonic() - self._reported_at
        if silent > STOPS_AFTER_SECONDS and asyncio.current_task() is not self._reporting:
            raise StoreUnavailable(f"this process has not reported for {silent:.0f} s")
