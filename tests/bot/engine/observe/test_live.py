"""Spans on their way to a collector: each once it has ended, over restarts, with or without it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bot.engine.observe.exporter import OtlpCollector
from bot.engine.observe.live import LiveSpans
from bot.engine.observe.trace import Traces
from bot.engine.workflow.shown.anatomy import anatomy
from storage.agents.spans import SpanRepo
from storage.marks import Marks
from storage.records.tasks import TaskId, TaskStatus
from storage.records.workers.spans import SpanKind, SpanState, Trace
from tests.engine_world import Engine, FakeBackend, engine
from tests.samples import a_span, a_trace


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


def live_on(life: Engine, collector: FakeCollector) -> LiveSpans:
    spans = SpanRepo(life.db)
    return LiveSpans(
        traces=Traces(
            db=life.db,
            tasks=life.store.tasks,
            graphs=life.store.graphs,
            spans=spans,
            anatomy=anatomy,
            mask=str,
            now=life.clock,
        ),
        spans=spans,
        marks=Marks(life.db),
        collector=collector,
        now=life.clock,
        sleep=asyncio.sleep,
    )


ALL = [
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

    async with engine(tmp_path, FakeBackend(steps=("one",), on_step=hold), traced=True) as life:
        live = live_on(life, collector)
        await live.look()
        task = await life.add()
        await begun.wait()
        await live.look()
        assert collector.taken == ["node plan", "llm chat fake-1"]

        gate.set()
        await life.until(task, TaskStatus.COMPLETED)
        await live.look()
        await live.look()

    assert sorted(collector.taken) == sorted(ALL)


async def test_what_ended_before_the_first_start_with_a_collector_is_not_sent(
    tmp_path: Path,
) -> None:
    collector = FakeCollector()
    async with engine(tmp_path, FakeBackend(steps=("one",)), traced=True) as life:
        await life.until(await life.add(), TaskStatus.COMPLETED)
        assert await live_on(life, collector).look()

    assert collector.taken == []


async def test_a_collector_that_was_down_gets_everything_when_it_is_up(tmp_path: Path) -> None:
    collector = FakeCollector()
    async with engine(tmp_path, FakeBackend(steps=("one",)), traced=True) as life:
        live = live_on(life, collector)
        await live.look()
        collector.up = False
        await life.until(await life.add(), TaskStatus.COMPLETED)
        assert not await live.look()
        assert not await live.look()
        collector.up = True
        assert await live.look()

    assert sorted(collector.taken) == sorted(ALL)


async def test_a_new_process_goes_on_where_the_old_one_was(tmp_path: Path) -> None:
    collector = FakeCollector()
    async with engine(tmp_path, FakeBackend(steps=("one",)), traced=True) as life:
        await live_on(life, collector).look()
        await life.until(await life.add(), TaskStatus.COMPLETED)
        await live_on(life, collector).look()
        again = FakeCollector()
        await live_on(life, again).look()

    assert sorted(collector.taken) == sorted(ALL)
    assert again.taken == []


@asynccontextmanager
async def loopback(status: int = 200) -> AsyncIterator[tuple[str, list[tuple[str, bytes]]]]:
    """A collector on this machine: what it is sent, with the line each request began with."""
    got: list[tuple[str, bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
        body = await reader.readexactly(int(fields["content-length"]))
        got.append((head, body))
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", got


@pytest.fixture
def unproxied(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


TRACE = a_trace(
    TaskId("t"),
    a_span("a" * 16, SpanKind.WORKFLOW),
    a_span("b" * 16, SpanKind.LLM, parent="a" * 16, attributes={"gen_ai.usage.input_tokens": 7}),
    a_span("c" * 16, SpanKind.TOOL, SpanState.CUT, parent="b" * 16, error="cut"),
)


@pytest.mark.usefixtures("unproxied")
async def test_the_real_exporter_sends_ids_times_and_attributes_as_they_are() -> None:
    async with loopback() as (url, got):
        collector = OtlpCollector(url, {"x-team": "blue"}, version="1.2")
        assert await collector.send(TRACE)
        collector.close()

    (head, body), *more = got
    assert not more
    assert head.startswith("POST /v1/traces ")
    assert "x-team: blue" in head
    sent = ExportTraceServiceRequest.FromString(body)
    whole, call, tool = sent.resource_spans[0].scope_spans[0].spans
    assert whole.trace_id.hex() == TRACE.id
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
    async with loopback(400) as (url, _):
        collector = OtlpCollector(url, {}, version="1.2")
        with caplog.at_level(logging.WARNING):
            assert not await collector.send(TRACE)
            assert not await collector.send(TRACE)
        collector.close()

    assert [record.name for record in caplog.records] == ["bot.engine.observe.exporter"]
