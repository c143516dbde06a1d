"""How the engine and the handlers speak to people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cards.model import Card
from storage.records.messages import Urgency
from storage.records.people import ChatId


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRef:
    """A card that is, or will be, in a chat. The same `key` is the same card for ever."""

    key: str
    revision: int


class Courier(Protocol):
    """Implementations store first and deliver later; both calls survive a crash."""

    async def send(
        self,
        to: ChatId,
        card: Card,
        *,
        key: str,
        urgency: Urgency,
        reply_to: str = "",
    ) -> CardRef:
        """Put `card` under `key` in the chat: a new message at first, an edit of it later.

        Idempotent: the same card under the same key again changes nothing. Only the newest
        revision is ever shown. `reply_to` is the platform's id of the message answered.
        """
        ...

    async def stream(self, ref: CardRef, markdown: str) -> None:
        """Show `markdown`, the answer so far, in the card. Best effort and never stored:
        the answer counts once it is sent as a card."""
        ...
