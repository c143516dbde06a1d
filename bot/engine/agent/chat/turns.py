"""Whose turn it is in a chat: one answer at a time, cut short by what is newer, or waited for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from storage.records.people import ChatId

CUT = "cut"
WAIT = "wait"


@dataclass(slots=True)
class Turn:
    """An answer in the making. `cut` says that it was ended on purpose."""

    work: asyncio.Task[Any]
    cut: bool = False


class Turns:
    """`queue` is what a newer message does where the chat says nothing: `cut` or `wait`."""

    def __init__(self, queue: str = CUT) -> None:
        self._queue = queue
        self._chosen: dict[ChatId, str] = {}
        self._now: dict[ChatId, Turn] = {}
        self._locks: dict[ChatId, asyncio.Lock] = {}
        self._wanted: Counter[ChatId] = Counter()

    def choose(self, chat_id: ChatId, queue: str) -> None:
        """What the chat itself has chosen, empty for nothing: it counts at once."""
        if queue:
            self._chosen[chat_id] = queue
        else:
            self._chosen.pop(chat_id, None)

    def waits(self, chat_id: ChatId) -> bool:
        return (self._chosen.get(chat_id) or self._queue) == WAIT

    def interrupt(self, chat_id: ChatId) -> bool:
        """End the answer being made; False if there is none."""
        turn = self._now.get(chat_id)
        if turn is None or turn.cut:
            return False
        turn.cut = True
        turn.work.cancel()
        return True

    def arrived(self, chat_id: ChatId) -> bool:
        """A newer message came. True if it has to wait for the answer being made."""
        if self.waits(chat_id):
            return chat_id in self._now
        self.interrupt(chat_id)
        return False

    @asynccontextmanager
    async def one(self, chat_id: ChatId) -> AsyncGenerator[None]:
        """One after another: two answers at once would tangle the session they share."""
        lock = self._locks.setdefault(chat_id, asyncio.Lock())
        self._wanted[chat_id] += 1
        try:
            async with lock:
                yield
        finally:
            self._wanted[chat_id] -= 1
            if not self._wanted[chat_id]:
                del self._wanted[chat_id], self._locks[chat_id]

    @asynccontextmanager
    async def taken(self, chat_id: ChatId, work: asyncio.Task[Any]) -> AsyncGenerator[Turn]:
        """`work` is the answer being made here, and may be ended from outside."""
        turn = self._now[chat_id] = Turn(work)
        try:
            yield turn
        finally:
            del self._now[chat_id]
