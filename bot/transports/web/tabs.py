"""The open pages of the web chat, and what each still has to be shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from bot.transports.web.frames import Frame, Partial, Shown, Signal, card_id, frame_of
from bot.transports.web.ports import CardShown
from cards.words import Words
from storage.records.messages import MessageIn, OutboxId

_REST = 0.1
_BYTES_A_SECOND = 500_000
_MOST_WAITING = 1_000
_REMEMBERED = 1_000


class SlowPage(Exception):
    """A page that stopped reading: it is cut off and catches up when it connects again."""


class Tab:
    """What waits for one page, newest under each key only. The first goes out at once, later
    ones together after a short rest, a longer one where there is much to show."""

    def __init__(self, words: Words, sleep: Callable[[float], Awaitable[None]]) -> None:
        self.words = words
        self._sleep = sleep
        self._waiting: dict[str, Shown] = {}
        self._something = asyncio.Event()

    def push(self, key: str, shown: Shown) -> None:
        self._waiting.pop(key, None)
        self._waiting[key] = shown
        self._something.set()

    async def feed(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Send what waits, until cancelled. SlowPage when too much has piled up."""
        while True:
            await self._something.wait()
            if len(self._waiting) > _MOST_WAITING:
                raise SlowPage
            batch = list(self._waiting.values())
            self._waiting.clear()
            self._something.clear()
            # In a thread: rendering a very long answer takes a good part of a second.
            texts = await asyncio.to_thread(_texts, batch, self.words)
            for text in texts:
                await send(text)
            await self._sleep(_REST + sum(map(len, texts)) / _BYTES_A_SECOND)


class Tabs:
    """All open pages, and what is newest of each card: an older revision is never shown."""

    def __init__(self) -> None:
        self._open: set[Tab] = set()
        self._newest: dict[OutboxId, int] = {}
        self._partials: dict[OutboxId, Partial] = {}

    def join(self, tab: Tab) -> None:
        self._open.add(tab)
        for partial in self._partials.values():
            tab.push(card_id(partial.outbox_id), partial)

    def leave(self, tab: Tab) -> None:
        self._open.discard(tab)

    def show(self, shown: CardShown) -> None:
        if shown.revision < self._newest.get(shown.outbox_id, 0):
            return
        self._newest.pop(shown.outbox_id, None)
        self._newest[shown.outbox_id] = shown.revision
        while len(self._newest) > _REMEMBERED:
            del self._newest[next(iter(self._newest))]
        self._partials.pop(shown.outbox_id, None)
        self._push(card_id(shown.outbox_id), shown)

    def show_partial(self, partial: Partial) -> None:
        if partial.revision < self._newest.get(partial.outbox_id, 0):
            return
        self._partials.pop(partial.outbox_id, None)
        self._partials[partial.outbox_id] = partial
        while len(self._partials) > _REMEMBERED:
            del self._partials[next(iter(self._partials))]
        self._push(card_id(partial.outbox_id), partial)

    def show_said(self, message: MessageIn) -> None:
        self._push(f"said-{message.message_id}", message)

    def working(self) -> None:
        self._push("working", Signal(frame={"type": "working"}))

    def refresh(self, key: str, frame: Callable[[Words], Frame]) -> None:
        """Push to every page what `frame` makes in the page's language."""
        for tab in self._open:
            tab.push(key, Signal(frame=frame(tab.words)))

    def _push(self, key: str, shown: Shown) -> None:
        for tab in self._open:
            tab.push(key, shown)


def _texts(batch: list[Shown], words: Words) -> list[str]:
    return [json.dumps(frame_of(shown, words), ensure_ascii=False) for shown in batch]
