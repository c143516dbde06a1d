"""Traces as OTLP/JSON, the form that OpenTelemetry collectors read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from storage.records.workers.spans import Attribute, Span, SpanKind, Trace

SCOPE = "shiftboss"

_INTERNAL, _CLIENT = 1, 3
_UNSET, _ERROR = 0, 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def request_of(traces: Iterable[Trace], *, version: str) -> dict[str, Any]:
    """One export request with all spans of these traces. What still runs ends when the trace was
    read, and says so in `shiftboss.state`."""
    spans = [_span(trace, span) for trace in traces for span in trace.spans]
    resource = {"service.name": SCOPE, "service.version": version}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": {"name": SCOPE, "version": version}, "spans": spans}],
            }
        ]
    }


def attributes_of(span: Span) -> Mapping[str, Attribute]:
    return {
        **span.attributes,
        "shiftboss.kind": span.kind.value,
        "shiftboss.state": span.state.value,
    }


def nanoseconds(at: datetime) -> int:
    """Since 1970, exact to the microsecond."""
    since = at - _EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def _span(trace: Trace, span: Span) -> dict[str, Any]:
    status = {"code": _ERROR, "message": span.error} if span.state.is_wrong else {"code": _UNSET}
    told = {
        "traceId": trace.id,
        "spanId": span.id,
        "name": span.name,
        "kind": _CLIENT if span.kind is SpanKind.LLM else _INTERNAL,
        "startTimeUnixNano": str(nanoseconds(span.started_at)),
        "endTimeUnixNano": str(nanoseconds(span.ended_at or max(trace.at, span.started_at))),
        "attributes": _attributes(attributes_of(span)),
        "status": status,
    }
    return told | ({"parentSpanId": span.parent} if span.parent else {})


def _attributes(told: Mapping[str, Attribute]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in told.items()]


def _value(value: Attribute) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            # 64 bits are more than a JSON number holds everywhere.
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case _:
            return {"arrayValue": {"values": [_value(each) for each in value]}}
