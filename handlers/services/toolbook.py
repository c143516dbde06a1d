"""What `/tools` needs: what workers may do, and what they did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from storage.records.tasks import TaskId
from storage.records.tools import CallRecord, GrantRecord


class ToolBook(Protocol):
    """Nothing it tells holds a secret."""

    async def grants(self) -> Sequence[GrantRecord]:
        """Leave that people gave for more than one call and have not taken back."""
        ...

    async def revoke(self, number: int) -> bool:
        """False if there is no such leave any more."""
        ...

    async def calls(self, task_id: TaskId, limit: int) -> Sequence[CallRecord]:
        """The newest calls of the task, oldest of them first."""
        ...
