"""OTLP/JSON is what the protobuf schema of OpenTelemetry says it is."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any

from google.protobuf.json_format import (  # type: ignore[import-untyped] # no stubs of its own
    Parse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bot.engine.observe.ids import trace_id, workflow_span
from bot.engine.observe.otlp import nanoseconds, request_of
from storage.records.tasks import TaskId
from storage.records.workers.spans import SpanKind, SpanState, Trace
from tests.samples import NOW, a_span

TASK = TaskId("task-1")
WHOLE = workflow_span(TASK)
TRACE = Trace(
    id=trace_id(TASK),
    task_id=TASK,
    at=NOW + timedelta(seconds=90),
    spans=(
        a_span(WHOLE, SpanKind.WORKFLOW, SpanState.RUNNING, name="粉刷 “it”"),
        a_span(
            "0" * 15 + "1",
            SpanKind.LLM,
            parent=WHOLE,
            seconds=0.000001,
            attributes={
                "gen_ai.usage.input_tokens": 2**40,
                "gen_ai.response.finish_reasons": ["stop"],
                "a.flag": True,
                "a.share": 0.5,
            },
        ),
        a_span("0" * 15 + "2", SpanKind.TOOL, SpanState.FAILED, parent=WHOLE, error="denied"),
    ),
)


def parsed(request: dict[str, Any]) -> Any:
    """As a collector reads it. Protobuf's own JSON has bytes in base64; OTLP has ids in hex."""
    told = json.loads(json.dumps(request))
    for resource in told["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    found = Parse(json.dumps(told), ExportTraceServiceRequest())
    return found.resource_spans[0]


def spans() -> Any:
    return parsed(request_of([TRACE], version="1.2"))


def test_a_collector_can_read_every_field() -> None:
    whole, call, tool = spans().scope_spans[0].spans

    assert whole.trace_id.hex() == TRACE.id
    assert whole.span_id.hex() == WHOLE
    assert whole.parent_span_id == b""
    assert call.parent_span_id.hex() == WHOLE
    assert whole.name == "粉刷 “it”"
    assert tool.status.code == 2
    assert tool.status.message == "denied"


def test_ids_and_numbers_have_the_forms_that_the_specification_asks_for() -> None:
    told = request_of([TRACE], version="1.2")["resourceSpans"][0]["scopeSpans"][0]["spans"][1]
    numbers = {each["key"]: each["value"] for each in told["attributes"]}

    assert len(told["traceId"]) == 32
    assert len(told["spanId"]) == 16
    assert told["kind"] == 3
    assert numbers["gen_ai.usage.input_tokens"] == {"intValue": str(2**40)}
    assert numbers["a.flag"] == {"boolValue": True}
    assert numbers["a.share"] == {"doubleValue": 0.5}
    assert numbers["gen_ai.response.finish_reasons"] == {
        "arrayValue": {"values": [{"stringValue": "stop"}]}
    }


def test_times_are_nanoseconds_and_exact() -> None:
    call = spans().scope_spans[0].spans[1]

    assert call.end_time_unix_nano - call.start_time_unix_nano == 1000
    assert nanoseconds(NOW + timedelta(microseconds=1)) - nanoseconds(NOW) == 1000


def test_what_still_runs_ends_when_it_was_read_and_says_so() -> None:
    whole = spans().scope_spans[0].spans[0]
    told = {each.key: each.value.string_value for each in whole.attributes}

    assert whole.end_time_unix_nano == nanoseconds(TRACE.at)
    assert told["shiftboss.state"] == "running"
    assert told["shiftboss.kind"] == "workflow"


def test_it_says_who_made_it() -> None:
    resource = spans().resource.attributes

    assert {each.key: each.value.string_value for each in resource} == {
        "service.name": "shiftboss",
        "service.version": "1.2",
    }
