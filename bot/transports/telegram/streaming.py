"""Answers in the making: a draft in a private chat, paced edits of one message elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from telegram.error import BadRequest, RetryAfter, TelegramError

from bot.transports.base import Letter
from bot.transports.telegram.errors import Trouble, reason, seconds, trouble
from bot.transports.telegram.placement import Shown, read_placed
from bot.transports.telegram.sending import Sender, Target
from cards.render.telegram import Keyboard, TextPart, render, render_markdown
from cards.words import words_for
from storage.records.messages import OutboxId
from storage.records.people import ChatKind

_DRAFT_IDS = 2**31 - 1
# How long a delivery may wait for a stream's last request: overtaken by it, the finished text
# would be replaced by half of it.
_LAST_WORDS = 5.0

log = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPace:
    """Seconds between two updates. A draft fades after 30 s: `keepalive` shows it again, at most
    `refreshes` times without anything new."""

    draft: float = 0.3
    private: float = 1.0
    group: float = 3.0
    keepalive: float = 20.0
    refreshes: int = 30


@dataclass(slots=True, kw_only=True)
class _Stream:
    target: Target
    private: bool
    draft_id: int
    keyboard: Keyboard
    message_id: str
    newest: str = ""
    shown: str = ""
    touched: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    task: asyncio.Task[None] | None = None

    @property
    def drafting(self) -> bool:
        return self.private and not self.message_id


class Streams:
    """One stream per letter. Nothing here ever fails a caller."""

    def __init__(self, sender: Sender, pace: StreamPace, sleep: Sleep) -> None:
        self._sender = sender
        self._pace = pace
        self._sleep = sleep
        self._streams: dict[OutboxId, _Stream] = {}

    def show(self, letter: Letter, markdown: str, target: Target) -> None:
        """Take the newest text; it is shown when the pace allows."""
        stream = self._streams.get(letter.outbox_id)
        if stream is None:
            there = self._sender.there(target.chat)
            stream = self._streams[letter.outbox_id] = _open(letter, target, there)
            stream.task = asyncio.create_task(
                self._run(stream), name=f"telegram stream {letter.outbox_id}"
            )
        stream.newest = markdown
        stream.news.set()

    async def finish(self, outbox_id: OutboxId) -> Shown | None:
        """End a stream before the finished text is shown; the message it wrote in, if any."""
        stream = self._streams.pop(outbox_id, None)
        if stream is None or stream.task is None:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS), stream.sending:
                stream.task.cancel()
        stream.task.cancel()
        await asyncio.wait([stream.task])
        if not (stream.message_id and stream.touched):
            return None
        return Shown(message_id=stream.message_id, chat=self._sender.there(stream.target.chat))

    async def close(self) -> None:
        for outbox_id in list(self._streams):
            await self.finish(outbox_id)

    async def _run(self, stream: _Stream) -> None:
        while await self._news(stream):
            try:
                async with stream.sending:
                    await self._push(stream)
            except RetryAfter as error:
                await self._sleep(seconds(error))
                stream.news.set()
            except TelegramError as error:
                if not _goes_on(stream, error):
                    log.debug("A stream ends early: %s", reason(error))
                    return
            await self._sleep(self._interval(stream))

    async def _news(self, stream: _Stream) -> bool:
        """Wait for text to show; a draft is shown again before it fades."""
        for _ in range(self._pace.refreshes):
            try:
                async with asyncio.timeout(self._pace.keepalive):
                    await stream.news.wait()
            except TimeoutError:
                if stream.drafting and stream.shown:
                    stream.shown = ""
                    return True
                continue
            stream.news.clear()
            return True
        return False

    async def _push(self, stream: _Stream) -> None:
        markdown = stream.newest
        part = render_markdown(markdown)
        if not part.text or markdown == stream.shown:
            return
        if stream.drafting:
            await self._sender.draft(stream.target, stream.draft_id, part)
        else:
            await self._write(stream, part)
        stream.shown = markdown

    async def _write(self, stream: _Stream, part: TextPart) -> None:
        shown = TextPart(text=part.text, marks=part.marks, keyboard=stream.keyboard)
        stream.touched = True
        if stream.message_id:
            message_id = int(stream.message_id)
            if await self._sender.edit(stream.target, message_id, shown, []):
                return
        stream.message_id = str(await self._sender.text(stream.target, shown, []))

    def _interval(self, stream: _Stream) -> float:
        if stream.drafting:
            return self._pace.draft
        return self._pace.private if stream.private else self._pace.group


def _open(letter: Letter, target: Target, there: int) -> _Stream:
    placed = read_placed(letter.placed, target.chat)
    texts = [one.message_id for one in placed if one.is_text and one.chat == there]
    parts = render(letter.card, words_for(letter.language)).parts
    keyboards = [part.keyboard for part in parts if isinstance(part, TextPart)]
    return _Stream(
        target=target,
        private=letter.chat.kind is ChatKind.PRIVATE,
        draft_id=int(letter.outbox_id) % _DRAFT_IDS + 1,
        keyboard=keyboards[-1] if keyboards else (),
        message_id=texts[0] if texts else "",
    )


def _goes_on(stream: _Stream, error: TelegramError) -> bool:
    """Where drafts are refused, an ordinary message takes their place."""
    if stream.drafting and isinstance(error, BadRequest) and trouble(error) is Trouble.DRAFT:
        stream.private = False
        stream.news.set()
        return True
    return False
