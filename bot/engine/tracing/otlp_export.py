"""Exports ended spans to an OTLP collector and renders traces as OTLP/JSON.

It polls the store, so work is unaffected, outages are caught up with, and a restart neither repeats
nor loses spans."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, Self, TypeAlias

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
_COMMIT_DELAY = timedelta(minutes=1)
"""A span is committed at most this long after the time at which it ended, and perhaps only after
an export has read the spans up to that time."""

PAUSE_FACTOR = 5
"""Pause relative to the duration of an export, so that large traces don't take most of the time."""

_EndedSpan: TypeAlias = tuple[str, datetime]
"""Span ID and end time; a retried task ends twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExportMark:
    """How far the export has come: the last event, the time `until` which all spans are sent, and
    those that are sent of later ones."""

    event: int
    until: datetime
    recent: Mapping[TaskId, frozenset[_EndedSpan]] = field(default_factory=dict)

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Self:
        recent = {
            TaskId(task): frozenset((span, datetime.fromisoformat(end)) for span, end in spans)
            for task, spans in data.get("recent", {}).items()
        }
        return cls(event=data["event"], until=datetime.fromisoformat(data["at"]), recent=recent)

    def dump(self) -> dict[str, Any]:
        recent = {
            task: sorted([span, end.isoformat()] for span, end in spans)
            for task, spans in self.recent.items()
        }
        return {"event": self.event, "at": self.until.isoformat(), "recent": recent}

    def sent_since(
        self, at: datetime, sent: Mapping[TaskId, frozenset[_EndedSpan]]
    ) -> Mapping[TaskId, frozenset[_EndedSpan]]:
        """Spans that ended after this moment, of those noted here and of `sent`."""
        both = {task: self.recent.get(task, frozenset()) for task in {*self.recent, *sent}}
        late = {
            task: frozenset(each for each in spans | sent.get(task, frozenset()) if each[1] > at)
            for task, spans in both.items()
        }
        return {task: spans for task, spans in late.items() if spans}


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
    _sent: dict[TaskId, frozenset[_EndedSpan]] = field(default_factory=dict, init=False)
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
        last = None if mark is None else _ExportMark.load(mark)
        event = await self.spans.last_event_id() if last is None else last.event
        # Before the first export with a collector, everything counts as sent.
        known = last or _ExportMark(event=event, until=at)
        active = await self.spans.list_active_tasks(after=event)
        for task_id in active.tasks:
            if not await self._send(task_id, known):
                return False
        recent = known.sent_since(at - _COMMIT_DELAY, self._sent)
        self._sent = {each: sent for each, sent in self._sent.items() if each in active.running}
        if last is None or active.last_event_id != event or active.running:
            until = at if last is None else at - _COMMIT_DELAY
            made = _ExportMark(event=active.last_event_id, until=until, recent=recent)
            await self.key_values.put(_SENT_KEY, made.dump())
        return True

    async def _send(self, task_id: TaskId, last: _ExportMark) -> bool:
        try:
            trace = await self.traces.get_task_trace(task_id)
        except NotFound:
            return True
        sent = self._sent.get(task_id)
        ended = [(span, span.ended_at) for span in trace.spans if span.ended_at is not None]
        if sent is None:
            # First export in this process.
            before = frozenset((span.id, end) for span, end in ended if end <= last.until)
            sent = before | last.recent.get(task_id, frozenset())
        fresh: Sequence[TraceSpan] = [span for span, end in ended if (span.id, end) not in sent]
        if fresh and not await self.collector.send(replace(trace, spans=tuple(fresh))):
            return False
        self._sent[task_id] = frozenset((span.id, end) for span, end in ended)
        return True

    def _next_pause(self, *, arrived: bool) -> float:
        if arrived and self._pause > _MIN_PAUSE:
            log.info("the span collector accepts spans again")
        self._pause = _MIN_PAUSE if arrived else min(self._pause * 2, _MAX_PAUSE)
        return self._pause
