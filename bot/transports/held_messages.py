"""Messages that are held until somebody decides what to do with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from bot.transports.outbox import OutboxCourier
from bot.transports.ports import Clock
from cards.catalog import TextCatalog
from cards.views.chat import MAX_HELD_SHOWN, held_messages_card
from storage.db import Database, Transaction
from storage.messages.inbox import InboxRepo
from storage.records.messages import DeliveryUrgency, InboxRow
from storage.records.people import ChatId


@dataclass(kw_only=True, eq=False)
class HeldMessages:
    """Implements `handlers.ports.HeldMessagePort`. `on_release` receives each message that is to be
    handled after all, in the order of arrival.
    """

    db: Database
    inbox: InboxRepo
    courier: OutboxCourier
    zone: ZoneInfo
    clock: Clock
    on_release: Callable[[InboxRow], None] = lambda _: None

    async def offer(self, tx: Transaction, chat_id: ChatId, words: TextCatalog) -> None:
        """Show the chat's held messages on one card. Call `courier.wake` after the commit."""
        rows, total = await self.inbox.list_held(tx, chat_id, limit=MAX_HELD_SHOWN)
        card = held_messages_card(rows, total, words, now=self.clock.now(), zone=self.zone)
        await self.courier.post(
            tx,
            chat_id,
            await self.courier.prepare(card),
            # The next ones after a decision get a card of their own.
            key=f"held:{rows[0].id}",
            urgency=DeliveryUrgency.ANSWER,
        )

    async def release(self, chat_id: ChatId) -> int:
        async with self.db.write() as tx:
            rows = await self.inbox.release_held(tx, chat_id)
        for row in rows:
            self.on_release(row)
        return len(rows)

    async def drop(self, chat_id: ChatId) -> int:
        async with self.db.write() as tx:
            return await self.inbox.drop_held(tx, chat_id, now=self.clock.now())
