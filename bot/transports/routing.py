"""What the mail room hands arrivals to."""

from __future__ import annotations

from typing import Protocol

from handlers.request import Reply
from storage.records.messages import InboxRow, MessageIn


class Router(Protocol):
    def is_immediate(self, incoming: MessageIn) -> bool:
        """True for control words, which do not wait until the chat's turn comes."""
        ...

    def arriving(self, row: InboxRow) -> None:
        """A new message came: an answer being made in its chat may be cut short. Never raises."""
        ...

    async def waiting(self, row: InboxRow) -> Reply | None:
        """It is in its chat's lane now: if it has to wait there for an answer's end, show so.
        The reply to one that is sent away: it is settled by that, whatever happens then."""
        ...

    async def knows(self, incoming: MessageIn) -> bool:
        """True if whoever wrote this is paired: nothing of a stranger's is fetched."""
        ...

    async def handle(self, row: InboxRow, files: tuple[str, ...]) -> Reply:
        """The reply to one arrival. May be called again for the same row after a failure or a
        crash. `files` are what was sent along, relative to the data directory."""
        ...
