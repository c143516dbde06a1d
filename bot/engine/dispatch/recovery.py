"""What becomes of tasks whose process died: taken up again, asked about, or offered."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from bot.engine.workflow.graph import Node, load_workflow
from bot.engine.workflow.routing.paths import place_of
from bot.engine.workflow.store import WorkStore
from cards.words import Words, words_for
from storage.agents.calls import cut_off
from storage.db import Transaction
from storage.records.people import Language
from storage.records.tasks import (
    Control,
    EventKind,
    Lease,
    NodeRun,
    NodeStatus,
    Phase,
    Task,
    TaskStatus,
)

log = logging.getLogger(__name__)

_BETWEEN = {Language.CHINESE: "」「", Language.ENGLISH: "”, “"}

OFFER_AFTER = timedelta(hours=12)
"""Work interrupted longer ago than this is offered on its card, not run."""


async def recover(
    store: WorkStore,
    language_of: Callable[[Task], Awaitable[Language]],
    now: datetime,
    *,
    offer_after: timedelta = OFFER_AFTER,
) -> int:
    """Settle every task that claims to run while nobody runs it; how many there were."""
    async with store.db.write() as tx:
        orphans = await store.queue.orphans(tx)
        for task, lease_until in orphans:
            interrupted_at = lease_until or task.started_at or now
            stale = now - interrupted_at > offer_after
            words = words_for(await language_of(task))
            await _take_up(store, tx, task, words, stale=stale, now=now)
    if orphans:
        log.info("%d interrupted tasks taken up", len(orphans))
    return len(orphans)


async def put_back(
    store: WorkStore, task: Task, language: Language, now: datetime, *, why: str = ""
) -> None:
    """The same for one task that this process claimed and could not go on with. `why` is what its
    card says while it waits in the queue."""
    async with store.db.write() as tx:
        held = await store.queue.fence(tx, _lease(task), until=now)
        await _take_up(store, tx, held, words_for(language), stale=False, now=now, why=why)


async def break_off(store: WorkStore, task: Task, reason: str, now: datetime) -> None:
    """End a task that failed in a way nobody foresaw; its steps may be tried again."""
    async with store.db.write() as tx:
        held = await store.queue.fence(tx, _lease(task), until=now)
        for run in await _running(store, tx, held):
            await store.graphs.release(tx, run, why=reason, now=now)
        await store.tasks.move(
            tx,
            held,
            status=TaskStatus.FAILED,
            status_reason=reason,
            phase=Phase.ENDED,
            control=Control.RUN,
            ended_at=now,
        )
        await store.journal.append(tx, task.id, EventKind.FAILED, now=now, text=reason)


async def _take_up(
    store: WorkStore,
    tx: Transaction,
    task: Task,
    words: Words,
    *,
    stale: bool,
    now: datetime,
    why: str = "",
) -> None:
    running = await _running(store, tx, task)
    for run in running:
        await store.graphs.release(tx, run, why=words("work.interrupted"), now=now)
    unsafe = await _unsafe_steps(store, tx, task, running)
    status, reason, kind = TaskStatus.PENDING, why, EventKind.RECOVERED
    if unsafe:
        told = _BETWEEN[words.language].join(each.title for each in unsafe)
        reason = words("work.interrupted_unsafe", n=len(unsafe), steps=told)
        status, kind = TaskStatus.BLOCKED, EventKind.BLOCKED
    elif task.control is Control.PAUSE:
        # Ordered before the crash, due at the boundary that never came.
        reason, status, kind = task.status_reason, TaskStatus.PAUSED, EventKind.PAUSED
    elif stale:
        reason = words("work.interrupted_long_ago")
        status, kind = TaskStatus.PAUSED, EventKind.PAUSED
    await cut_off(tx, task.id, now=now)
    await store.tasks.move(
        tx, task, status=status, status_reason=reason, control=Control.RUN, resumed_first=0
    )
    await store.journal.append(tx, task.id, kind, now=now, text=reason)


async def _running(store: WorkStore, tx: Transaction, task: Task) -> Sequence[NodeRun]:
    runs = await store.graphs.runs(task.id, tx=tx)
    return [run for run in runs.values() if run.status is NodeStatus.RUNNING]


async def _unsafe_steps(
    store: WorkStore, tx: Transaction, task: Task, running: Sequence[NodeRun]
) -> Sequence[Node]:
    graph = await store.graphs.latest(task.id, tx=tx)
    if graph is None:
        return ()
    begun = {place.node for run in running if (place := place_of(run.path)) is not None}
    nodes = load_workflow(graph.body).nodes
    return [node for node in nodes if node.id in begun and not node.repeatable]


def _lease(task: Task) -> Lease:
    return Lease(task_id=task.id, epoch=task.epoch)
