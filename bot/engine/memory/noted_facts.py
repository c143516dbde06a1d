"""Tells a chat once what a model noted from it: below its next answer, or on one card a day."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from cards.catalog import catalog_for
from cards.courier import Courier
from cards.views.memory import noted_card
from storage.db import Database, Transaction
from storage.errors import NotFound, StoreUnavailable
from storage.key_value import KeyValueStore
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import EntryId, MemoryEntry, MemoryState
from storage.records.messages import DeliveryUrgency
from storage.records.people import ChatId, Language

log = logging.getLogger(__name__)

_UNTOLD = "memory.noted"
_MAX_UNTOLD = 5
_DAY = timedelta(days=1)
_LOOK_SECONDS = 600.0


class NoticeMode(StrEnum):
    LINE = "line"
    DAILY = "daily"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedFacts:
    """Tells, by chat, what was noted and is not told yet. All state is in the store."""

    key_values: KeyValueStore
    entries: MemoryEntryRepo
    mode: NoticeMode

    async def add(self, tx: Transaction, chat: ChatId, noted: Sequence[MemoryEntry]) -> None:
        if self.mode is NoticeMode.OFF or not noted:
            return
        untold = await self._read(tx)
        known = untold.get(chat, {})
        ids = dict.fromkeys((*known.get("ids", ()), *(each.id for each in noted)))
        untold[chat] = {**known, "ids": [*ids][-_MAX_UNTOLD:]}
        await self.key_values.write(tx, _UNTOLD, untold)

    async def take_for_answer(self, tx: Transaction, chat: ChatId) -> Sequence[MemoryEntry]:
        """Facts to tell with an answer that is stored in this transaction; it is not told again."""
        if self.mode is not NoticeMode.LINE:
            return ()
        untold = await self._read(tx)
        ids = untold.pop(chat, {}).get("ids", ())
        if ids:
            await self.key_values.write(tx, _UNTOLD, untold)
        return await self._list_active(ids, tx)

    async def list_due(
        self, tx: Transaction, *, now: datetime
    ) -> dict[ChatId, Sequence[MemoryEntry]]:
        """Facts to tell each chat on a card; none had one within a day."""
        return {
            ChatId(chat): await self._list_active(known["ids"], tx)
            for chat, known in (await self._read(tx)).items()
            if known["ids"] and now - _told_at(known, now - _DAY) >= _DAY
        }

    async def mark_told(self, tx: Transaction, chat: ChatId, *, now: datetime) -> None:
        untold = await self._read(tx)
        untold[chat] = {"ids": [], "told_at": now.isoformat()}
        await self.key_values.write(tx, _UNTOLD, untold)

    async def _read(self, tx: Transaction) -> dict[str, dict[str, list[str] | str]]:
        return dict(await self.key_values.read(tx, _UNTOLD) or {})

    async def _list_active(self, ids: Sequence[str], tx: Transaction) -> Sequence[MemoryEntry]:
        """Those that still hold: others were forgotten or replaced meanwhile."""
        found = []
        for each in ids:
            try:
                entry = await self.entries.get(EntryId(each), None, tx=tx)
            except NotFound:
                continue
            if entry.state is MemoryState.ACTIVE:
                found.append(entry)
        return found


@dataclass(slots=True, kw_only=True)
class NotedFactNotifier:
    """A service that sends the cards."""

    name = "noted facts"

    db: Database
    noted: NotedFacts
    courier: Courier
    language_of: Callable[[ChatId], Awaitable[Language]]
    zone: ZoneInfo
    now: Callable[[], datetime]

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to prepare."""

    async def run(self) -> None:
        while self.noted.mode is NoticeMode.DAILY:
            try:
                await self.send_due()
            except StoreUnavailable as error:
                log.warning("what was noted is told later: %s", error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def send_due(self) -> None:
        now = self.now()
        async with self.db.write() as tx:
            due = await self.noted.list_due(tx, now=now)
        for chat, entries in due.items():
            if entries:
                words = catalog_for(await self.language_of(chat))
                # After a crash before it is marked, the same card is sent again under its key.
                await self.courier.send(
                    chat,
                    noted_card(entries, words, zone=self.zone),
                    key=f"noted:{chat}:{now:%Y-%m-%d}",
                    urgency=DeliveryUrgency.PROGRESS,
                )
            async with self.db.write() as tx:
                await self.noted.mark_told(tx, chat, now=now)


def _told_at(known: dict[str, list[str] | str], default: datetime) -> datetime:
    told = known.get("told_at")
    return datetime.fromisoformat(told) if isinstance(told, str) else default
