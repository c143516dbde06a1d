"""What `/trace` needs: what a task's run was made of."""

from __future__ import annotations

from typing import Protocol

from storage.records.tasks import TaskId
from storage.records.workers.spans import Trace


class TraceBook(Protocol):
    async def trace_of(self, task_id: TaskId) -> Trace:
        """As it is now, also while the task runs. Nothing of it holds a secret."""
        ...
