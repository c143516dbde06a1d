"""Updates trace cards in chats while their task runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from bot.engine.tracing.otlp_export import PAUSE_FACTOR, TraceReader
from cards.courier import Courier
from cards.model import Card
from storage.errors import NotFound, StoreUnavailable
from storage.records.messages import DeliveryUrgency
from storage.records.people import ChatId
from storage.records.tasks import TaskId
from storage.records.traces import SpanState, Trace, TraceSpan

log = logging.getLogger(__name__)

FOLLOW_FOR = timedelta(minutes=10)
"""Updates stop after this time, because platforms limit edits."""

_MIN_PAUSE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _FollowedCard:
    chat: ChatId
    key: str
    task_id: TaskId
    render: Callable[[Trace], Card]
    followed_since: datetime
    checks: int = 0
    shown_spans: tuple[TraceSpan, ...] = ()


class ChatTraces(Protocol):
    async def get_chat_trace(self, chat_id: ChatId) -> Trace | None: ...


class TraceCardUpdater:
    """Satisfies `handlers.ports_workers.TracePort`. `card_exists` tells whether a card was sent."""

    name = "followed traces"

    def __init__(
        self,
        *,
        traces: TraceReader,
        chat_traces: ChatTraces,
        courier: Courier,
        card_exists: Callable[[str], Awaitable[bool]],
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._traces = traces
        self._chat_traces = chat_traces
        self._courier = courier
        self._card_exists = card_exists
        self._now = now
        self._sleep = sleep
        self._followed: dict[ChatId, _FollowedCard] = {}
        self._has_cards = asyncio.Event()

    async def get_task_trace(self, task_id: TaskId) -> Trace:
        return await self._traces.get_task_trace(task_id)

    async def get_chat_trace(self, chat_id: ChatId) -> Trace | None:
        return await self._chat_traces.get_chat_trace(chat_id)

    def follow(
        self, chat: ChatId, key: str, task_id: TaskId, render: Callable[[Trace], Card]
    ) -> None:
        self._followed[chat] = _FollowedCard(
            chat=chat, key=key, task_id=task_id, render=render, followed_since=self._now()
        )
        self._has_cards.set()

    async def start(self, stack: AsyncExitStack) -> None:
        """Cards of earlier processes are not followed."""

    async def run(self) -> None:
        rest = _MIN_PAUSE
        while True:
            await self._has_cards.wait()
            await self._sleep(rest)
            begun = self._now()
            await self.update_cards()
            rest = max(_MIN_PAUSE, (self._now() - begun).total_seconds() * PAUSE_FACTOR)
            if not self._followed:
                self._has_cards.clear()

    async def update_cards(self) -> None:
        """Update each followed card and drop finished ones."""
        for each in tuple(self._followed.values()):
            try:
                after = await self._update_card(each)
            except StoreUnavailable as error:
                log.warning("the trace of %s cannot be shown now: %s", each.task_id, error)
                continue
            except NotFound:
                after = None
            if self._followed.get(each.chat) is not each:
                continue  # replaced by a newer card
            if after is None:
                del self._followed[each.chat]
            else:
                self._followed[each.chat] = after

    async def _update_card(self, each: _FollowedCard) -> _FollowedCard | None:
        if not await self._card_exists(each.key):
            # The request came from a program, or the card is still being sent.
            return None if each.checks else replace(each, checks=1)
        trace = await self._traces.get_task_trace(each.task_id)
        moves = any(span.state is SpanState.RUNNING for span in trace.spans)
        if moves or trace.spans != each.shown_spans:
            card = each.render(trace)
            await self._courier.send(
                each.chat, card, key=each.key, urgency=DeliveryUrgency.PROGRESS
            )
        if not trace.root.state.is_open or self._now() - each.followed_since > FOLLOW_FOR:
            return None
        return replace(each, checks=each.checks + 1, shown_spans=trace.spans)
