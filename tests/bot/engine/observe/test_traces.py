"""The trace of a task in a real store: while it runs, after it ended, over a death."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.answers import StepAnswer
from bot.engine.llm.base import BackendError, BackendUnavailable, Usage
from bot.engine.observe.ids import node_span, trace_id, workflow_span
from bot.engine.observe.trace import Traces
from bot.engine.workflow.graph import Edge, Node, Workflow
from bot.engine.workflow.model.nodes import Foreach, NodeType
from bot.engine.workflow.shown.anatomy import anatomy, dropped
from storage.agents.spans import SpanRepo
from storage.records.tasks import Task, TaskStatus
from storage.records.workers.spans import Span, SpanKind, SpanState, Trace
from storage.usage import UsageRepo
from tests.engine_world import BOSS, Clock, Engine, FakeBackend, engine


def reader(life: Engine) -> Traces:
    return Traces(
        db=life.db,
        tasks=life.store.tasks,
        graphs=life.store.graphs,
        spans=SpanRepo(life.db),
        anatomy=anatomy,
        dropped=dropped,
        mask=lambda text: text.replace("hunter2", "••••"),
        now=life.clock,
    )


async def traced(life: Engine, task: Task) -> Trace:
    return await reader(life).trace_of(task.id)


async def nothing(*_: Any, **__: Any) -> None:
    """In place of a write that a dead process does not make."""


def of(trace: Trace, kind: SpanKind) -> list[Span]:
    return [span for span in trace.spans if span.kind is kind]


def shape(trace: Trace) -> list[tuple[int, str]]:
    return [(span.depth, span.name) for span in trace.spans]


async def test_a_task_that_is_done_has_a_span_for_itself_each_step_and_each_call(
    tmp_path: Path,
) -> None:
    async with engine(tmp_path, FakeBackend(steps=("one", "two")), traced=True) as life:
        task = await life.add("Paint it")
        await life.until(task, TaskStatus.COMPLETED)
        trace = await traced(life, task)

        assert shape(trace) == [
            (0, "Paint it"),
            (1, "plan"),
            (2, "chat fake-1"),
            (1, "one"),
            (2, "chat fake-1"),
            (1, "two"),
            (2, "chat fake-1"),
        ]
        assert {span.state for span in trace.spans} == {SpanState.DONE}
        assert trace.id == trace_id(task.id)
        assert trace.whole.id == workflow_span(task.id)
        assert await UsageRepo(life.db).of_task(task.id) == trace.whole.spent


async def test_a_call_tells_model_purpose_tokens_and_how_it_finished(tmp_path: Path) -> None:
    async with engine(tmp_path, FakeBackend(steps=("one",)), traced=True) as life:
        task = await life.add()
        await life.until(task, TaskStatus.COMPLETED)
        plan, step = of(await traced(life, task), SpanKind.LLM)

        assert plan.attributes["shiftboss.purpose"] == "plan"
        assert step.attributes["shiftboss.purpose"] == "step"
        assert step.attributes["gen_ai.provider.name"] == "fake"
        assert step.attributes["gen_ai.response.model"] == "fake-1"
        assert step.attributes["gen_ai.usage.input_tokens"] == 10
        assert step.attributes["gen_ai.usage.output_tokens"] == 5
        assert step.attributes["gen_ai.response.finish_reasons"] == ["stop"]


async def test_what_is_under_way_is_there_while_it_runs(tmp_path: Path) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    def hold(_title: str) -> Any:
        begun.set()
        return gate

    async with engine(tmp_path, FakeBackend(steps=("one",), on_step=hold), traced=True) as life:
        task = await life.add()
        await begun.wait()
        trace = await traced(life, task)
        running = [span for span in trace.spans if span.state is SpanState.RUNNING]

        assert [span.kind for span in running] == [
            SpanKind.WORKFLOW,
            SpanKind.NODE,
            SpanKind.LLM,
        ]
        assert running[2].ended_at is None
        assert running[2].parent == running[1].id
        gate.set()
        await life.until(task, TaskStatus.COMPLETED)


async def test_a_call_whose_process_died_is_cut_off_and_the_step_goes_on_in_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    def hang(_title: str) -> Any:
        begun.set()
        return asyncio.Event()

    clock, worker = Clock(), FakeBackend(steps=("one",), on_step=hang)
    async with engine(tmp_path, worker, traced=True, clock=clock) as life:
        task = await life.add()
        await begun.wait()
        before = of(await traced(life, task), SpanKind.LLM)[-1]
        # Nothing more is written of it: so ends a process that is killed.
        monkeypatch.setattr(SpanRepo, "end", nothing)
    monkeypatch.undo()
    async with engine(tmp_path, FakeBackend(steps=("one",)), traced=True, clock=clock) as life:
        await life.until(task, TaskStatus.COMPLETED)
        trace = await traced(life, task)

    dead, alive = of(trace, SpanKind.LLM)[-2:]
    assert dead.id == before.id
    assert dead.state is SpanState.CUT
    assert dead.ended_at is not None
    assert alive.state is SpanState.DONE
    first, second = of(trace, SpanKind.NODE)[-2:]
    assert (first.state, second.state) == (SpanState.CUT, SpanState.DONE)
    assert first.id == node_span(task.id, str(first.attributes["shiftboss.node.path"]), 1)
    assert not any(span.state.is_open for span in trace.spans)


async def test_a_failed_call_names_its_class_and_not_its_words(tmp_path: Path) -> None:
    left = [BackendUnavailable("503 from sk-secret", usage=Usage(requests=1, input_tokens=7))]

    def fail(_title: str) -> BackendError | None:
        return left.pop() if left else None

    async with engine(tmp_path, FakeBackend(steps=("one",), on_step=fail), traced=True) as life:
        task = await life.add()
        await life.until(task, TaskStatus.COMPLETED)
        trace = await traced(life, task)

    failed = [span for span in trace.spans if span.state is SpanState.FAILED]
    assert [span.kind for span in failed] == [SpanKind.NODE, SpanKind.LLM]
    assert failed[1].error == "BackendUnavailable"
    assert failed[1].spent.input_tokens == 7
    assert "sk-secret" not in str([span.attributes for span in trace.spans])


async def test_an_answer_that_says_the_step_failed_fails_the_step_and_not_the_call(
    tmp_path: Path,
) -> None:
    told = [StepAnswer(status="error", summary="no paint")]

    async with engine(
        tmp_path,
        FakeBackend(steps=("one",), on_step=lambda _: told.pop() if told else None),
        traced=True,
    ) as life:
        task = await life.add()
        await life.until(task, TaskStatus.COMPLETED)
        trace = await traced(life, task)

    first = next(span for span in trace.spans if span.name == "one")
    assert first.state is SpanState.FAILED
    assert Counter(span.state for span in of(trace, SpanKind.LLM)) == {SpanState.DONE: 3}


async def test_rounds_are_within_what_runs_them(tmp_path: Path) -> None:
    each = Foreach(collection="[1, 2]", body=("do",))
    workflow = Workflow(
        plan="",
        nodes=(
            Node(id="all", title="All of them", type=NodeType.FOREACH, config=each),
            Node(id="do", title="One of them"),
            Node(id="last", title="Last"),
        ),
        edges=(Edge(source="all", target="last"),),
    )
    async with engine(tmp_path, traced=True) as life:
        task = await life.run_workflow(workflow)
        await life.until(task, TaskStatus.COMPLETED)
        trace = await traced(life, task)

    nodes = [(span.depth, span.name) for span in of(trace, SpanKind.NODE)]
    assert nodes == [
        (1, "All of them"),
        (2, "One of them [1]"),
        (2, "One of them [2]"),
        (1, "Last"),
    ]
    assert {span.state for span in trace.spans} == {SpanState.DONE}


async def test_what_newer_plans_have_dropped_is_called_as_it_was_called(tmp_path: Path) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    def hold(title: str) -> Any:
        if title != "Read b":
            return None
        begun.set()
        return gate

    each = Foreach(collection="['a', 'b', 'c']", body=("read",))
    workflow = Workflow(
        plan="",
        nodes=(
            Node(id="all", title="All letters", type=NodeType.FOREACH, config=each),
            Node(id="read", title="Read {{item}}"),
        ),
    )
    async with engine(tmp_path, FakeBackend(on_step=hold), traced=True) as life:
        task = await life.run_workflow(workflow)
        await begun.wait()
        await life.foreman.replan(task, "leave out c", by=BOSS, source="r:1")
        gate.set()
        await life.until(task, TaskStatus.COMPLETED)
        trace = await traced(life, task)

    nodes = {(span.depth, span.name) for span in of(trace, SpanKind.NODE)}
    assert {(1, "All letters"), (2, "Read a [1]"), (2, "Read b [2]")} <= nodes
    types = {span.attributes["shiftboss.node.type"] for span in of(trace, SpanKind.NODE)}
    assert "" not in types


async def test_no_secret_is_in_a_trace(tmp_path: Path) -> None:
    backend = FakeBackend(steps=("log in with hunter2",), models=("model-hunter2",))
    async with engine(tmp_path, backend, traced=True) as life:
        task = await life.add("Use hunter2")
        await life.until(task, TaskStatus.COMPLETED)
        trace = await traced(life, task)

        assert "hunter2" not in str(trace)
        async with life.db.read() as view:
            kept = (await SpanRepo(life.db).pieces(task.id, tx=view)).calls
        assert kept
        assert "hunter2" not in str(kept)


async def test_work_goes_on_where_no_span_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any) -> None:
        raise RuntimeError("no such table")

    monkeypatch.setattr(SpanRepo, "begin", broken)
    async with engine(tmp_path, FakeBackend(steps=("one", "two")), traced=True) as life:
        task = await life.add()
        await life.until(task, TaskStatus.COMPLETED)

        assert of(await traced(life, task), SpanKind.LLM) == []
    assert caplog.text.count("leave no spans") == 1


async def test_old_calls_of_ended_tasks_are_forgotten_and_no_others(tmp_path: Path) -> None:
    gate = asyncio.Event()

    def hold(title: str) -> Any:
        return gate if title == "open" else None

    async with engine(tmp_path, FakeBackend(steps=("one",), on_step=hold), traced=True) as life:
        ended = await life.add()
        await life.until(ended, TaskStatus.COMPLETED)
        life.clock.pass_by(days=1)
        life.backend.steps = ("open",)
        running = await life.add()
        await life.until(running, TaskStatus.RUNNING)

        repo = SpanRepo(life.db)
        assert await repo.prune(before=ended.created_at) == 0
        assert await repo.prune(before=life.clock()) == 2
        assert of(await traced(life, ended), SpanKind.LLM) == []
        gate.set()
        await life.until(running, TaskStatus.COMPLETED)
        assert len(of(await traced(life, running), SpanKind.LLM)) == 2
