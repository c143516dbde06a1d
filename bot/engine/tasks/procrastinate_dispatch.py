"""The dispatcher whose slots Procrastinate gives out: a job is a ticket to start a task.

A ticket carries no state and is never trusted: which task starts, and whether one may, is decided
by the claim, as without tickets. Lost tickets are made again, and those that dead processes left
are removed.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException

from bot.engine.tasks.shared_dispatch import SharedDispatcher
from storage.db import STORE_RETRY_SECONDS
from storage.errors import StoreUnavailable
from storage.records.tasks import Task
from storage.store_signals import connection_string
from storage.task_queue import list_candidate_ids
from storage.worker_processes import (
    drop_orphaned_tickets,
    has_ticket_tables,
    tell_of_tickets,
)

log = logging.getLogger(__name__)

_QUEUE, _TASK = "shiftboss", "advance"
_MAX_TICKETS = 50
"""Tickets are for the head of the queue; the next ones are made when these are used."""
_RECONCILE_SECONDS = 1.0
_POLL_SECONDS = 10.0
"""How late a worker without any notification looks. As long as tasks wait, it gets some."""


class ProcrastinateDispatcher(SharedDispatcher):
    """Like its base, but a task starts when a worker of Procrastinate gets a ticket. `url` is the
    database's, in which Procrastinate's own tables are made."""

    def __init__(self, *, url: str, **rest: Any) -> None:
        super().__init__(**rest)
        conninfo = connection_string(url)
        self._app = App(connector=PsycopgConnector(conninfo=conninfo, min_size=1, max_size=4))
        self._app.task(name=_TASK, queue=_QUEUE)(self._advance)
        self._tasks_wait = asyncio.Event()

    async def start(self, stack: AsyncExitStack) -> None:
        try:
            await stack.enter_async_context(self._app.open_async())
        except ConnectorException as error:
            raise StoreUnavailable(str(error)) from error
        async with self._store.db.write() as tx:
            if not await has_ticket_tables(tx):
                # Others that start now wait for this transaction and find the tables.
                await self._app.schema_manager.apply_schema_async()
        await super().start(stack)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run(), name="tickets")
            group.create_task(self._reconcile(), name="lost tickets")
            if self.slots:
                group.create_task(self._work(), name="worker of Procrastinate")

    async def _work(self) -> None:
        while True:
            try:
                await self._app.run_worker_async(
                    queues=[_QUEUE],
                    name=self._owner,
                    concurrency=self.slots,
                    fetch_job_polling_interval=_POLL_SECONDS,
                    install_signal_handlers=False,
                    delete_jobs="always",
                    update_heartbeat_interval=2.0,
                    stalled_worker_timeout=10.0,
                    shutdown_graceful_timeout=1.0,
                )
            except ConnectorException as error:
                log.warning("no tickets can be taken: %s", error)
            await asyncio.sleep(STORE_RETRY_SECONDS)

    async def _advance(self, task_id: str) -> None:
        """Start the first task that may start, and keep the slot until it gives it back."""
        log.debug("a ticket for task %s", task_id)
        before = set(self._running)
        try:
            if self._draining or not await super()._start_next():
                return
        except StoreUnavailable as error:
            log.warning("a ticket is given up: %s", error)
            return
        for started in set(self._running) - before:
            await asyncio.wait([self._running[started].work])

    async def _start_next(self) -> bool:
        """Tasks start by their tickets only: make those that are missing."""
        async with self._store.db.read() as view:
            ids = await list_candidate_ids(view, _MAX_TICKETS, include_busy=False)
        if ids:
            self._tasks_wait.set()
        for task in [await self._store.tasks.get(each) for each in ids]:
            await self._make_ticket(task)
        return False

    async def _make_ticket(self, task: Task) -> None:
        # Without a lock of Procrastinate's for the project, which it would free without telling:
        # the claim keeps two tasks out of one folder.
        ticket = self._app.configure_task(
            _TASK,
            queue=_QUEUE,
            queueing_lock=task.id,
            priority=-task.priority.rank,
        )
        try:
            await ticket.defer_async(task_id=task.id)
        except AlreadyEnqueued:
            pass
        except ConnectorException as error:
            raise StoreUnavailable(str(error)) from error

    async def _reconcile(self) -> None:
        """Wakes the tickets' maker, and the workers of all processes, as long as tasks wait for a
        slot. A worker forgets what it is told while it takes a ticket."""
        while True:
            await self._tasks_wait.wait()
            await asyncio.sleep(_RECONCILE_SECONDS)
            self._tasks_wait.clear()
            try:
                async with self._store.db.read() as view:
                    waiting = await list_candidate_ids(view, 1, include_busy=False)
                if waiting:
                    async with self._store.db.write() as tx:
                        await drop_orphaned_tickets(tx)
                        await tell_of_tickets(tx, _QUEUE)
                    self._changed.set()
            except StoreUnavailable as error:
                log.warning("tickets cannot be looked after: %s", error)
                self._tasks_wait.set()
