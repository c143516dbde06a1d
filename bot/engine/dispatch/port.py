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
    interrupted work before new work, oldest first, one running task per project directory.

    Strictly more important work cuts in: what runs is asked to park at its next step boundary.
    What has waited too long goes first, but cuts in on nobody, and alternates with what cuts in
    on it: it does at least one step between any two. What waits for its time (`wake_at`) goes on
    when that has come. Nothing is polled for."""

    name: str

    async def start(self, stack: AsyncExitStack) -> None:
        """Take up what a dead process left behind."""
        ...

    async def run(self) -> None: ...

    async def drain(self) -> None:
        """Start nothing more and let go of what runs: at its next step boundary where it reaches
        that in time, else cancelled, so that it goes on at the next start. `run` goes on."""
        ...

    def wake(self) -> None:
        """The queue has changed. Call it after the commit."""
        ...

    def look_again(self, task_id: TaskId) -> None:
        """Whoever runs this task may have something to do for an order that was given of it. Call
        it after the commit."""
        ...

    def abort(self, task_id: TaskId) -> None:
        """Cancel what runs of this task, here or elsewhere. Call it after the commit that took
        the lease away."""
        ...
