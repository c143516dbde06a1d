"""Spans on their way to a collector, as they end.

The store is followed from outside: work knows nothing of it, a collector that is down is caught up
with later, and after a restart nothing is sent twice or left out.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol, TypeAlias

from storage.agents.spans import SpanRepo
from storage.errors import NotFound, StoreUnavailable
from storage.marks import Marks
from storage.records.tasks import TaskId
from storage.records.workers.spans import Span, Trace

log = logging.getLogger(__name__)

_MARK = "otlp:sent"
_PACE = 2.0
_LONGEST_REST = 60.0

SHARE = 5
"""Traces of many thousand spans are looked at more rarely: most of the time is the work's."""

_Ended: TypeAlias = tuple[str, datetime]
"""A span and its end: a task that was tried again has ended twice."""


class Collector(Protocol):
    async def send(self, trace: Trace) -> bool:
        """All spans of it. False if they did not arrive; never raises."""
        ...

    def close(self) -> None:
        """Give up what is being sent."""
        ...


class TraceReader(Protocol):
    async def trace_of(self, task_id: TaskId) -> Trace: ...


@dataclass(slots=True, kw_only=True)
class LiveSpans:
    """Sends each span once it has ended, and again where nobody knows whether it arrived."""

    traces: TraceReader
    spans: SpanRepo
    marks: Marks
    collector: Collector
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    name: str = "otlp"
    _sent: dict[TaskId, set[_Ended]] = field(default_factory=dict, init=False)
    _rest: float = field(default=_PACE, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        stack.callback(self.collector.close)

    async def run(self) -> None:
        while True:
            begun = self.now()
            try:
                arrived = await self.look()
            except StoreUnavailable as error:
                log.warning("no spans can be read now: %s", error)
                arrived = False
            took = (self.now() - begun).total_seconds()
            await self.sleep(max(self._paced(arrived=arrived), took * SHARE))

    async def look(self) -> bool:
        """Send what has ended since the last look. False where the collector did not take it."""
        at, since = self.now(), await self._mark()
        event, until = since or (await self.spans.last_event(), at)
        stirred = await self.spans.stirred(after=event)
        for task_id in stirred.tasks:
            if not await self._send(task_id, until):
                return False
        self._sent = {each: sent for each, sent in self._sent.items() if each in stirred.running}
        if since is None or stirred.event != event or stirred.running:
            await self.marks.put(_MARK, {"event": stirred.event, "at": at.isoformat()})
        return True

    async def _send(self, task_id: TaskId, until: datetime) -> bool:
        try:
            trace = await self.traces.trace_of(task_id)
        except NotFound:
            return True
        sent = self._sent.get(task_id)
        ended = [(span, span.ended_at) for span in trace.spans if span.ended_at is not None]
        if sent is None:
            # Not followed by this process yet: what ended before the last look is there.
            sent = {(span.id, end) for span, end in ended if end <= until}
        fresh: Sequence[Span] = [span for span, end in ended if (span.id, end) not in sent]
        if fresh and not await self.collector.send(replace(trace, spans=tuple(fresh))):
            return False
        self._sent[task_id] = {(span.id, end) for span, end in ended}
        return True

    async def _mark(self) -> tuple[int, datetime] | None:
        mark = await self.marks.get(_MARK)
        return None if mark is None else (mark["event"], datetime.fromisoformat(mark["at"]))

    def _paced(self, *, arrived: bool) -> float:
        if arrived and self._rest > _PACE:
            log.info("the collector of spans takes them again")
        self._rest = _PACE if arrived else min(self._rest * 2, _LONGEST_REST)
        return self._rest
