"""Previews the prompt of the next task."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta

from bot.engine.tasks.queue import release_running
from bot.engine.workflow.presentation.call_preview import CallPreview, preview_call
from bot.engine.workflow.step_approvals import StepApprovalRequester
from bot.engine.workflow.task_store import LEASE_DURATION, TaskStore
from storage.db import Transaction
from storage.records.people import Language
from storage.records.tasks import Task, TaskControl, TaskStatus


class _RollbackSignal(Exception):
    """Rolls the transaction back."""


async def preview_next_prompt(
    store: TaskStore,
    *,
    language_of: Callable[[Task], Awaitable[Language]],
    recall: Callable[[Task], Awaitable[Sequence[str]]],
    now: datetime,
    patience: timedelta,
    without_dispatcher: bool,
    step_approvals: StepApprovalRequester,
    team: Mapping[str, str],
) -> CallPreview | None:
    """The prompt that the first queued task would get; None if none can start. The claim is rolled
    back. With `without_dispatcher`, tasks marked as running count as interrupted and come first."""
    async with _rolled_back_write(store) as tx:
        for task, _ in await store.queue.list_orphans(tx) if without_dispatcher else ():
            await _requeue_orphan(tx, store, task, now)
        claimed = await store.queue.claim(
            tx, owner="dry run", now=now, lease=LEASE_DURATION, aging_after=patience
        )
        if claimed is None:
            return None
        recalled = await recall(claimed)
        language = await language_of(claimed)
        return await preview_call(
            tx,
            store,
            claimed,
            language,
            recalled,
            step_approvals=step_approvals,
            now=now,
            team=team,
        )


@asynccontextmanager
async def _rolled_back_write(store: TaskStore) -> AsyncGenerator[Transaction, None]:
    with suppress(_RollbackSignal):
        async with store.db.write() as tx:
            yield tx
            raise _RollbackSignal


async def _requeue_orphan(tx: Transaction, store: TaskStore, task: Task, now: datetime) -> None:
    await release_running(store, tx, task.id, reason="", now=now)
    await store.tasks.update(
        tx, task, status=TaskStatus.PENDING, control=TaskControl.RUN, resumed_first=0
    )
