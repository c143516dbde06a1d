"""Answers in the making: the newest text typed into a card, at the platform's pace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from bot.transports.base import Letter
from bot.transports.feishu.cardkit import CardKit
from bot.transports.feishu.errors import Broken, FeishuError, Kind
from cards.render.feishu.card import ANSWER, streamed
from cards.render.feishu.size import cut
from storage.records.messages import OutboxId

log = logging.getLogger(__name__)

# Ten operations a second are the limit for a card; presses and the final update need room. Each
# of them counts against the tenant's monthly quota too: the longer an answer, the calmer.
_PACES = ((20, 0.28), (60, 0.6))
_CALMEST = 1.2
_CLOSING = 3.0
_REOPENINGS = 20

Open = Callable[[Letter], Awaitable[str]]
"""Makes a letter's card ready to stream into; the id of its entity, or nothing."""


class _Stream:
    def __init__(self) -> None:
        self.text = ""
        self.shown = ""
        self.card_id = ""
        self.news = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Streams:
    def __init__(
        self, *, cardkit: CardKit, opened: Open, pause: Callable[[float], Awaitable[None]]
    ) -> None:
        self._cardkit = cardkit
        self._open = opened
        self._pause = pause
        self._streams: dict[OutboxId, _Stream] = {}

    def offer(self, letter: Letter, markdown: str) -> None:
        """Show this text next; what was not shown yet is overtaken by it."""
        stream = self._streams.get(letter.outbox_id)
        if stream is None:
            stream = self._streams[letter.outbox_id] = _Stream()
            stream.task = asyncio.create_task(self._run(stream, letter))
        stream.text = markdown
        stream.news.set()

    async def end(self, outbox_id: OutboxId) -> str | None:
        """Stop typing. The id of the card if it was typed into, so that it can be settled."""
        stream = self._streams.pop(outbox_id, None)
        if stream is None or stream.task is None:
            return None
        stream.task.cancel()
        (ended,) = await asyncio.gather(stream.task, return_exceptions=True)
        if isinstance(ended, Exception):
            log.error("feishu: streaming failed", exc_info=ended)
        return stream.card_id or None

    async def close(self) -> None:
        """No card is left behind that says it is still being written."""
        try:
            async with asyncio.timeout(_CLOSING):
                for outbox_id, stream in tuple(self._streams.items()):
                    card_id = await self.end(outbox_id)
                    if card_id:
                        await self._cardkit.settle(card_id, cut(stream.text, 120) or "…")
        except (FeishuError, Broken, TimeoutError) as error:
            log.info("feishu: a card stays open: %s", error)

    async def _run(self, stream: _Stream, letter: Letter) -> None:
        try:
            stream.card_id = await self._open(letter)
            if stream.card_id:
                await self._type(stream)
        except (FeishuError, Broken) as error:
            log.info("feishu: streaming ended early: %s", error)

    async def _type(self, stream: _Stream) -> None:
        reopened = typed = 0
        while True:
            await stream.news.wait()
            stream.news.clear()
            text = streamed(stream.text)
            if text.strip() and text != stream.shown:
                try:
                    await self._cardkit.content(stream.card_id, ANSWER, text)
                    stream.shown = text
                    typed += 1
                except FeishuError as error:
                    if error.kind is Kind.STREAM_CLOSED and reopened < _REOPENINGS:
                        reopened += 1
                        await self._cardkit.reopen(stream.card_id)
                    elif error.kind in (Kind.RATE, Kind.CHANNEL_RATE):
                        await self._pause(error.retry_after or 1.0)
                    else:
                        raise
                    stream.news.set()
            await self._pause(_pace(typed))


def _pace(typed: int) -> float:
    return next((pace for upto, pace in _PACES if typed < upto), _CALMEST)
