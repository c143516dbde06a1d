"""What was said and whose answer was cut short: the next answer is told, also after a restart."""

from __future__ import annotations

import logging

from bot.engine.memory.telling.told import without_asides
from storage.errors import StoreUnavailable
from storage.marks import Marks
from storage.records.people import ChatId

log = logging.getLogger(__name__)

LONGEST = 4000


class Unanswered:
    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._known: dict[ChatId, str] = {}

    async def get(self, chat_id: ChatId) -> str:
        """Empty if nothing was left without an answer."""
        if chat_id not in self._known:
            self._known[chat_id] = str(await self._marks.get(_name(chat_id)) or "")
        return self._known[chat_id]

    async def keep(self, chat_id: ChatId, said: str) -> None:
        """Its end, where it is long, and nothing of what was remembered beside it."""
        self._known[chat_id] = without_asides(said)[-LONGEST:]
        try:
            await self._marks.put(_name(chat_id), self._known[chat_id])
        except StoreUnavailable as error:
            log.warning("What was left unanswered in %s is kept in memory only: %s", chat_id, error)

    async def forget(self, chat_id: ChatId) -> None:
        if await self.get(chat_id):
            self._known[chat_id] = ""
            await self._marks.put(_name(chat_id), None)


def _name(chat_id: ChatId) -> str:
    return f"unanswered:{chat_id}"
