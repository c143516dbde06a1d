"""The next claim, tried and taken back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta

from bot.engine.workflow.running.here import Leaves
from bot.engine.workflow.shown.preview import Preview, preview
from bot.engine.workflow.store import LEASE, WorkStore
from storage.db import Transaction
from storage.records.people import Language
from storage.records.tasks import Control, NodeStatus, Task, TaskStatus


class _TakenBack(Exception):
    """Ends the transaction so that nothing of it is kept."""


async def next_prompt(
    store: WorkStore,
    *,
    language_of: Callable[[Task], Awaitable[Language]],
    recall: Callable[[Task], Awaitable[Sequence[str]]],
    now: datetime,
    patience: timedelta,
    alone: bool,
    leaves: Leaves,
    team: Mapping[str, str] | None = None,
) -> Preview | None:
    """What the first task of the queue would be told, None if nothing waits that can start.
    Nothing is changed: the claim is made in a transaction that is rolled back. `alone` says that
    no dispatcher runs: what claims to run was interrupted, and would be taken up first."""
    async with _taken_back(store) as tx:
        for task, _ in await store.queue.orphans(tx) if alone else ():
            await _put_back(tx, store, task, now)
        claimed = await store.queue.claim(
            tx, owner="dry run", now=now, lease=LEASE, patience=patience
        )
        if claimed is None:
            return None
        recalled = await recall(claimed)
        language = await language_of(claimed)
        return await preview(
            tx, store, claimed, language, recalled, leaves=leaves, now=now, team=team
        )


@asynccontextmanager
async def _taken_back(store: WorkStore) -> AsyncGenerator[Transaction, None]:
    with suppress(_TakenBack):
        async with store.db.write() as tx:
            yield tx
            raise _TakenBack


async def _put_back(tx: Transaction, store: WorkStore, task: Task, now: datetime) -> None:
    for run in (await store.graphs.runs(task.id, tx=tx)).values():
        if run.status is NodeStatus.RUNNING:
            await store.graphs.release(tx, run, why="", now=now)
    await store.tasks.move(
        tx, task, status=TaskStatus.PENDING, control=Control.RUN, resumed_first=0
    )
