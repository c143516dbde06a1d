"""Ports of the web chat, and errors that prevent its start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol, TypeAlias

from cards.catalog import TextCatalog
from cards.model import Card
from storage.records.messages import ChatAddress, IncomingMessage, MessageSender, OutboxId
from storage.records.people import Channel, ChatKind


class WebStartError(Exception):
    """`words(error.key, **error.facts)` is the message to show."""

    key: ClassVar[str]

    def __init__(self, **facts: object) -> None:
        self.facts = facts
        super().__init__(f"{self.key}: {facts}")


class PortInUse(WebStartError):
    key = "web.port_in_use"


class CannotListen(WebStartError):
    """The address is not local, or the port requires privileges."""

    key = "web.cannot_listen"


class OpenWithoutToken(WebStartError):
    """The address is reachable for others, but no token is configured."""

    key = "web.open_without_token"


LOCAL_PLACE = ChatAddress(channel=Channel.WEB, chat="local", kind=ChatKind.PRIVATE)
LOCAL_SENDER = MessageSender(external_id="local")
"""The local owner, in their only conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCard:
    """The latest revision of an outbox row. `at` is the row's creation time; `reply_to` is the
    message it answers."""

    outbox_id: OutboxId
    revision: int
    card: Card
    at: datetime
    reply_to: str = ""


HistoryItem: TypeAlias = IncomingMessage | ShownCard


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """Messages, oldest first. Older ones are `before` this time; None if there are none."""

    items: tuple[HistoryItem, ...]
    before: datetime | None = None


class WebHistoryReader(Protocol):
    async def read(
        self, place: ChatAddress, limit: int, before: datetime | None = None
    ) -> HistoryPage:
        """The last `limit` messages before a time, or of all: the person's (inbox) and the bot's
        (outbox, without dead rows). Empty for an unknown chat."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SayResult:
    """The cards of the answer, empty for a repeated message. `good` is False if the request was
    refused; `data` is the answer as JSON values, if any."""

    cards: Sequence[Card] = ()
    good: bool = True
    data: Mapping[str, Any] | None = None


class WebSayHandler(Protocol):
    async def say(self, incoming: IncomingMessage, *, dedupe: str) -> SayResult:
        """Accept a message like `InboxPort.accept`, wait until it is handled, and return the
        answer. Unless the message is quiet, open pages show it too."""
        ...


class WebAlertReader(Protocol):
    def describe(self, words: TextCatalog) -> Sequence[str]:
        """Current problems of channels, one short text each. Must not block."""
        ...
