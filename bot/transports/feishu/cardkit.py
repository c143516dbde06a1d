"""CardKit cards: ordered updates with one queue and sequence per card, and paced streaming of
answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.transports.feishu.api import (
    FeishuApi,
    FeishuConnectionError,
    FeishuError,
    FeishuErrorKind,
    path_segment,
)
from bot.transports.limited_dict import LimitedDict
from bot.transports.ports import OutboundMessage
from cards.render.feishu.card import ANSWER_ELEMENT_ID, render_stream
from cards.render.feishu.elements import compact_json, truncate_line
from storage.records.messages import OutboxId

# Numbers that another process may have used since the sequence was stored.
_SEQUENCE_HEADROOM = 10_000
_SEQUENCE_JUMP = 500
_MAX_SEQUENCE_JUMPS = 5
# The platform locks a card while a press is being answered, three seconds at most.
_LOCKED_DELAY = 0.3
_MAX_LOCKED_ATTEMPTS = 12
_MAX_REMEMBERED = 1000


@dataclass(slots=True)
class _CardEntity:
    sequence: int
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class FeishuCardKit:
    def __init__(self, api: FeishuApi, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._api = api
        self._sleep = sleep
        self._entities = LimitedDict[str, _CardEntity](_MAX_REMEMBERED)

    async def create(self, card: Mapping[str, Any]) -> str:
        """Create a card entity, which can be sent once; returns its ID."""
        body = {"type": "card_json", "data": compact_json(card)}
        answer = await self._api.call("POST", "/cardkit/v1/cards", body=body, repeatable=True)
        return self._register(answer, sequence=0)

    async def convert_message(self, message_id: str) -> str:
        """Card ID of a message, converted to an entity if necessary."""
        body = {"message_id": message_id}
        answer = await self._api.call("POST", "/cardkit/v1/cards/id_convert", body=body)
        return self._register(answer, sequence=_SEQUENCE_HEADROOM)

    def adopt(self, card_id: str, sequence: int) -> None:
        """Continue a card of an earlier process from about this sequence."""
        if card_id not in self._entities:
            self._track(card_id, sequence + _SEQUENCE_HEADROOM)

    def get_sequence(self, card_id: str) -> int:
        """Last sequence number used, to be stored."""
        entity = self._entities.get(card_id)
        return entity.sequence if entity else 0

    async def update(self, card_id: str, card: Mapping[str, Any]) -> None:
        """Replace the whole card; its config controls streaming."""
        body = {"card": {"type": "card_json", "data": compact_json(card)}}
        await self._operate(card_id, "PUT", "", body)

    async def end_streaming(self, card_id: str, summary: str) -> None:
        """End streaming and replace the "being written" summary."""
        await self._configure(card_id, {"streaming_mode": False, "summary": {"content": summary}})

    async def resume_streaming(self, card_id: str) -> None:
        """Streaming ends after some minutes; long answers turn it on again."""
        await self._configure(card_id, {"streaming_mode": True})

    async def _configure(self, card_id: str, config: Mapping[str, Any]) -> None:
        body = {"settings": compact_json({"config": config})}
        await self._operate(card_id, "PATCH", "/settings", body)

    async def set_content(self, card_id: str, element_id: str, text: str) -> None:
        """Set the full text of one element."""
        path = f"/elements/{path_segment(element_id)}/content"
        await self._operate(card_id, "PUT", path, {"content": text})

    async def _operate(self, card_id: str, method: str, path: str, body: Mapping[str, Any]) -> None:
        """Run one operation in the card's queue, retrying locked cards and skipping used sequence
        numbers."""
        entity = self._entities.get(card_id) or self._track(card_id, _SEQUENCE_HEADROOM)
        target = f"/cardkit/v1/cards/{path_segment(card_id)}{path}"
        jumps, locked = 0, 0
        async with entity.lock:
            while True:
                entity.sequence += 1
                try:
                    numbered = {**body, "sequence": entity.sequence}
                    await self._api.call(method, target, body=numbered)
                except FeishuError as error:
                    if error.kind is FeishuErrorKind.SEQUENCE and jumps < _MAX_SEQUENCE_JUMPS:
                        entity.sequence += _SEQUENCE_JUMP << jumps
                        jumps += 1
                    elif (
                        error.kind is FeishuErrorKind.INTERACTING and locked < _MAX_LOCKED_ATTEMPTS
                    ):
                        locked += 1
                        await self._sleep(_LOCKED_DELAY)
                    else:
                        raise
                else:
                    return

    def _register(self, answer: Mapping[str, Any], *, sequence: int) -> str:
        card_id = str((answer.get("data") or {}).get("card_id", ""))
        if not card_id:
            raise FeishuError(-1, "the answer names no card", status=502)
        if card_id not in self._entities:
            self._track(card_id, sequence)
        return card_id

    def _track(self, card_id: str, sequence: int) -> _CardEntity:
        entity = self._entities[card_id] = _CardEntity(sequence)
        return entity


log = logging.getLogger(__name__)

# A card allows ten operations a second, some of them needed for presses and the final update, and
# each counts against the monthly quota. Long answers update less often.
_UPDATE_INTERVALS = ((20, 0.28), (60, 0.6))
_MAX_UPDATE_INTERVAL = 1.2
_CLOSE_TIMEOUT = 3.0
_MAX_REOPENINGS = 20

StreamOpener = Callable[[OutboundMessage], Awaitable[str]]
"""Prepares a message's card for streaming; returns its ID, or nothing."""


class _ActiveStream:
    def __init__(self) -> None:
        self.text = ""
        self.shown = ""
        self.card_id = ""
        self.updated = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


@dataclass(kw_only=True, eq=False)
class FeishuStreams:
    cardkit: FeishuCardKit
    open_stream: StreamOpener
    sleep: Callable[[float], Awaitable[None]]
    _streams: dict[OutboxId, _ActiveStream] = field(default_factory=dict, init=False)

    def show(self, message: OutboundMessage, markdown: str) -> None:
        """Show this text next, replacing text not shown yet."""
        stream = self._streams.get(message.outbox_id)
        if stream is None:
            stream = self._streams[message.outbox_id] = _ActiveStream()
            stream.task = asyncio.create_task(self._run(stream, message))
        stream.text = markdown
        stream.updated.set()

    async def finish(self, outbox_id: OutboxId) -> str | None:
        """Stop streaming. Returns the card ID if anything was streamed."""
        stream = self._streams.pop(outbox_id, None)
        if stream is None or stream.task is None:
            return None
        stream.task.cancel()
        (ended,) = await asyncio.gather(stream.task, return_exceptions=True)
        if isinstance(ended, Exception):
            log.error("feishu: streaming failed", exc_info=ended)
        return stream.card_id or None

    async def close(self) -> None:
        """Finish all streams, so that no card stays marked as being written."""
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                for outbox_id, stream in tuple(self._streams.items()):
                    card_id = await self.finish(outbox_id)
                    if card_id:
                        await self.cardkit.end_streaming(
                            card_id, truncate_line(stream.text, 120) or "…"
                        )
        except (FeishuError, FeishuConnectionError, TimeoutError) as error:
            log.info("feishu: a card could not be closed: %s", error)

    async def _run(self, stream: _ActiveStream, message: OutboundMessage) -> None:
        try:
            stream.card_id = await self.open_stream(message)
            if stream.card_id:
                await self._stream_text(stream, message.may_send)
        except (FeishuError, FeishuConnectionError) as error:
            log.info("feishu: streaming ended early: %s", error)

    async def _stream_text(self, stream: _ActiveStream, may_send: Callable[[], bool]) -> None:
        reopened = typed = 0
        while True:
            await stream.updated.wait()
            stream.updated.clear()
            text = render_stream(stream.text)
            if text.strip() and text != stream.shown and not may_send():
                stream.updated.set()
            elif text.strip() and text != stream.shown:
                try:
                    await self.cardkit.set_content(stream.card_id, ANSWER_ELEMENT_ID, text)
                    stream.shown = text
                    typed += 1
                except FeishuError as error:
                    if error.kind is FeishuErrorKind.STREAM_CLOSED and reopened < _MAX_REOPENINGS:
                        reopened += 1
                        await self.cardkit.resume_streaming(stream.card_id)
                    elif error.kind in (FeishuErrorKind.RATE, FeishuErrorKind.CHANNEL_RATE):
                        await self.sleep(error.retry_after or 1.0)
                    else:
                        raise
                    stream.updated.set()
            paces = (pace for upto, pace in _UPDATE_INTERVALS if typed < upto)
            await self.sleep(next(paces, _MAX_UPDATE_INTERVAL))
