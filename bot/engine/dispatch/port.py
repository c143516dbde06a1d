"""Who runs which task next: the port that the embedded and the distributed dispatcher share."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Protocol

from storage.records.tasks import Task, TaskId


class Run(Protocol):
    """Moves a claimed task on until it gives its slot back."""

    async def __call__(self, task: Task) -> None: ...


class Dispatcher(Protocol):
    """Implementations claim the first task of the queue whenever a slot is free: by rank,
    interrupted work before new work, oldest first, one running task per project directory."""

    name: str

    async def start(self, stack: AsyncExitStack) -> None:
        """Take up what a dead process left behind."""
        ...

    async def run(self) -> None: ...

    def wake(self) -> None:
        """The queue has changed. Call it after the commit."""
        ...

    def abort(self, task_id: TaskId) -> None:
        """Cancel what runs of this task, here or elsewhere. Call it after the commit that took
        the lease away."""
        ...
