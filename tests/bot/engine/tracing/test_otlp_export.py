"""Spans on their way to a collector: each once it has ended, over restarts, with or without it."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import Parse  # type: ignore[import-untyped]  # no stubs of its own
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bot.engine.tracing.otlp_collector import OtlpCollector
from bot.engine.tracing.otlp_export import (
    SpanExporter,
    TraceReader,
    build_request,
    unix_nanoseconds,
)
from bot.engine.tracing.span_ids import task_trace_id, workflow_span_id
from bot.engine.tracing.trace_reader import TaskTraceReader
from bot.engine.workflow.presentation.node_display import dropped_paths, node_namer
from storage.key_value import KeyValueStore
from storage.records.tasks import TaskId, TaskStatus
from storage.records.traces import ModelCall, SpanKind, SpanState, Trace
from storage.traces import SpanRepo
from tests.builders import NOW, make_span, make_trace
from tests.emulators.otlp import otlp_emulator
from tests.engine_harness import EngineHarness, FakeBackend, run_engine


@dataclass
class FakeCollector:
    up: bool = True
    taken: list[str] = field(default_factory=list)

    async def send(self, trace: Trace) -> bool:
        if self.up:
            self.taken += [f"{span.kind.value} {span.name}" for span in trace.spans]
        return self.up

    def close(self) -> None:
        pass


def build_exporter(life: EngineHarness, collector: FakeCollector) -> SpanExporter:
    spans = SpanRepo(life.db)
    return SpanExporter(
        traces=TaskTraceReader(
            db=life.db,
            tasks=life.store.tasks,
            graphs=life.store.graphs,
            spans=spans,
            name_lookup=node_namer,
            find_dropped=dropped_paths,
            redact=str,
            now=life.clock,
        ),
        spans=spans,
        key_values=KeyValueStore(life.db),
        collector=collector,
        now=life.clock,
        sleep=asyncio.sleep,
    )


ALL_SPANS = [
    "workflow Do it",
    "node plan",
    "llm chat fake-1",
    "node one",
    "llm chat fake-1",
]


async def test_each_span_is_sent_once_when_it_has_ended(tmp_path: Path) -> None:
    gate, begun, collector = asyncio.Event(), asyncio.Event(), FakeCollector()

    def hold(_title: str) -> Any:
        begun.set()
        return gate

    async with run_engine(tmp_path, FakeBackend(steps=("one",), on_step=hold), traced=True) as life:
        live = build_exporter(life, collector)
        await live.export_ended_spans()
        task = await life.create_task()
        await begun.wait()
        await live.export_ended_spans()
        assert collector.taken == ["node plan", "llm chat fake-1"]

        gate.set()
        await life.until(task, TaskStatus.COMPLETED)
        await live.export_ended_spans()
        await live.export_ended_spans()

    assert sorted(collector.taken) == sorted(ALL_SPANS)


async def test_what_ended_before_the_first_start_with_a_collector_is_not_sent(
    tmp_path: Path,
) -> None:
    collector = FakeCollector()
    async with run_engine(tmp_path, FakeBackend(steps=("one",)), traced=True) as life:
        await life.until(await life.create_task(), TaskStatus.COMPLETED)
        assert await build_exporter(life, collector).export_ended_spans()

    assert collector.taken == []


async def test_a_collector_that_was_down_gets_everything_when_it_is_up(tmp_path: Path) -> None:
    collector = FakeCollector()
    async with run_engine(tmp_path, FakeBackend(steps=("one",)), traced=True) as life:
        live = build_exporter(life, collector)
        await live.export_ended_spans()
        collector.up = False
        await life.until(await life.create_task(), TaskStatus.COMPLETED)
        assert not await live.export_ended_spans()
        assert not await live.export_ended_spans()
        collector.up = True
        assert await live.export_ended_spans()

    assert sorted(collector.taken) == sorted(ALL_SPANS)


async def test_a_new_process_goes_on_where_the_old_one_was(tmp_path: Path) -> None:
    collector = FakeCollector()
    async with run_engine(tmp_path, FakeBackend(steps=("one",)), traced=True) as life:
        await build_exporter(life, collector).export_ended_spans()
        await life.until(await life.create_task(), TaskStatus.COMPLETED)
        await build_exporter(life, collector).export_ended_spans()
        again = FakeCollector()
        await build_exporter(life, again).export_ended_spans()

    assert sorted(collector.taken) == sorted(ALL_SPANS)
    assert again.taken == []


@dataclass
class LateCommit:
    """Reads a trace, after which a call that has ended already is committed."""

    reader: TraceReader
    commit: Callable[[], Awaitable[None]]

    async def get_task_trace(self, task_id: TaskId) -> Trace:
        trace = await self.reader.get_task_trace(task_id)
        await self.commit()
        return trace


async def test_a_span_committed_while_an_export_read_is_sent_once_after_a_death(
    tmp_path: Path,
) -> None:
    gate, begun, collector, again = (
        asyncio.Event(),
        asyncio.Event(),
        FakeCollector(),
        FakeCollector(),
    )

    def hold(_title: str) -> Any:
        begun.set()
        return gate

    async with run_engine(tmp_path, FakeBackend(steps=("one",), on_step=hold), traced=True) as life:
        exporter = build_exporter(life, collector)
        await exporter.export_ended_spans()
        task = await life.create_task()
        await begun.wait()
        ended = life.clock()
        call = ModelCall(
            span_id="d" * 16,
            trace_id=task_trace_id(task.id),
            parent_id=workflow_span_id(task.id),
            name="late",
            task_id=task.id,
            attributes={},
            started_at=ended,
        )
        async with life.db.write() as tx:
            await exporter.spans.start_model_call(tx, call)

        async def commit() -> None:
            async with life.db.write() as tx:
                await exporter.spans.finish_model_call(
                    tx, call.span_id, status="done", name="late", attributes={}, now=ended
                )

        exporter.traces = LateCommit(exporter.traces, commit)
        await exporter.export_ended_spans()
        assert collector.taken == ["node plan", "llm chat fake-1"]
        # The process dies; the next one has only what is stored.
        for _ in range(2):
            await build_exporter(life, again).export_ended_spans()
        gate.set()
        await life.until(task, TaskStatus.COMPLETED)

    assert again.taken == ["llm late"]


@pytest.fixture
def unproxied(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


EXPORTED_TRACE = make_trace(
    TaskId("t"),
    make_span("a" * 16, SpanKind.WORKFLOW),
    make_span("b" * 16, SpanKind.LLM, parent="a" * 16, attributes={"gen_ai.usage.input_tokens": 7}),
    make_span("c" * 16, SpanKind.TOOL, SpanState.CUT_OFF, parent="b" * 16, error="cut"),
)


@pytest.mark.usefixtures("unproxied")
async def test_the_real_exporter_sends_ids_times_and_attributes_as_they_are() -> None:
    async with otlp_emulator() as emulator:
        collector = OtlpCollector(emulator.url, {"x-team": "blue"}, version="1.2")
        assert await collector.send(EXPORTED_TRACE)
        collector.close()

    (head,) = emulator.heads
    assert head.startswith("POST /v1/traces ")
    assert "x-team: blue" in head
    whole, call, tool = emulator.spans
    assert whole.trace_id.hex() == EXPORTED_TRACE.id
    assert (whole.span_id.hex(), call.parent_span_id.hex()) == ("a" * 16, "a" * 16)
    assert call.end_time_unix_nano - call.start_time_unix_nano == 10**9
    assert {each.key: each.value.int_value for each in call.attributes}[
        "gen_ai.usage.input_tokens"
    ] == 7
    assert tool.status.code == 2


@pytest.mark.usefixtures("unproxied")
async def test_a_collector_that_refuses_is_told_of_once_and_disturbs_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with otlp_emulator(400) as emulator:
        collector = OtlpCollector(emulator.url, {}, version="1.2")
        with caplog.at_level(logging.WARNING):
            assert not await collector.send(EXPORTED_TRACE)
            assert not await collector.send(EXPORTED_TRACE)
        collector.close()

    assert [record.name for record in caplog.records] == ["bot.engine.tracing.otlp_collector"]


TASK = TaskId("task-1")
ROOT_SPAN_ID = workflow_span_id(TASK)
TRACE = Trace(
    id=task_trace_id(TASK),
    task_id=TASK,
    taken_at=NOW + timedelta(seconds=90),
    spans=(
        make_span(ROOT_SPAN_ID, SpanKind.WORKFLOW, SpanState.RUNNING, name="粉刷 “it”"),
        make_span(
            "0" * 15 + "1",
            SpanKind.LLM,
            parent=ROOT_SPAN_ID,
            seconds=0.000001,
            attributes={
                "gen_ai.usage.input_tokens": 2**40,
                "gen_ai.response.finish_reasons": ["stop"],
                "a.flag": True,
                "a.share": 0.5,
            },
        ),
        make_span(
            "0" * 15 + "2", SpanKind.TOOL, SpanState.FAILED, parent=ROOT_SPAN_ID, error="denied"
        ),
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
    return parsed(build_request([TRACE], version="1.2"))


def test_a_collector_can_read_every_field() -> None:
    whole, call, tool = spans().scope_spans[0].spans

    assert whole.trace_id.hex() == TRACE.id
    assert whole.span_id.hex() == ROOT_SPAN_ID
    assert whole.parent_span_id == b""
    assert call.parent_span_id.hex() == ROOT_SPAN_ID
    assert whole.name == "粉刷 “it”"
    assert tool.status.code == 2
    assert tool.status.message == "denied"


def test_ids_and_numbers_have_the_forms_that_the_specification_asks_for() -> None:
    told = build_request([TRACE], version="1.2")["resourceSpans"][0]["scopeSpans"][0]["spans"][1]
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
    assert unix_nanoseconds(NOW + timedelta(microseconds=1)) - unix_nanoseconds(NOW) == 1000


def test_what_still_runs_ends_when_it_was_read_and_says_so() -> None:
    whole = spans().scope_spans[0].spans[0]
    told = {each.key: each.value.string_value for each in whole.attributes}

    assert whole.end_time_unix_nano == unix_nanoseconds(TRACE.taken_at)
    assert told["shiftboss.state"] == "running"
    assert told["shiftboss.kind"] == "workflow"


def test_it_says_who_made_it() -> None:
    resource = spans().resource.attributes

    assert {each.key: each.value.string_value for each in resource} == {
        "service.name": "shiftboss",
        "service.version": "1.2",
    }
