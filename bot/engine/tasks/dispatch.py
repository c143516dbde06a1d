"""The dispatcher of one process with one SQLite file, and the recovery of interrupted tasks."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from bot.engine.agent.model_calls import open_turn_id
from bot.engine.llm.tool_calls import READ_ONLY_KINDS
from bot.engine.tasks.preemption import TaskPreemption, plan_preemptions
from bot.engine.tasks.queue import release_running, requeue
from bot.engine.workflow.compensation import node_of_run
from bot.engine.workflow.definition import WorkflowNode, load_workflow
from bot.engine.workflow.nodes.contract import NodeRole
from bot.engine.workflow.step_approvals import step_turn_key
from bot.engine.workflow.task_store import LEASE_DURATION, TaskStore
from cards.catalog import TextCatalog, catalog_for
from storage.db import STORE_RETRY_SECONDS, Transaction, retry_until_stored
from storage.errors import LostLease, StoreUnavailable
from storage.records.people import Language
from storage.records.tasks import (
    EventKind,
    NodeRun,
    Task,
    TaskControl,
    TaskId,
    TaskLease,
    TaskPhase,
    TaskStatus,
)
from storage.sessions import is_turn_open
from storage.task_queue import ClaimLimits
from storage.tools import cut_off_task_calls, list_running_kinds
from storage.usage import UsageRepo

# --- recovery of interrupted tasks
# They are queued again, asked about, or offered. Parked tasks resume by themselves until their
# `wake_at`; after that the person is asked.

log = logging.getLogger(__name__)

_TITLE_SEPARATOR = {Language.CHINESE: "”、“", Language.ENGLISH: "”, “"}

OFFER_AFTER = timedelta(hours=12)
"""Work interrupted longer ago is offered on its card instead of resumed."""


async def recover(
    store: TaskStore,
    language_of: Callable[[Task], Awaitable[Language]],
    now: datetime,
    *,
    offer_after: timedelta = OFFER_AFTER,
) -> int:
    """Recover all tasks marked as running without a runner; returns their number.

    The model calls of the process that died, in tasks and chats, are counted by their estimates."""
    async with store.db.write() as tx:
        return await recover_in(tx, store, language_of, now, offer_after=offer_after)


async def recover_in(
    tx: Transaction,
    store: TaskStore,
    language_of: Callable[[Task], Awaitable[Language]],
    now: datetime,
    *,
    offer_after: timedelta,
    living: frozenset[str] | None = None,
) -> int:
    """The same in a transaction; with `living`, only the work of processes that are not in it."""
    lost = await UsageRepo(store.db).book_lost_calls(tx, now=now, living=living)
    orphans = [
        each
        for each in await store.queue.list_orphans(tx)
        if living is None or each.owner not in living
    ]
    for orphan in orphans:
        task = orphan.task
        interrupted_at = orphan.lease_until or task.started_at or now
        stale = now - interrupted_at > offer_after
        words = catalog_for(await language_of(task))
        await _settle_interrupted(store, tx, task, words, stale=stale, now=now)
    if lost:
        log.warning("%d model calls were cut off; their cost is an estimate", lost)
    if orphans:
        log.info("resumed %d interrupted tasks", len(orphans))
    return len(orphans)


async def requeue_interrupted(
    store: TaskStore, task: Task, language: Language, now: datetime, *, reason: str = ""
) -> None:
    """The same for one task that this process claimed and could not continue. Its card shows
    `reason` while it is queued."""
    async with store.db.write() as tx:
        held = await store.queue.fence(tx, _lease(task), until=now)
        await _settle_interrupted(
            store, tx, held, catalog_for(language), stale=False, now=now, why=reason
        )


async def mark_failed(store: TaskStore, task: Task, reason: str, now: datetime) -> None:
    """End a task after an unexpected error; its steps can be retried."""
    async with store.db.write() as tx:
        held = await store.queue.fence(tx, _lease(task), until=now)
        await release_running(store, tx, task.id, reason=reason, now=now)
        await store.tasks.update(
            tx,
            held,
            status=TaskStatus.FAILED,
            status_reason=reason,
            phase=TaskPhase.ENDED,
            control=TaskControl.RUN,
            ended_at=now,
        )
        await store.events.append_event(tx, task.id, EventKind.FAILED, now=now, text=reason)


async def _settle_interrupted(
    store: TaskStore,
    tx: Transaction,
    task: Task,
    words: TextCatalog,
    *,
    stale: bool,
    now: datetime,
    why: str = "",
) -> None:
    running = await release_running(store, tx, task.id, reason=words("work.interrupted"), now=now)
    unsafe = await _unsafe_steps(store, tx, task, running)
    status, reason, kind = TaskStatus.PENDING, why, EventKind.RECOVERED
    if unsafe:
        told = _TITLE_SEPARATOR[words.language].join(each.title for each in unsafe)
        reason = words("work.interrupted_unsafe", n=len(unsafe), steps=told)
        status, kind = TaskStatus.BLOCKED, EventKind.BLOCKED
    elif task.control is TaskControl.PAUSE:
        # Requested before the crash, due after the interrupted step.
        reason, status, kind = task.status_reason, TaskStatus.PAUSED, EventKind.PAUSED
    elif stale:
        reason = words("work.interrupted_long_ago")
        status, kind = TaskStatus.PAUSED, EventKind.PAUSED
    await cut_off_task_calls(tx, task.id, now=now)
    await store.tasks.update(
        tx, task, status=status, status_reason=reason, control=TaskControl.RUN, resumed_first=0
    )
    await store.events.append_event(tx, task.id, kind, now=now, text=reason)


async def _unsafe_steps(
    store: TaskStore, tx: Transaction, task: Task, running: Sequence[NodeRun]
) -> Sequence[WorkflowNode]:
    graph = await store.graphs.find_latest(task.id, tx=tx)
    if graph is None:
        return ()
    known = load_workflow(graph.body).nodes_by_id
    nodes = {node.id: node for run in running if (node := node_of_run(run.path, known)) is not None}
    return [
        node
        for node in nodes.values()
        if not node.repeatable and not await _can_resume_safely(tx, task.id, node)
    ]


async def _can_resume_safely(tx: Transaction, task_id: TaskId, node: WorkflowNode) -> bool:
    """Whether the step continues in its conversation, and every call that may have changed
    something has its result there: then nothing of it is done twice. Of a step that calls a tool
    itself, whether its call had not begun, or its result is stored."""
    if node.role is NodeRole.CALL:
        return READ_ONLY_KINDS.issuperset(await list_running_kinds(tx, task_id, node.id))
    if not await is_turn_open(tx, open_turn_id(step_turn_key(task_id, node))):
        return False
    return READ_ONLY_KINDS.issuperset(await list_running_kinds(tx, task_id, node.id))


def _lease(task: Task) -> TaskLease:
    return TaskLease(task_id=task.id, epoch=task.epoch)


async def mark_parked(
    store: TaskStore, tx: Transaction, tasks: Iterable[TaskId], until: datetime
) -> None:
    """Mark queued tasks to resume automatically if Shiftboss starts before `until`."""
    for task_id in tasks:
        task = await store.tasks.lock(tx, task_id)
        if task.status is TaskStatus.PENDING:
            await store.tasks.update(tx, task, wake_at=until)


async def offer_stale_parked(
    store: TaskStore, language_of: Callable[[Task], Awaitable[Language]], now: datetime
) -> None:
    """At startup, pause tasks parked too long ago and offer them on their cards; the others stay
    queued."""
    async with store.db.write() as tx:
        for task in await store.queue.list_due(tx, now):
            if task.status is TaskStatus.PENDING:
                reason = catalog_for(await language_of(task))("work.interrupted_long_ago")
                await store.tasks.update(
                    tx, task, status=TaskStatus.PAUSED, status_reason=reason, wake_at=None
                )
                await store.events.append_event(tx, task.id, EventKind.PAUSED, now=now, text=reason)
        await store.queue.clear_wake_times(tx)


# --- the dispatcher

_RENEW_INTERVAL = LEASE_DURATION.total_seconds() / 3
_CANCEL_SECONDS = 5.0
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES}


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunningTask:
    task: Task
    work: asyncio.Task[None]


class LocalDispatcher:
    """Dispatches tasks in this process, and is the due timer's source of waiting tasks. `run` runs
    a claimed task until it gives its slot back. `on_next_wake` is called when the time has changed
    at which the next waiting task continues. `owner` identifies it in leases. Interrupted work
    resumes automatically within `offer_after`. `grace` is how long (s) a stop waits for steps.
    These and `slots` and `patience` may change at any time; call `wake` then. While
    `exclusive_task` is set, only that task runs."""

    name = "dispatcher"

    def __init__(
        self,
        *,
        store: TaskStore,
        run: Callable[[Task], Awaitable[None]],
        language_of: Callable[[Task], Awaitable[Language]],
        slots: int,
        owner: str,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        on_change: Callable[[], None],
        patience: timedelta,
        offer_after: timedelta,
        grace: float,
        notify_command: Callable[[TaskId], None],
        on_next_wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._run = run
        self._language_of = language_of
        self.slots = slots
        self._owner = owner
        self._now = now
        self._new_id = new_id
        self._on_change = on_change
        self.patience = patience
        self.offer_after = offer_after
        self.grace = grace
        self._notify_command = notify_command
        self._on_next_wake = on_next_wake
        self._next_wake: datetime | None = None
        self._changed = asyncio.Event()
        self._running: dict[TaskId, _RunningTask] = {}
        self._works: dict[TaskId, set[asyncio.Task[None]]] = defaultdict(set)
        self._draining = False
        self._claimable: ClaimLimits | None = None
        self.exclusive_task: TaskId | None = None

    async def start(self, stack: AsyncExitStack) -> None:
        now = self._now()
        await self._recover(now)
        await offer_stale_parked(self._store, self._language_of, now)
        stack.push_async_callback(self._cancel_all)
        self.wake()

    async def _recover(self, now: datetime) -> None:
        await recover(self._store, self._language_of, now, offer_after=self.offer_after)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew_leases(), name="lease renewal")
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._fill_slots()

    async def run_one(self) -> Task | None:
        """Alternative to `run`: run the first queued task until it ends or gives its slot back.
        Returns the task as claimed; None if none can start."""
        async with asyncio.TaskGroup() as group:
            renewing = group.create_task(self._renew_leases(), name="lease renewal")
            await self._requeue_due()
            await self._start_next()
            running = tuple(self._running.values())
            for each in running:
                await asyncio.wait([each.work])
            renewing.cancel()
        return running[0].task if running else None

    async def drain(self) -> None:
        """Start no more tasks. Running ones park after their current step; after the grace period
        they are cancelled and requeued."""
        self._draining = True
        parked: list[TaskId] = []
        try:
            await self._request_park_of_all()
            parked = list(self._running)
            await self._wait_for_grace()
            async with self._store.db.write() as tx:
                due = self._now() + self.offer_after
                await mark_parked(self._store, tx, parked, due)
        except StoreUnavailable as error:
            # The next start recovers it like after a crash.
            log.warning("running work cannot be recorded before the stop: %s", error)
        self._on_change()

    def wake(self) -> None:
        self._changed.set()
        self._on_change()

    def notify_command(self, task_id: TaskId) -> None:
        self._notify_command(task_id)

    def abort(self, task: Task) -> None:
        running = self._running.get(task.id)
        if running is not None and running.task.epoch <= task.epoch:
            cancel_once(running.work)

    def check_running(self, _task_id: TaskId) -> None:
        """Another process may have changed this task; here there is no other one."""

    def notice_status(self, task_id: TaskId, _status: TaskStatus) -> None:
        """Another process may have given this task this status."""
        self.check_running(task_id)
        self.wake()

    def check_all_running(self) -> None:
        """Other processes may have changed any task."""
        for task_id in tuple(self._running):
            self.check_running(task_id)

    async def recover_from_dead(self, _tx: Transaction) -> int:
        """Queue the tasks of other processes that have died; returns their number."""
        return 0

    async def _fill_slots(self) -> None:
        """Start tasks while slots are free, then request preemptions."""
        while not self._draining:
            try:
                await self._requeue_due()
                while len(self._running) < self.slots and await self._start_next():
                    pass
                await self._preempt()
                await self._notice_next_wake()
            except StoreUnavailable as error:
                log.error("no task can be started: %s", error)  # noqa: TRY400 - no traceback needed
                await asyncio.sleep(STORE_RETRY_SECONDS)
            else:
                return

    async def _notice_next_wake(self) -> None:
        due = await self._store.queue.next_wake_at()
        if due != self._next_wake:
            self._next_wake = due
            self._on_next_wake()

    async def _start_next(self) -> bool:
        """False if no queued task can start."""
        async with self._store.db.write() as tx:
            if self._draining:
                return False
            task = await self._store.queue.claim(
                tx,
                owner=self._owner,
                now=self._now(),
                lease=LEASE_DURATION,
                aging_after=self.patience,
                only_task=self.exclusive_task,
                claimable=self._claimable,
            )
        if task is None:
            return False
        # What is left has lost the task; its end may take a while.
        works = self._works[task.id]
        for lost in works:
            cancel_once(lost)
        work = asyncio.create_task(self._run_claimed(task, tuple(works)), name=f"task {task.id}")
        works.add(work)
        work.add_done_callback(partial(self._forget_work, task.id))
        self._running[task.id] = _RunningTask(task=task, work=work)
        return True

    def _forget_work(self, task_id: TaskId, work: asyncio.Task[None]) -> None:
        self._works[task_id].discard(work)
        if not self._works[task_id]:
            del self._works[task_id]

    async def next_due(self) -> datetime | None:
        return None if self._draining else await self._store.queue.next_wake_at()

    async def run_due(self) -> None:
        due = await self.next_due()
        if due is not None and due <= self._now():
            await self._requeue_due()
            self.wake()

    async def _requeue_due(self) -> None:
        """Queue tasks whose wake time has come, before new work of their priority."""
        due = await self._store.queue.next_wake_at()
        if due is None or due > self._now():
            return
        async with self._store.db.write() as tx:
            now = self._now()
            for task in await self._store.queue.list_due(tx, now):
                if task.status is TaskStatus.WAITING:
                    await requeue(self._store, tx, task, now=now)

    async def _preempt(self) -> None:
        """Ask less important tasks to pause after their current step."""
        async with self._store.db.write() as tx:
            running = await self._store.queue.list_running(tx)
            waiting: Sequence[Task] = ()
            slots = await self._count_slots(tx)
            if running:
                waiting = await self._store.queue.list_preempting_candidates(
                    tx, slots, running=running
                )
            made = plan_preemptions(running, waiting, slots)
            for each in made:
                await self._request_yield(tx, each)
        if made:
            self._on_change()

    async def _count_slots(self, _tx: Transaction) -> int:
        """Of all processes whose tasks can be preempted."""
        return self.slots

    async def _request_yield(self, tx: Transaction, preemption: TaskPreemption) -> None:
        """Explain the reason on both cards. The victim returns to its own place, so that the
        waiting task is next."""
        victim, preemptor = preemption.victim, preemption.preemptor
        makes_room = catalog_for(await self._language_of(victim))(
            "work.makes_room", title=preemptor.title
        )
        cuts_in = catalog_for(await self._language_of(preemptor))(
            "work.cuts_in", title=victim.title
        )
        await self._store.tasks.update(
            tx,
            victim,
            control=TaskControl.YIELD,
            status_reason=makes_room,
            priority=victim.priority,
        )
        await self._store.tasks.update(tx, preemptor, status_reason=cuts_in)
        for task, told in ((victim, makes_room), (preemptor, cuts_in)):
            await self._store.events.append_event(
                tx, task.id, EventKind.NOTE, now=self._now(), text=told
            )

    async def _run_claimed(self, task: Task, earlier: Sequence[asyncio.Task[None]]) -> None:
        """Begins after all earlier work on that task: a step must not be undone, or done again,
        while it still runs."""
        try:
            if earlier:
                await asyncio.wait(earlier)
            await self._run(task)
        except StoreUnavailable as error:
            log.warning("task %s waits for the store: %s", task.id, error)
            await asyncio.sleep(STORE_RETRY_SECONDS)
            await self._retry_until_stored(task, self._requeue_interrupted)
        except Exception as error:
            # Error boundary: one task must not stop the others.
            incident = self._new_id()
            log.exception("task %s failed unexpectedly, incident=%s", task.id, incident)
            await self._retry_until_stored(task, partial(self._mark_failed, error, incident))
        finally:
            # A task stopped and restarted at once has a newer entry, which must stay.
            held = self._running.get(task.id)
            if held is not None and held.work is asyncio.current_task():
                del self._running[task.id]
            self.wake()

    async def _retry_until_stored(
        self, task: Task, write: Callable[[Task], Awaitable[None]]
    ) -> None:
        """Repeat until the store accepts the write: until then the task counts as running and is
        locked."""
        with suppress(LostLease):
            await retry_until_stored(lambda: write(task), asyncio.sleep, f"task {task.id}")

    async def _requeue_interrupted(self, task: Task) -> None:
        await requeue_interrupted(self._store, task, await self._language_of(task), self._now())

    async def _mark_failed(self, error: Exception, incident: str, task: Task) -> None:
        words = catalog_for(await self._language_of(task))
        reason = words("work.broke_off", incident=incident)
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            reason = words("work.disk", why=error.strerror)
        await mark_failed(self._store, task, reason, self._now())

    async def _renew_leases(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_INTERVAL)
            if self._running:
                with suppress(StoreUnavailable):
                    async with self._store.db.write() as tx:
                        await self._store.queue.renew_leases(
                            tx, self._owner, until=self._now() + LEASE_DURATION
                        )

    async def _request_park_of_all(self) -> None:
        """A claim in progress ends first, so that its task is asked too."""
        async with self._store.db.write() as tx:
            for held in await self._store.queue.list_running(tx):
                if held.id not in self._running or held.control is TaskControl.PAUSE:
                    continue
                words = catalog_for(await self._language_of(held))
                await self._store.tasks.update(
                    tx, held, control=TaskControl.YIELD, status_reason=words("work.restarting")
                )

    async def _wait_for_grace(self) -> None:
        running = tuple(self._running.values())
        if not running:
            return
        _, late = await asyncio.wait([each.work for each in running], timeout=self.grace)
        for work in late:
            cancel_once(work)
        if late:
            await asyncio.wait(late, timeout=_CANCEL_SECONDS)
        for each in running:
            if each.work in late:
                language = await self._language_of(each.task)
                why = catalog_for(language)("work.restarting")
                with suppress(LostLease):
                    await requeue_interrupted(
                        self._store, each.task, language, self._now(), reason=why
                    )

    async def _cancel_all(self) -> None:
        running = [work for works in self._works.values() for work in works]
        for work in running:
            # Also what was cancelled before and does not end: nothing may hold up the end.
            work.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def cancel_once(work: asyncio.Task[None]) -> None:
    """Once: a second time would end its wait for the steps that it has cancelled itself."""
    if not work.cancelling():
        work.cancel()
