"""Streams unfinished answers to Telegram: as drafts in private chats, otherwise by paced edits of
one message."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from telegram.error import BadRequest, RetryAfter, TelegramError

from bot.transports.ports import OutboundMessage
from bot.transports.telegram.api import (
    TelegramErrorKind,
    classify_bad_request,
    describe_failure,
    retry_after_seconds,
)
from bot.transports.telegram.messages import (
    TelegramSender,
    TelegramShownMessage,
    TelegramTarget,
    parse_placed,
    part_digest,
)
from cards.catalog import catalog_for
from cards.render.telegram import InlineKeyboard, TextPart, render, render_stream
from storage.records.messages import OutboxId
from storage.records.people import ChatKind

_MAX_DRAFT_ID = 2**31 - 1
# How long a delivery waits for the stream's last request, which would otherwise overwrite the final
# text.
_FINISH_TIMEOUT = 5.0

log = logging.getLogger(__name__)

StreamSleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramStreamPace:
    """Seconds between updates. Drafts fade after 30 s: `keepalive` repeats them, at most
    `refreshes` times without new text."""

    draft: float = 0.3
    private: float = 1.0
    group: float = 3.0
    keepalive: float = 20.0
    refreshes: int = 30


@dataclass(slots=True, kw_only=True)
class _ActiveStream:
    target: TelegramTarget
    private: bool
    draft_id: int
    keyboard: InlineKeyboard
    message_id: str
    may_send: Callable[[], bool]
    pending: str = ""
    shown: str = ""
    written: bool = False
    digest: str = ""
    updated: asyncio.Event = field(default_factory=asyncio.Event)
    send_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    task: asyncio.Task[None] | None = None

    @property
    def is_drafting(self) -> bool:
        return self.private and not self.message_id


class TelegramStreams:
    """Streams of unfinished answers, one per message. No method raises."""

    def __init__(
        self, sender: TelegramSender, pace: TelegramStreamPace, sleep: StreamSleep
    ) -> None:
        self._sender = sender
        self._pace = pace
        self._sleep = sleep
        self._streams: dict[OutboxId, _ActiveStream] = {}

    def show(self, message: OutboundMessage, markdown: str, target: TelegramTarget) -> None:
        """Show this text as soon as the pace allows."""
        stream = self._streams.get(message.outbox_id)
        if stream is None:
            there = self._sender.current_chat(target.chat)
            stream = self._streams[message.outbox_id] = _open_stream(message, target, there)
            stream.task = asyncio.create_task(
                self._run(stream), name=f"telegram stream {message.outbox_id}"
            )
        stream.pending = markdown
        stream.updated.set()

    async def finish(self, outbox_id: OutboxId) -> TelegramShownMessage | None:
        """End a stream before the final text is shown; returns the message it used, if any."""
        stream = self._streams.pop(outbox_id, None)
        if stream is None or stream.task is None:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FINISH_TIMEOUT), stream.send_lock:
                stream.task.cancel()
        stream.task.cancel()
        await asyncio.wait([stream.task])
        if not (stream.message_id and stream.written):
            return None
        return TelegramShownMessage(
            message_id=stream.message_id,
            chat=self._sender.current_chat(stream.target.chat),
            digest=stream.digest,
        )

    async def close(self) -> None:
        for outbox_id in list(self._streams):
            await self.finish(outbox_id)

    async def _run(self, stream: _ActiveStream) -> None:
        while await self._wait_for_text(stream):
            try:
                async with stream.send_lock:
                    await self._push(stream)
            except RetryAfter as error:
                await self._sleep(retry_after_seconds(error))
                stream.updated.set()
            except TelegramError as error:
                if not _fall_back_to_message(stream, error):
                    log.debug("A stream ends early: %s", describe_failure(error))
                    return
            await self._sleep(self._interval(stream))

    async def _wait_for_text(self, stream: _ActiveStream) -> bool:
        """Wait for new text, repeating a draft before it fades."""
        for _ in range(self._pace.refreshes):
            try:
                async with asyncio.timeout(self._pace.keepalive):
                    await stream.updated.wait()
            except TimeoutError:
                if stream.is_drafting and stream.shown:
                    stream.shown = ""
                    return True
                continue
            stream.updated.clear()
            return True
        return False

    async def _push(self, stream: _ActiveStream) -> None:
        markdown = stream.pending
        part = render_stream(markdown)
        if not part.text or markdown == stream.shown:
            return
        if stream.is_drafting:
            await self._sender.send_draft(stream.target, stream.draft_id, part)
        elif stream.may_send():
            await self._write(stream, part)
        else:
            stream.updated.set()
            return
        stream.shown = markdown

    async def _write(self, stream: _ActiveStream, part: TextPart) -> None:
        shown = TextPart(text=part.text, marks=part.marks, keyboard=stream.keyboard)
        # Unknown until it is confirmed.
        stream.written, stream.digest = True, ""
        notes: list[str] = []
        there = bool(stream.message_id) and await self._sender.edit_text(
            stream.target, int(stream.message_id), shown, notes
        )
        if not there:
            stream.message_id = str(await self._sender.send_text(stream.target, shown, notes))
        # Plainer than it should be, it is not what the final text would show.
        stream.digest = "" if notes else part_digest(shown)

    def _interval(self, stream: _ActiveStream) -> float:
        if stream.is_drafting:
            return self._pace.draft
        return self._pace.private if stream.private else self._pace.group


def _open_stream(
    message: OutboundMessage, target: TelegramTarget, current_chat: int
) -> _ActiveStream:
    placed = parse_placed(message.placed, target.chat)
    texts = [one.message_id for one in placed if one.is_text and one.chat == current_chat]
    parts = render(message.card, catalog_for(message.language)).parts
    keyboards = [part.keyboard for part in parts if isinstance(part, TextPart)]
    return _ActiveStream(
        target=target,
        private=message.chat.kind is ChatKind.PRIVATE,
        draft_id=int(message.outbox_id) % _MAX_DRAFT_ID + 1,
        keyboard=keyboards[-1] if keyboards else (),
        message_id=texts[0] if texts else "",
        may_send=message.may_send,
    )


def _fall_back_to_message(stream: _ActiveStream, error: TelegramError) -> bool:
    """Use an ordinary message if drafts are refused."""
    if (
        stream.is_drafting
        and isinstance(error, BadRequest)
        and classify_bad_request(error) is TelegramErrorKind.DRAFT
    ):
        stream.private = False
        stream.updated.set()
        return True
    return False
