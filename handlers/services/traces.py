"""What `/trace` needs: what a task's run was made of, or an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cards.model import Card
from storage.records.people import ChatId
from storage.records.tasks import TaskId
from storage.records.workers.spans import Trace


class TraceBook(Protocol):
    async def trace_of(self, task_id: TaskId) -> Trace:
        """As it is now, also while the task runs. Nothing of it holds a secret."""
        ...

    async def talk_of(self, chat_id: ChatId) -> Trace | None:
        """The last answer in that chat that was no task's; None where there is none."""
        ...

    def follow(
        self, chat: ChatId, key: str, task_id: TaskId, draw: Callable[[Trace], Card]
    ) -> None:
        """Draw the card under `key` anew while the task goes on, for some minutes, or until
        another is followed in that chat. Nothing if no such card is sent."""
        ...
