"""The update queue: numbered, confirmed by offset, long-polled by one client at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.emulators.telegram.errors import CONFLICTING_POLLER, WEBHOOK_ACTIVE, TelegramApiError
from tests.waiting import ChangeSignal

Json = dict[str, Any]

_NOT_BY_DEFAULT = frozenset({"chat_member", "message_reaction", "message_reaction_count"})


class UpdateQueue:
    def __init__(self, changes: ChangeSignal, first_id: int = 1000) -> None:
        self._changes = changes
        self._next_id = first_id
        self._waiting: list[Json] = []
        self._confirmed: list[Json] = []
        self._again: list[Json] = []
        self._allowed: Sequence[str] = ()
        self._poller = 0
        self.closed = False
        self.webhook = ""

    @property
    def unconfirmed(self) -> list[Json]:
        """Updates no getUpdates has acknowledged yet."""
        return list(self._waiting)

    @property
    def pollers(self) -> int:
        """How many getUpdates calls have come so far."""
        return self._poller

    def put(self, kind: str, content: Json) -> int:
        """Queue an update, unless the bot did not ask for this kind; returns its id or 0."""
        wanted = kind in self._allowed if self._allowed else kind not in _NOT_BY_DEFAULT
        if not wanted:
            return 0
        self._next_id += 1
        self._waiting.append({"update_id": self._next_id, kind: content})
        self._changes.notify()
        return self._next_id

    def put_raw(self, update: Json) -> int:
        """Queue an update exactly as given, only numbered: for kinds nobody knows yet."""
        self._next_id += 1
        self._waiting.append({"update_id": self._next_id, **update})
        self._changes.notify()
        return self._next_id

    def redeliver(self, count: int | None = None) -> int:
        """Hand out confirmed updates once more with the next answer; returns how many."""
        self._again = self._confirmed[-count:] if count else list(self._confirmed)
        self._changes.notify()
        return len(self._again)

    async def get(
        self, *, offset: int, limit: int, timeout: float, allowed: Sequence[str] | None
    ) -> list[Json]:
        """getUpdates. The newer of two pollers wins; the older gets a Conflict."""
        if self.webhook:
            raise TelegramApiError(409, WEBHOOK_ACTIVE)
        self._poller += 1
        me = self._poller
        self._changes.notify()
        if allowed is not None:
            self._allowed = allowed
        self._confirm(offset)
        try:
            async with asyncio.timeout(timeout if timeout > 0 else 0.001):
                while not self._ready(me):
                    await self._changes.next()
        except TimeoutError:
            pass
        if self._poller != me:
            raise TelegramApiError(409, CONFLICTING_POLLER)
        again, self._again = self._again, []
        return (again + self._waiting)[: min(max(limit, 1), 100)]

    def _ready(self, poller: int) -> bool:
        return bool(self._waiting or self._again) or self._poller != poller or self.closed

    def _confirm(self, offset: int) -> None:
        if offset < 0:
            offset = self._next_id + offset + 1
        done = [update for update in self._waiting if update["update_id"] < offset]
        self._confirmed += done
        self._waiting = self._waiting[len(done) :]
        if done:
            self._changes.notify()
