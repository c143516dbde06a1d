"""The card of a trace goes along with its task for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from bot.engine.observe.live import SHARE, TraceReader
from cards.courier import Courier
from cards.model import Card
from storage.errors import NotFound, StoreUnavailable
from storage.records.messages import Urgency
from storage.records.people import ChatId
from storage.records.tasks import TaskId
from storage.records.workers.spans import Span, SpanState, Trace

log = logging.getLogger(__name__)

PATIENCE = timedelta(minutes=10)
"""Nobody looks at a card for longer, and each edit is a call that a platform counts."""

_PACE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Followed:
    chat: ChatId
    key: str
    task_id: TaskId
    draw: Callable[[Trace], Card]
    since: datetime
    looks: int = 0
    seen: tuple[Span, ...] = ()


class TalkReader(Protocol):
    async def talk_of(self, chat_id: ChatId) -> Trace | None: ...


class TraceFollower:
    """Satisfies `handlers.services.traces.TraceBook`. `is_there` says whether a card was sent."""

    name = "followed traces"

    def __init__(
        self,
        *,
        traces: TraceReader,
        talks: TalkReader,
        courier: Courier,
        is_there: Callable[[str], Awaitable[bool]],
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._traces = traces
        self._talks = talks
        self._courier = courier
        self._is_there = is_there
        self._now = now
        self._sleep = sleep
        self._followed: dict[ChatId, _Followed] = {}
        self._news = asyncio.Event()

    async def trace_of(self, task_id: TaskId) -> Trace:
        return await self._traces.trace_of(task_id)

    async def talk_of(self, chat_id: ChatId) -> Trace | None:
        return await self._talks.talk_of(chat_id)

    def follow(
        self, chat: ChatId, key: str, task_id: TaskId, draw: Callable[[Trace], Card]
    ) -> None:
        self._followed[chat] = _Followed(
            chat=chat, key=key, task_id=task_id, draw=draw, since=self._now()
        )
        self._news.set()

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to prepare: what an earlier process followed stays as it was."""

    async def run(self) -> None:
        rest = _PACE
        while True:
            await self._news.wait()
            await self._sleep(rest)
            begun = self._now()
            await self.look()
            rest = max(_PACE, (self._now() - begun).total_seconds() * SHARE)
            if not self._followed:
                self._news.clear()

    async def look(self) -> None:
        """Show each of them as it is now, and leave those that are over."""
        for each in tuple(self._followed.values()):
            try:
                after = await self._shown(each)
            except StoreUnavailable as error:
                log.warning("the trace of %s cannot be shown now: %s", each.task_id, error)
                continue
            except NotFound:
                after = None
            if self._followed.get(each.chat) is not each:
                continue  # a newer one has come in its place meanwhile
            if after is None:
                del self._followed[each.chat]
            else:
                self._followed[each.chat] = after

    async def _shown(self, each: _Followed) -> _Followed | None:
        if not await self._is_there(each.key):
            # A program asked, or its card is still on its way.
            return None if each.looks else replace(each, looks=1)
        trace = await self._traces.trace_of(each.task_id)
        moves = any(span.state is SpanState.RUNNING for span in trace.spans)
        if moves or trace.spans != each.seen:
            card = each.draw(trace)
            await self._courier.send(each.chat, card, key=each.key, urgency=Urgency.PROGRESS)
        if not trace.whole.state.is_open or self._now() - each.since > PATIENCE:
            return None
        return replace(each, looks=each.looks + 1, seen=trace.spans)
