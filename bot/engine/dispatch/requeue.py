"""Back into the queue, of work whose waiting is over."""

from __future__ import annotations

from datetime import datetime

from bot.engine.workflow.store import WorkStore
from storage.db import Transaction
from storage.records.tasks import EventKind, Task, TaskStatus


async def requeue(
    store: WorkStore, tx: Transaction, task: Task, *, now: datetime, told: str = ""
) -> None:
    """It waits from now on, in its own priority's place, before new work."""
    await store.tasks.move(
        tx,
        task,
        status=TaskStatus.PENDING,
        status_reason="",
        priority=task.priority,
        resumed_first=0,
        waiting_since=now,
        wake_at=None,
    )
    await store.journal.append(tx, task.id, EventKind.RESUMED, now=now, text=told)
