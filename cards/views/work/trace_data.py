"""A trace as plain JSON values and back, times to the microsecond: nothing of it is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from storage.records.tasks import Spent, TaskId
from storage.records.workers.spans import Span, SpanKind, SpanState, Trace

_SPENT = tuple(each.name for each in fields(Spent))


def trace_data(trace: Trace) -> dict[str, Any]:
    return {
        "id": trace.task_id or "",
        "trace": trace.id,
        "at": _told(trace.at),
        "spans": [_span_data(span, trace.at) for span in trace.spans],
    }


def trace_from(data: Mapping[str, Any]) -> Trace:
    """What `trace_data` has told."""
    return Trace(
        id=data["trace"],
        task_id=TaskId(data["id"]) if data["id"] else None,
        at=datetime.fromisoformat(data["at"]),
        spans=tuple(_span(each) for each in data["spans"]),
    )


def _span_data(span: Span, now: datetime) -> dict[str, Any]:
    return {
        "span": span.id,
        "parent": span.parent,
        "depth": span.depth,
        "name": span.name,
        "kind": span.kind.value,
        "state": span.state.value,
        "error": span.error,
        "started_at": _told(span.started_at),
        "ended_at": None if span.ended_at is None else _told(span.ended_at),
        "seconds": round(span.seconds(now), 6),
        "attributes": dict(span.attributes),
        "spent": {name: getattr(span.spent, name) for name in _SPENT},
    }


def _span(data: Mapping[str, Any]) -> Span:
    ended = data["ended_at"]
    return Span(
        id=data["span"],
        parent=data["parent"],
        depth=data["depth"],
        name=data["name"],
        kind=SpanKind(data["kind"]),
        state=SpanState(data["state"]),
        error=data["error"],
        started_at=datetime.fromisoformat(data["started_at"]),
        ended_at=None if ended is None else datetime.fromisoformat(ended),
        attributes=data["attributes"],
        spent=Spent(**data["spent"]),
    )


def _told(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")
