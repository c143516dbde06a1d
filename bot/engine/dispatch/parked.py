"""Work parked by a stop: it goes on at the next start, unless that comes so late that the Boss is
asked first. Until then `wake_at` says when it is too late."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

from bot.engine.workflow.store import WorkStore
from cards.words import words_for
from storage.db import Transaction
from storage.records.people import Language
from storage.records.tasks import EventKind, Task, TaskId, TaskStatus


async def note_parked(
    store: WorkStore, tx: Transaction, tasks: Iterable[TaskId], until: datetime
) -> None:
    """Of these, what is still to go on goes on by itself if the program starts before `until`."""
    for task_id in tasks:
        task = await store.tasks.lock(tx, task_id)
        if task.status is TaskStatus.PENDING:
            await store.tasks.move(tx, task, wake_at=until)


async def offer_parked(
    store: WorkStore, language_of: Callable[[Task], Awaitable[Language]], now: datetime
) -> None:
    """At a start: what was parked too long ago is offered on its card, the rest is queued as any
    other."""
    async with store.db.write() as tx:
        for task in await store.queue.due(tx, now):
            if task.status is TaskStatus.PENDING:
                reason = words_for(await language_of(task))("work.interrupted_long_ago")
                await store.tasks.move(
                    tx, task, status=TaskStatus.PAUSED, status_reason=reason, wake_at=None
                )
                await store.journal.append(tx, task.id, EventKind.PAUSED, now=now, text=reason)
        await store.queue.forget_parked(tx)
