"""What the web chat needs from the rest of the program; `bot/app` plugs it in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from cards.model import Card
from cards.words import Words
from storage.records.messages import MessageIn, OutboxId, Place, Sender
from storage.records.people import Channel, ChatKind

PLACE = Place(channel=Channel.WEB, chat="local", kind=ChatKind.PRIVATE)
SENDER = Sender(external_id="local")
"""The local owner, in their one conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardShown:
    """One outbox row in its newest revision, shown or still queued. `card` is sealed, `at` is
    when the row was first made, `reply_to` the message it answers."""

    outbox_id: OutboxId
    revision: int
    card: Card
    at: datetime
    reply_to: str = ""


Said: TypeAlias = MessageIn | CardShown


class History(Protocol):
    async def recent(self, place: Place, limit: int) -> Sequence[Said]:
        """The newest `limit` messages of the conversation, oldest of them first: what the person
        wrote (from the inbox) and what they were shown (from the outbox, dead rows left out).
        Empty where the chat is not known yet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """The cards that answered, none if the message was handled before; `good` False if what it
    asked for was refused; `data` is the answer as plain JSON values, where there is one."""

    cards: Sequence[Card] = ()
    good: bool = True
    data: Mapping[str, Any] | None = None


class Speaker(Protocol):
    async def say(self, incoming: MessageIn, *, dedupe: str) -> Spoken:
        """Take the message in as `Intake.accept` does, wait until it is handled, and return what
        answered it. Unless it is quiet that also goes to the open pages, by the outbox."""
        ...


class Alerts(Protocol):
    def lines(self, words: Words) -> Sequence[str]:
        """What is wrong with a channel right now, one short text each. Must not block."""
        ...
