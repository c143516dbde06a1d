"""The embedded dispatcher: one process, one SQLite file, woken by an event, never polling."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from bot.engine.dispatch.parked import note_parked, offer_parked
from bot.engine.dispatch.port import Run
from bot.engine.dispatch.preempt import Yielding, yieldings
from bot.engine.dispatch.recovery import OFFER_AFTER, break_off, put_back, recover
from bot.engine.dispatch.requeue import requeue
from bot.engine.workflow.store import LEASE, PATIENCE, WorkStore
from cards.words import words_for
from storage.db import Transaction
from storage.errors import LostLease, StoreUnavailable
from storage.records.people import Language
from storage.records.tasks import Control, EventKind, Task, TaskId, TaskStatus

log = logging.getLogger(__name__)

_RENEW_EVERY = LEASE.total_seconds() / 3
_STORE_REST = 5.0
_LAST_WORDS = 5.0
# A clock that is set forward is noticed this late by what waits for its time.
_LONGEST_SLEEP = 300.0
_DISK_TROUBLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    task: Task
    work: asyncio.Task[None]


class LocalDispatcher:
    """`owner` names this process in the leases it holds. `offer_after` is for how long work that
    was interrupted, by a death or a stop, goes on by itself at the next start. `grace` is how long
    a stop waits for steps to end; `look_again` tells whoever runs a task of an order. While
    `only` is set, that task is worked on and all others wait."""

    name = "dispatcher"

    def __init__(
        self,
        *,
        store: WorkStore,
        run: Run,
        language_of: Callable[[Task], Awaitable[Language]],
        slots: int,
        owner: str,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        on_change: Callable[[], None],
        patience: timedelta = PATIENCE,
        offer_after: timedelta = OFFER_AFTER,
        grace: float = 10.0,
        look_again: Callable[[TaskId], None] = lambda _task: None,
    ) -> None:
        self._store = store
        self._run = run
        self._language_of = language_of
        self._slots = slots
        self._owner = owner
        self._now = now
        self._new_id = new_id
        self._on_change = on_change
        self._patience = patience
        self._offer_after = offer_after
        self._grace = grace
        self._look_again = look_again
        self._changed = asyncio.Event()
        self._running: dict[TaskId, _Running] = {}
        self._draining = False
        self.only: TaskId | None = None

    async def start(self, stack: AsyncExitStack) -> None:
        now = self._now()
        await recover(self._store, self._language_of, now, offer_after=self._offer_after)
        await offer_parked(self._store, self._language_of, now)
        stack.push_async_callback(self._stop)
        self.wake()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew(), name="lease renewal")
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(await self._until_due()):
                        await self._changed.wait()
                self._changed.clear()
                await self._fill()

    async def one(self) -> Task | None:
        """Instead of `run`: take the first task of the queue to its end, or to where it gives its
        slot back. The task as it was claimed; None if nothing waits that can start."""
        async with asyncio.TaskGroup() as group:
            renewing = group.create_task(self._renew(), name="lease renewal")
            await self._wake_due()
            await self._start_next()
            running = tuple(self._running.values())
            for each in running:
                await asyncio.wait([each.work])
            renewing.cancel()
        return running[0].task if running else None

    async def drain(self) -> None:
        """Start nothing more. What runs parks at its next step boundary; what has not reached it
        when the grace is over is cancelled and put back."""
        self._draining = True
        parked: list[TaskId] = []
        try:
            await self._ask_all_to_park()
            parked = list(self._running)
            await self._give_grace()
            async with self._store.db.write() as tx:
                due = self._now() + self._offer_after
                await note_parked(self._store, tx, parked, due)
        except StoreUnavailable as error:
            # The next start finds it as a death would have left it.
            log.warning("what runs cannot be put down before the end: %s", error)
        self._on_change()

    def wake(self) -> None:
        self._changed.set()
        self._on_change()

    def look_again(self, task_id: TaskId) -> None:
        self._look_again(task_id)

    def abort(self, task_id: TaskId) -> None:
        if running := self._running.get(task_id):
            running.work.cancel()

    async def _fill(self) -> None:
        """Start tasks until the slots or the queue are used up; then see who must make room."""
        while not self._draining:
            try:
                await self._wake_due()
                while len(self._running) < self._slots and await self._start_next():
                    pass
                await self._make_room()
            except StoreUnavailable as error:
                log.error("no task can be started: %s", error)  # noqa: TRY400 - no traceback needed
                await asyncio.sleep(_STORE_REST)
            else:
                return

    async def _start_next(self) -> bool:
        """False if nothing that waits can start."""
        async with self._store.db.write() as tx:
            if self._draining:
                return False
            task = await self._store.queue.claim(
                tx,
                owner=self._owner,
                now=self._now(),
                lease=LEASE,
                patience=self._patience,
                only=self.only,
            )
        if task is None:
            return False
        work = asyncio.create_task(self._one(task), name=f"task {task.id}")
        self._running[task.id] = _Running(task=task, work=work)
        return True

    async def _until_due(self) -> float | None:
        """Seconds until something that waits for its time is to be looked at; None for never."""
        try:
            due = await self._store.queue.next_due()
        except StoreUnavailable as error:
            log.error("nobody knows what is due: %s", error)  # noqa: TRY400 - no traceback needed
            return _STORE_REST
        if due is None or self._draining:
            return None
        return min(_LONGEST_SLEEP, max(0.0, (due - self._now()).total_seconds()))

    async def _wake_due(self) -> None:
        """What waited for nothing but its time goes on, before new work of its priority."""
        due = await self._store.queue.next_due()
        if due is None or due > self._now():
            return
        async with self._store.db.write() as tx:
            now = self._now()
            for task in await self._store.queue.due(tx, now):
                if task.status is TaskStatus.WAITING:
                    await requeue(self._store, tx, task, now=now)

    async def _make_room(self) -> None:
        """Ask less important work to pause at its next boundary for what waits."""
        async with self._store.db.write() as tx:
            running = await self._store.queue.running(tx)
            waiting: Sequence[Task] = ()
            if running:
                waiting = await self._store.queue.waiting(tx, self._slots, beside=running)
            made = yieldings(running, waiting, self._slots)
            for each in made:
                await self._ask_to_yield(tx, each)
        if made:
            self._on_change()

    async def _ask_to_yield(self, tx: Transaction, asked: Yielding) -> None:
        """Both cards tell why. The victim has its own rank again, so that who cuts in is next."""
        victim, better = asked.victim, asked.better
        makes_room = words_for(await self._language_of(victim))(
            "work.makes_room", title=better.title
        )
        cuts_in = words_for(await self._language_of(better))("work.cuts_in", title=victim.title)
        await self._store.tasks.move(
            tx,
            victim,
            control=Control.YIELD,
            status_reason=makes_room,
            priority=victim.priority,
        )
        await self._store.tasks.move(tx, better, status_reason=cuts_in)
        for task, told in ((victim, makes_room), (better, cuts_in)):
            await self._store.journal.append(
                tx, task.id, EventKind.NOTE, now=self._now(), text=told
            )

    async def _one(self, task: Task) -> None:
        try:
            await self._run(task)
        except StoreUnavailable as error:
            log.warning("task %s waits for the store: %s", task.id, error)
            await asyncio.sleep(_STORE_REST)
            await self._settle(task, self._put_back)
        except Exception as error:
            # The boundary between one task and all others: whatever it is, they go on.
            incident = self._new_id()
            log.exception("task %s broke off, incident=%s", task.id, incident)
            await self._settle(task, partial(self._break_off, error, incident))
        finally:
            # A task stopped and started again at once has a newer entry here: not ours to drop.
            held = self._running.get(task.id)
            if held is not None and held.work is asyncio.current_task():
                del self._running[task.id]
            self.wake()

    async def _settle(self, task: Task, write: Callable[[Task], Awaitable[None]]) -> None:
        """Give the task up in the store, however long that takes: until then it claims to run,
        and nobody else may touch it."""
        while True:
            try:
                await write(task)
            except StoreUnavailable as error:
                log.warning("task %s cannot be put down: %s", task.id, error)
                await asyncio.sleep(_STORE_REST)
            except LostLease:
                return
            else:
                return

    async def _put_back(self, task: Task) -> None:
        await put_back(self._store, task, await self._language_of(task), self._now())

    async def _break_off(self, error: Exception, incident: str, task: Task) -> None:
        words = words_for(await self._language_of(task))
        reason = words("work.broke_off", incident=incident)
        if isinstance(error, OSError) and error.errno in _DISK_TROUBLE:
            reason = words("work.disk", why=error.strerror)
        await break_off(self._store, task, reason, self._now())

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_EVERY)
            if self._running:
                with suppress(StoreUnavailable):
                    async with self._store.db.write() as tx:
                        await self._store.queue.renew(tx, self._owner, until=self._now() + LEASE)

    async def _ask_all_to_park(self) -> None:
        """A claim under way ends before this begins: its task is asked too."""
        async with self._store.db.write() as tx:
            for held in await self._store.queue.running(tx):
                if held.id not in self._running or held.control is Control.PAUSE:
                    continue
                words = words_for(await self._language_of(held))
                await self._store.tasks.move(
                    tx, held, control=Control.YIELD, status_reason=words("work.restarting")
                )

    async def _give_grace(self) -> None:
        running = tuple(self._running.values())
        if not running:
            return
        _, late = await asyncio.wait([each.work for each in running], timeout=self._grace)
        for work in late:
            work.cancel()
        if late:
            await asyncio.wait(late, timeout=_LAST_WORDS)
        for each in running:
            if each.work in late:
                language = await self._language_of(each.task)
                why = words_for(language)("work.restarting")
                with suppress(LostLease):
                    await put_back(self._store, each.task, language, self._now(), why=why)

    async def _stop(self) -> None:
        running = [each.work for each in self._running.values()]
        for work in running:
            work.cancel()
        await asyncio.gather(*running, return_exceptions=True)
