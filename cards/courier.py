"""Defines the port through which the engine and the handlers send cards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cards.model import Card
from storage.records.messages import DeliveryUrgency
from storage.records.people import ChatId


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
