"""What workers may look up of the past, whoever remembers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """`id` fetches it again; `title` says what it belongs to."""

    id: str
    title: str
    text: str
    at: datetime


class Memories(Protocol):
    """Those that one reader may see: never what the people who read along there may not."""

    async def search(self, query: str, limit: int) -> Sequence[Memory]:
        """Those that fit best, shortened, best first."""
        ...

    async def get(self, memory_id: str) -> Memory | None:
        """All of one; None where there is none, or none that this reader may see."""
        ...


MemoriesOf: TypeAlias = Callable[[PersonId | None, ChatId | None, TaskId | None], Memories]
"""What may be read by who works for this person, in this chat, on this task."""
