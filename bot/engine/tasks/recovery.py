"""Recovers interrupted tasks: requeues them, asks about them, or offers to resume them. Parked
tasks resume automatically until their `wake_at`; after that the user is asked."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta

from bot.engine.agent.model_calls import open_turn_id
from bot.engine.llm.tool_calls import READ_ONLY_KINDS
from bot.engine.tasks.queue import release_running
from bot.engine.workflow.definition import WorkflowNode, load_workflow
from bot.engine.workflow.node_runs import parse_activation
from bot.engine.workflow.step_approvals import step_turn_key
from bot.engine.workflow.task_store import TaskStore
from cards.catalog import TextCatalog, catalog_for
from storage.db import Transaction
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
from storage.tools import cut_off_task_calls, list_running_kinds
from storage.usage import UsageRepo

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
        lost = await UsageRepo(store.db).book_lost_calls(tx, now=now)
        orphans = await store.queue.list_orphans(tx)
        for task, lease_until in orphans:
            interrupted_at = lease_until or task.started_at or now
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
    begun = {place.node for run in running if (place := parse_activation(run.path)) is not None}
    nodes = [node for node in load_workflow(graph.body).nodes if node.id in begun]
    return [
        node
        for node in nodes
        if not node.repeatable and not await _can_resume_safely(tx, task.id, node)
    ]


async def _can_resume_safely(tx: Transaction, task_id: TaskId, node: WorkflowNode) -> bool:
    """Whether the step continues in its conversation, and every call that may have changed
    something has its result there: then nothing of it is done twice."""
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
