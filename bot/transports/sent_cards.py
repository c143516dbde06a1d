"""Implements the handlers' ports for buttons and sent cards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from cards.card_json import CardDecodeError, load_card
from cards.model import Card, FormBlock
from handlers.ports import PressRefusal
from storage.messages.card_actions import CardActionRepo
from storage.messages.chats import ChatRepo
from storage.messages.outbox import OutboxRepo
from storage.records.messages import CardActionRow, InboxId, OutboxRow
from storage.records.people import Chat, ChatId, PersonId

_MAX_LOOKUPS, _LOOKUP_INTERVAL = 20, 0.1
"""Number of lookups for a card that is still being sent, and seconds between them."""


class ButtonClaimService:
    """Implements `handlers.ports.ButtonPort`."""

    def __init__(self, actions: CardActionRepo) -> None:
        self._actions = actions

    async def get_action(self, token: str) -> CardActionRow | None:
        return await self._actions.get_action(token)

    async def claim_press(
        self, token: str, *, person: PersonId, chat: ChatId, inbox_id: InboxId, now: datetime
    ) -> PressRefusal | None:
        claim = await self._actions.claim_press(
            token, person=person, chat=chat, inbox_id=inbox_id, now=now
        )
        return None if claim.is_effective else PressRefusal(claim.value)


@dataclass(eq=False)
class SentCardService:
    """Implements `handlers.ports.CardPort`."""

    outbox: OutboxRepo
    chats: ChatRepo
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def get_form(self, chat_id: ChatId, message_id: str) -> FormBlock | None:
        row = await self._find_shown(await self.chats.get(chat_id), message_id)
        card = None if row is None else _load_or_none(row.card)
        blocks = () if card is None else card.blocks
        return next((block for block in blocks if isinstance(block, FormBlock)), None)

    async def _find_shown(self, chat: Chat, message_id: str) -> OutboxRow | None:
        """A reply may arrive before the card's placement is stored."""
        for _ in range(_MAX_LOOKUPS):
            row = await self.outbox.find_by_platform_message(
                chat.channel, chat.external_id, message_id
            )
            if row is not None or not await self.outbox.is_delivering(chat.id):
                return row
            await self.sleep(_LOOKUP_INTERVAL)
        return None

    async def get_card(self, key: str) -> Card | None:
        row = await self.outbox.find_by_key(key)
        return None if row is None else _load_or_none(row.card)

    async def list_card_keys(self, prefix: str) -> Sequence[tuple[str, ChatId]]:
        return await self.outbox.list_by_prefix(prefix)

    async def list_cards_for_approval(self, approval_id: str) -> Sequence[tuple[str, ChatId]]:
        return await self.outbox.list_approval_cards(approval_id)


def _load_or_none(card: Mapping[str, object]) -> Card | None:
    try:
        return load_card(card)
    except CardDecodeError:
        # Another version wrote the card, so its buttons are unusable.
        return None
