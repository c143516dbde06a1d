"""Notifies the owners, once each, of work that a restore left undone and of failing backups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from cards.catalog import TextCatalog, catalog_for
from cards.courier import OwnerCardSender
from cards.views.system import restored_card
from storage.db import Database, Transaction
from storage.key_value import KeyValueStore
from storage.messages.chats import ChatRepo
from storage.records.people import ChatId
from storage.restore import find_restore, list_chats_with_held, mark_restore_told


@dataclass(kw_only=True, eq=False)
class RestoreNotice:
    """At the first start after a restore. `offer` shows a chat its held messages on one card."""

    name = "restore notice"

    db: Database
    chats: ChatRepo
    key_values: KeyValueStore
    owners: OwnerCardSender
    zone: ZoneInfo
    offer: Callable[[Transaction, ChatId, TextCatalog], Awaitable[None]]

    async def start(self, stack: AsyncExitStack) -> None:
        record = await find_restore(self.key_values)
        if record is None or record.is_told:
            return
        await self.owners.notify(
            f"restored:{record.id}", lambda words: restored_card(record, words, zone=self.zone)
        )
        for chat_id in await list_chats_with_held(self.db):
            language = await self.owners.language_of(await self.chats.get(chat_id))
            async with self.db.write() as tx:
                await self.offer(tx, chat_id, catalog_for(language))
        async with self.db.write() as tx:
            await mark_restore_told(self.key_values, tx, record)

    async def run(self) -> None:
        """All is done at the start."""
