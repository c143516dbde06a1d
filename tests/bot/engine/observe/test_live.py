"""Spans on their way to a collector: each once it has ended, over restarts, with or without it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bot.engine.observe.exporter import OtlpCollector
from bot.engine.observe.live import LiveSpans
from bot.engine.observe.trace import Traces
from bot.engine.workflow.shown.anatomy import anatomy, dropped
from storage.agents.spans import SpanRepo
from storage.marks import Marks
from storage.records.tasks import TaskId, TaskStatus
from storage.records.workers.spans import SpanKind, SpanState, Trace
from tests.emulators.otlp import otlp_emulator
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
            dropped=dropped,
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
    async with otlp_emulator() as emulator:
        collector = OtlpCollector(emulator.url, {"x-team": "blue"}, version="1.2")
        assert await collector.send(TRACE)
        collector.close()

    (head,) = emulator.heads
    assert head.startswith("POST /v1/traces ")
    assert "x-team: blue" in head
    whole, call, tool = emulator.spans
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
    async with otlp_emulator(400) as emulator:
        collector = OtlpCollector(emulator.url, {}, version="1.2")
        with caplog.at_level(logging.WARNING):
            assert not await collector.send(TRACE)
            assert not await collector.send(TRACE)
        collector.close()

    assert [record.name for record in caplog.records] == ["bot.engine.observe.exporter"]
