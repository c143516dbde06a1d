"""Exports ended spans to an OTLP collector and renders traces as OTLP/JSON.

It polls the store, so work is unaffected, outages are caught up with, and a restart neither repeats
nor loses spans."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

from storage.errors import NotFound, StoreUnavailable
from storage.key_value import KeyValueStore
from storage.records.tasks import TaskId
from storage.records.traces import SpanAttribute, SpanKind, Trace, TraceSpan
from storage.traces import SpanRepo

SCOPE_NAME = "shiftboss"

_INTERNAL, _CLIENT = 1, 3
_UNSET, _ERROR = 0, 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def build_request(traces: Iterable[Trace], *, version: str) -> dict[str, Any]:
    """Build an export request with all spans of the traces.

    Running spans end at the time of reading; `shiftboss.state` marks them."""
    spans = [_span(trace, span) for trace in traces for span in trace.spans]
    resource = {"service.name": SCOPE_NAME, "service.version": version}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": {"name": SCOPE_NAME, "version": version}, "spans": spans}],
            }
        ]
    }


def span_attributes(span: TraceSpan) -> Mapping[str, SpanAttribute]:
    return {
        **span.attributes,
        "shiftboss.kind": span.kind.value,
        "shiftboss.state": span.state.value,
    }


def unix_nanoseconds(at: datetime) -> int:
    """Exact to the microsecond."""
    since = at - _EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def _span(trace: Trace, span: TraceSpan) -> dict[str, Any]:
    status = {"code": _ERROR, "message": span.error} if span.state.is_failure else {"code": _UNSET}
    values = {
        "traceId": trace.id,
        "spanId": span.id,
        "name": span.name,
        "kind": _CLIENT if span.kind is SpanKind.LLM else _INTERNAL,
        "startTimeUnixNano": str(unix_nanoseconds(span.started_at)),
        "endTimeUnixNano": str(
            unix_nanoseconds(span.ended_at or max(trace.taken_at, span.started_at))
        ),
        "attributes": _attributes(span_attributes(span)),
        "status": status,
    }
    return values | ({"parentSpanId": span.parent} if span.parent else {})


def _attributes(values: Mapping[str, SpanAttribute]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: SpanAttribute) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            # JSON numbers don't hold 64 bits everywhere.
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case _:
            return {"arrayValue": {"values": [_value(each) for each in value]}}


log = logging.getLogger(__name__)

_SENT_KEY = "otlp:sent"
_MIN_PAUSE = 2.0
_MAX_PAUSE = 60.0

PAUSE_FACTOR = 5
"""Pause relative to the duration of an export, so that large traces don't take most of the time."""

_EndedSpan: TypeAlias = tuple[str, datetime]
"""Span ID and end time; a retried task ends twice."""


class SpanCollector(Protocol):
    async def send(self, trace: Trace) -> bool:
        """Send all spans; return False if they did not arrive. Never raises."""
        ...

    def close(self) -> None:
        """Abort sending."""
        ...


class TraceReader(Protocol):
    async def get_task_trace(self, task_id: TaskId) -> Trace: ...


@dataclass(slots=True, kw_only=True)
class SpanExporter:
    """Sends each span after its end, and again if its arrival is uncertain."""

    traces: TraceReader
    spans: SpanRepo
    key_values: KeyValueStore
    collector: SpanCollector
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    name: str = "otlp"
    _sent: dict[TaskId, set[_EndedSpan]] = field(default_factory=dict, init=False)
    _pause: float = field(default=_MIN_PAUSE, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        stack.callback(self.collector.close)

    async def run(self) -> None:
        while True:
            begun = self.now()
            try:
                arrived = await self.export_ended_spans()
            except StoreUnavailable as error:
                log.warning("no spans can be read now: %s", error)
                arrived = False
            took = (self.now() - begun).total_seconds()
            await self.sleep(max(self._next_pause(arrived=arrived), took * PAUSE_FACTOR))

    async def export_ended_spans(self) -> bool:
        """Send spans that ended since the last export; False if the collector failed."""
        at, mark = self.now(), await self.key_values.get(_SENT_KEY)
        since = mark and (mark["event"], datetime.fromisoformat(mark["at"]))
        event, until = since or (await self.spans.last_event_id(), at)
        active = await self.spans.list_active_tasks(after=event)
        for task_id in active.tasks:
            if not await self._send(task_id, until):
                return False
        self._sent = {each: sent for each, sent in self._sent.items() if each in active.running}
        if since is None or active.last_event_id != event or active.running:
            await self.key_values.put(
                _SENT_KEY, {"event": active.last_event_id, "at": at.isoformat()}
            )
        return True

    async def _send(self, task_id: TaskId, until: datetime) -> bool:
        try:
            trace = await self.traces.get_task_trace(task_id)
        except NotFound:
            return True
        sent = self._sent.get(task_id)
        ended = [(span, span.ended_at) for span in trace.spans if span.ended_at is not None]
        if sent is None:
            # First export in this process: spans that ended before the last position were sent.
            sent = {(span.id, end) for span, end in ended if end <= until}
        fresh: Sequence[TraceSpan] = [span for span, end in ended if (span.id, end) not in sent]
        if fresh and not await self.collector.send(replace(trace, spans=tuple(fresh))):
            return False
        self._sent[task_id] = {(span.id, end) for span, end in ended}
        return True

    def _next_pause(self, *, arrived: bool) -> float:
        if arrived and self._pause > _MIN_PAUSE:
            log.info("the span collector accepts spans again")
        self._pause = _MIN_PAUSE if arrived else min(self._pause * 2, _MAX_PAUSE)
        return self._pause
