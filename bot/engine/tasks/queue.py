"""The port of the task dispatcher, and changes that put a task back into the queue."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Protocol

from bot.engine.workflow.task_store import TaskStore
from storage.db import Transaction
from storage.records.tasks import EventKind, NodeRun, NodeStatus, Task, TaskId, TaskStatus


class TaskDispatcher(Protocol):
    """Implementations must claim the first task of the queue whenever a slot is free: by priority,
    interrupted work before new work, oldest first, and one running task per project directory.

    A task of strictly higher priority preempts a running one, which parks after its current step. A
    task that has waited too long goes first without preempting, and completes at least one step
    between two preemptions. Tasks resume at their `wake_at`. Implementations must not poll.
    """

    name: str

    async def start(self, stack: AsyncExitStack) -> None:
        """Recover tasks left by a dead process."""
        ...

    async def run(self) -> None: ...

    async def drain(self) -> None:
        """Start no more tasks and stop the running ones: after their current step if it ends in
        time, otherwise by cancellation, to resume at the next start. `run` continues."""
        ...

    def wake(self) -> None:
        """Notify of a change in the queue. Call it after the commit."""
        ...

    def notify_command(self, task_id: TaskId) -> None:
        """Notify the task's runner of a command. Call it after the commit."""
        ...

    def abort(self, task: Task) -> None:
        """Cancel the task here or in another process, unless it was claimed again since. Call it
        with the task as it was stored by the commit that revokes its lease."""
        ...


async def requeue(
    store: TaskStore, tx: Transaction, task: Task, *, now: datetime, text: str = ""
) -> None:
    """Queue the task as of now at its own priority, before new work."""
    await store.tasks.update(
        tx,
        task,
        status=TaskStatus.PENDING,
        status_reason="",
        priority=task.priority,
        resumed_first=0,
        waiting_since=now,
        wake_at=None,
    )
    await store.events.append_event(tx, task.id, EventKind.RESUMED, now=now, text=text)


async def release_running(
    store: TaskStore, tx: Transaction, task_id: TaskId, *, reason: str, now: datetime
) -> Sequence[NodeRun]:
    """Mark the running steps as interrupted and return them."""
    runs = (await store.graphs.list_runs(task_id, tx=tx)).values()
    running = [run for run in runs if run.status is NodeStatus.RUNNING]
    for run in running:
        await store.graphs.release_attempt(tx, run, reason=reason, now=now)
    return running
