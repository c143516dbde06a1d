"""The dispatcher of one of several processes that share a store, and what wakes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

from bot.engine.tasks.dispatch import LocalDispatcher, cancel_once, recover_in
from storage.db import Transaction
from storage.errors import NotFound, StoreUnavailable
from storage.records.tasks import Task, TaskId, TaskStatus
from storage.store_signals import LIVE_CHANNEL, StoreNotification, open_notifications
from storage.task_queue import ClaimLimits, list_candidate_ids
from storage.worker_processes import WorkerProcessRepo

log = logging.getLogger(__name__)

_ABORT_PATIENCE = 1.0
"""Seconds in which a task that is no longer this process's ends by itself."""
_GATHER_SECONDS = 0.005
_RECONNECT_SECONDS = 1.0
_POLL_SECONDS = 10.0
"""How late a change is seen whose notification was lost."""


class SharedDispatcher(LocalDispatcher):
    """Claims tasks in competition with other processes: the store gives each task, and each project
    folder, to one of them. `projects` are the folders that this process is bound to, none for all;
    `has_folder` says whether one is on this machine.

    A task is stopped here when the store says that this process has it no more."""

    def __init__(
        self,
        *,
        processes: WorkerProcessRepo,
        projects: frozenset[str],
        has_folder: Callable[[str], bool],
        **rest: Any,
    ) -> None:
        super().__init__(**rest)
        self._processes = processes
        self._projects = projects
        self._has_folder = has_folder
        self._absent: frozenset[str] = frozenset()
        self._checks: set[asyncio.Task[None]] = set()

    async def recover_from_dead(self, tx: Transaction) -> int:
        """Queue the tasks of processes that are none any more."""
        return await recover_in(
            tx,
            self._store,
            self._language_of,
            self._now(),
            offer_after=self.offer_after,
            living=await self._processes.list_ids(tx),
        )

    def check_running(self, task_id: TaskId) -> None:
        """Call it when another process may have changed this task."""
        running = self._running.get(task_id)
        if running is not None:
            check = asyncio.create_task(self._check(running.task), name=f"check {task_id}")
            self._checks.add(check)
            check.add_done_callback(self._checks.discard)

    def notice_status(self, task_id: TaskId, status: TaskStatus) -> None:
        """Only those look at the queue whom it concerns: a queued task all who run some, since it
        may preempt others; a time to continue the front; a folder that became free those that have
        free slots."""
        self.check_running(task_id)
        if status is TaskStatus.PENDING:
            concerns = self.slots > 0
        elif status is TaskStatus.RUNNING:
            concerns = False
        else:
            concerns = status is TaskStatus.WAITING or len(self._running) < self.slots
        if concerns:
            self._changed.set()

    async def _recover(self, now: datetime) -> None:
        async with self._store.db.write() as tx:
            await self.recover_from_dead(tx)

    async def _check(self, held: Task) -> None:
        """A task that its own checkpoint has ended is about to end here too, so it gets time."""
        if await self._is_ours(held):
            return
        await asyncio.sleep(_ABORT_PATIENCE)
        running = self._running.get(held.id)
        if running is not None and running.task.epoch == held.epoch:
            log.info("task %s is no longer this process's", held.id)
            cancel_once(running.work)

    async def _is_ours(self, held: Task) -> bool:
        try:
            now = await self._store.tasks.get(held.id)
        except StoreUnavailable:
            return True
        except NotFound:
            return False
        return now.status is TaskStatus.RUNNING and now.epoch == held.epoch

    async def _start_next(self) -> bool:
        """Looks before it claims: most wake-ups are about tasks of others, and writers wait for one
        another. A folder that this machine does not have is left to those that have it."""
        absent = frozenset(
            {each for each in self._absent if not await asyncio.to_thread(self._has_folder, each)}
        )
        while not self._draining:
            self._absent = absent
            self._claimable = ClaimLimits(only=self._projects, absent=absent)
            async with self._store.db.read_once() as view:
                found = await list_candidate_ids(
                    view, 1, include_busy=False, claimable=self._claimable
                )
            if not found:
                return False
            folder = (await self._store.tasks.get(found[0])).project_dir
            if not folder or await asyncio.to_thread(self._has_folder, folder):
                return await super()._start_next()
            absent |= {folder}
        return False

    async def _preempt(self) -> None:
        async with self._store.db.read_once() as view:
            waiting = await list_candidate_ids(view, 1, include_busy=True)
        if waiting:
            await super()._preempt()

    async def _count_slots(self, tx: Transaction) -> int:
        return await self._processes.count_slots(tx)


class StoreListener:
    """Passes on what processes have written: `on_change` gets the table, the row or task if the
    change is about one, and the server's process that has written it. After a lost connection, and
    now and then in case that a notification was lost, `on_unknown` is called, since anything may
    have changed. `on_live` gets what they tell one another without storing it."""

    name = "notifications of the store"

    def __init__(
        self,
        url: str,
        *,
        on_change: Callable[[str, str, int], None],
        on_unknown: Callable[[], None],
        on_live: Callable[[str], None],
    ) -> None:
        self._url = url
        self._on_change = on_change
        self._on_unknown = on_unknown
        self._on_live = on_live

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(), name="listen to the store")
            group.create_task(self._poll(), name="poll the store")

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            self._on_unknown()

    async def _listen(self) -> None:
        while True:
            try:
                async with open_notifications(self._url) as notifications:
                    self._on_unknown()
                    await self._pass_on(notifications)
            except StoreUnavailable as error:
                log.warning("the store sends no notifications: %s", error)
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _pass_on(self, notifications: AsyncIterator[StoreNotification]) -> None:
        """Those that come at nearly the same time are passed on once."""
        gathered: dict[StoreNotification, None] = {}

        def flush() -> None:
            told = tuple(gathered)
            gathered.clear()
            for table, about, backend in told:
                self._on_change(table, about, backend)

        async for told in notifications:
            if told[0] == LIVE_CHANNEL:
                self._on_live(told[1])
                continue
            if not gathered:
                asyncio.get_running_loop().call_later(_GATHER_SECONDS, flush)
            gathered[told] = None
