"""Defines the port through which cards are sent, and sends them to the owners."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cards.catalog import TextCatalog, catalog_for
from cards.model import Card
from storage.records.messages import DeliveryUrgency
from storage.records.people import Chat, ChatId, Language


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRef:
    """A sent or queued card. The same `key` always means the same card."""

    key: str
    revision: int


class Courier(Protocol):
    """Implementations must store first and deliver later; `send` must survive a crash."""

    async def send(
        self, to: ChatId, card: Card, *, key: str, urgency: DeliveryUrgency, reply_to: str = ""
    ) -> CardRef:
        """Send `card` to the chat: as a new message first, as an edit of it later.

        Idempotent: the same card under the same key changes nothing. Only the newest revision is
        ever shown. `reply_to` is the platform's id of the message answered.
        """

    async def stream(self, ref: CardRef, markdown: str) -> None:
        """Show a partial answer in the card. Best effort and never stored: the answer is final once
        it is sent as a card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerCardSender:
    """Sends cards to the private chats of the owners, each in the language of its reader."""

    list_chats: Callable[[], Awaitable[Sequence[Chat]]]
    language_of: Callable[[Chat], Awaitable[Language]]
    courier: Courier

    async def notify(self, key: str, draw: Callable[[TextCatalog], Card]) -> None:
        """The same key is the same notice: repeating it sends nothing."""
        for chat in await self.list_chats():
            card = draw(catalog_for(await self.language_of(chat)))
            await self.courier.send(
                chat.id, card, key=f"{key}:{chat.id}", urgency=DeliveryUrgency.NOTICE
            )
