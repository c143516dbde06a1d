"""What a chat needs to show what its workers are told first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from storage.records.context import ContextPart
from storage.records.people import Chat, Person


class Contexts(Protocol):
    async def parts(self, chat: Chat, person: Person) -> Sequence[ContextPart]:
        """In the order in which a worker of this person here is told them, and what it is not."""
        ...
