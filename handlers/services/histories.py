"""What people need to look back into what they said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from storage.records.people import Chat, ChatId, Person


@dataclass(frozen=True, slots=True, kw_only=True)
class PastLine:
    """What somebody said, or was answered (`by_bot`), around what was looked for. `task` is whose
    session it stands in, empty for a conversation; `elsewhere` says that it was in another chat,
    `near` that it has only some of the words, because nothing has all. `ref` is what
    workers' tools call it."""

    at: datetime
    by_bot: bool
    text: str
    ref: str
    task: str = ""
    elsewhere: bool = False
    near: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PastLines:
    """`cut`: there was no time to look at all; what is found is of the newest."""

    lines: Sequence[PastLine]
    cut: bool = False


class Histories(Protocol):
    async def search(
        self, person: Person, chat: Chat, words: Sequence[str], limit: int
    ) -> PastLines:
        """What has all of these words, or else most of them, what fits best and is newer first: of
        this chat, and where only this person reads, of their own private chats and tasks too."""
        ...

    async def last(self, person: Person, chat: Chat, limit: int) -> Sequence[PastLine]:
        """The newest first."""
        ...

    async def compact(self, chat: ChatId) -> bool:
        """Have the conversation under way summarised soon. False if there is none."""
        ...
