"""The process's timer: wakes each source of due rows when its earliest row is due."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from storage.db import STORE_RETRY_SECONDS
from storage.errors import StoreUnavailable

if TYPE_CHECKING:
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

log = logging.getLogger(__name__)

LONGEST_WAIT = timedelta(minutes=1)
"""After this a due time is looked up again, so that a change of the clock is noticed."""
_FAULT_DELAY = timedelta(seconds=30)


class DueSource(Protocol):
    """Rows with a due time. The rows are the truth: `run_due` must claim what is due and may be
    called at any time."""

    name: str

    async def next_due(self) -> datetime | None:
        """When the earliest row is due; None if none is."""

    async def run_due(self) -> None:
        """Do what is due now."""


class DueTimer:
    """Runs one date job of APScheduler for each source, in memory only. Call `wake` after a commit
    that has changed a due time of a source."""

    name = "due timer"

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._sources: dict[str, DueSource] = {}
        self._scheduler: AsyncIOScheduler | None = None
        self._running: set[str] = set()
        self._woken: set[str] = set()

    def add(self, *sources: DueSource) -> None:
        """Must be called before `run`."""
        self._sources |= {source.name: source for source in sources}

    async def start(self, stack: AsyncExitStack) -> None:
        # Imported on first use: a single shell command needs no timer.
        from apscheduler.schedulers.asyncio import AsyncIOScheduler

        # A job arms its successor before it ends; one that APScheduler takes for a second instance
        # would be dropped for good. `_running` keeps two runs of a source apart.
        options = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1000}
        scheduler = AsyncIOScheduler(timezone=UTC, job_defaults=options)
        scheduler.start()
        stack.callback(scheduler.shutdown, wait=False)
        self._scheduler = scheduler

    async def run(self) -> None:
        for name in self._sources:
            self.wake(name)
        await asyncio.Event().wait()

    def wake(self, name: str) -> None:
        """Look at this source's rows now. Before the start there is nothing to do."""
        if name in self._running:
            self._woken.add(name)
        else:
            self._arm(name, timedelta())

    def _arm(self, name: str, delay: timedelta) -> None:
        # Not running any more, when the program stops.
        if self._scheduler is None or not self._scheduler.running:
            return
        self._scheduler.add_job(
            self._run_source,
            "date",
            run_date=datetime.now(UTC) + delay,
            args=(name,),
            id=name,
            replace_existing=True,
        )

    async def _run_source(self, name: str) -> None:
        if name in self._running:
            self._woken.add(name)
            return
        self._running.add(name)
        source, delay = self._sources[name], None
        try:
            await source.run_due()
            due = await source.next_due()
            delay = None if due is None else min(LONGEST_WAIT, max(timedelta(), due - self._now()))
        except StoreUnavailable as error:
            log.warning("%s: what is due cannot be looked up now: %s", name, error)
            delay = timedelta(seconds=STORE_RETRY_SECONDS)
        except Exception:
            # Error boundary: one source must not stop the others.
            log.exception("%s: what is due could not be done", name)
            delay = _FAULT_DELAY
        finally:
            self._running.discard(name)
        if name in self._woken:
            self._woken.discard(name)
            delay = timedelta()
        if delay is not None:
            self._arm(name, delay)
