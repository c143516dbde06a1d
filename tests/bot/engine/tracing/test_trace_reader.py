"""The trace of a task in a real store: while it runs, after it ended, over a death."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import (
    BackendDenied,
    BackendError,
    BackendUnavailable,
    RunRequest,
    RunResult,
    TokenUsage,
)
from bot.engine.tracing.span_ids import node_span_id, task_trace_id, workflow_span_id
from bot.engine.tracing.span_recorder import ModelCallStart
from bot.engine.tracing.trace_reader import ChatTraceReader, TaskTraceReader
from bot.engine.workflow.definition import Workflow, WorkflowEdge, WorkflowNode
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.presentation.node_display import dropped_paths, node_namer
from cards.views.traces import parse_trace, trace_data
from handlers.errors import BackendFailure
from handlers.ports import ChatQuestion
from storage.records.people import Language
from storage.records.tasks import Task, TaskStatus
from storage.records.traces import SpanKind, SpanState, Trace, TraceSpan
from storage.sessions import SessionRepo
from storage.traces import SpanRepo
from storage.usage import UsageRepo
from tests.agent_builders import make_context_builder, make_conversation
from tests.engine_harness import (
    BOSS,
    CHAT,
    GROUP,
    EngineHarness,
    FakeBackend,
    ManualClock,
    make_span_recorder,
    run_engine,
    run_result,
)


def build_reader(life: EngineHarness) -> TaskTraceReader:
    return TaskTraceReader(
        db=life.db,
        tasks=life.store.tasks,
        graphs=life.store.graphs,
        spans=SpanRepo(life.db),
        name_lookup=node_namer,
        find_dropped=dropped_paths,
        redact=lambda text: text.replace("hunter2", "••••"),
        now=life.clock,
    )


async def traced(life: EngineHarness, task: Task) -> Trace:
    return await build_reader(life).get_task_trace(task.id)


async def do_nothing(*_: Any, **__: Any) -> None:
    """In place of a write that a dead process does not make."""


def spans_of_kind(trace: Trace, kind: SpanKind) -> list[TraceSpan]:
    return [span for span in trace.spans if span.kind is kind]


def tree_shape(trace: Trace) -> list[tuple[int, str]]:
    return [(span.depth, span.name) for span in trace.spans]


async def test_a_task_that_is_done_has_a_span_for_itself_each_step_and_each_call(
    tmp_path: Path,
) -> None:
    async with run_engine(tmp_path, FakeBackend(steps=("one", "two")), traced=True) as life:
        task = await life.create_task("Paint it")
        await life.until(task, TaskStatus.COMPLETED)
        trace = await traced(life, task)

        assert tree_shape(trace) == [
            (0, "Paint it"),
            (1, "plan"),
            (2, "chat fake-1"),
            (1, "one"),
            (2, "chat fake-1"),
            (1, "two"),
            (2, "chat fake-1"),
        ]
        assert {span.state for span in trace.spans} == {SpanState.DONE}
        assert trace.id == task_trace_id(task.id)
        assert trace.root.id == workflow_span_id(task.id)
        assert await UsageRepo(life.db).sum_by_task(task.id) == trace.root.spent


async def test_a_call_tells_model_purpose_tokens_and_how_it_finished(tmp_path: Path) -> None:
    async with run_engine(tmp_path, FakeBackend(steps=("one",)), traced=True) as life:
        task = await life.create_task()
        await life.until(task, TaskStatus.COMPLETED)
        plan, step = spans_of_kind(await traced(life, task), SpanKind.LLM)

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

    async with run_engine(tmp_path, FakeBackend(steps=("one",), on_step=hold), traced=True) as life:
        task = await life.create_task()
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

    clock, worker = ManualClock(), FakeBackend(steps=("one",), on_step=hang)
    async with run_engine(tmp_path, worker, traced=True, clock=clock) as life:
        task = await life.create_task()
        await begun.wait()
        before = spans_of_kind(await traced(life, task), SpanKind.LLM)[-1]
        # Nothing more is written of it: so ends a process that is killed.
        monkeypatch.setattr(SpanRepo, "finish_model_call", do_nothing)
    monkeypatch.undo()
    async with run_engine(tmp_path, FakeBackend(steps=("one",)), traced=True, clock=clock) as life:
        await life.until(task, TaskStatus.COMPLETED)
        trace = await traced(life, task)

    dead, alive = spans_of_kind(trace, SpanKind.LLM)[-2:]
    assert dead.id == before.id
    assert dead.state is SpanState.CUT_OFF
    assert dead.ended_at is not None
    assert alive.state is SpanState.DONE
    first, second = spans_of_kind(trace, SpanKind.NODE)[-2:]
    assert (first.state, second.state) == (SpanState.CUT_OFF, SpanState.DONE)
    assert first.id == node_span_id(task.id, str(first.attributes["shiftboss.node.path"]), 1)
    assert not any(span.state.is_open for span in trace.spans)


async def test_a_failed_call_names_its_class_and_not_its_words(tmp_path: Path) -> None:
    left = [BackendUnavailable("503 from sk-secret", usage=TokenUsage(requests=1, input_tokens=7))]

    def fail(_title: str) -> BackendError | None:
        return left.pop() if left else None

    async with run_engine(tmp_path, FakeBackend(steps=("one",), on_step=fail), traced=True) as life:
        task = await life.create_task()
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

    async with run_engine(
        tmp_path,
        FakeBackend(steps=("one",), on_step=lambda _: told.pop() if told else None),
        traced=True,
    ) as life:
        task = await life.create_task()
        await life.until(task, TaskStatus.COMPLETED)
        trace = await traced(life, task)

    first = next(span for span in trace.spans if span.name == "one")
    assert first.state is SpanState.FAILED
    assert Counter(span.state for span in spans_of_kind(trace, SpanKind.LLM)) == {SpanState.DONE: 3}


async def test_rounds_are_within_what_runs_them(tmp_path: Path) -> None:
    each = ForeachConfig(collection="[1, 2]", body=("do",))
    workflow = Workflow(
        plan="",
        nodes=(
            WorkflowNode(id="all", title="All of them", type=NodeType.FOREACH, config=each),
            WorkflowNode(id="do", title="One of them"),
            WorkflowNode(id="last", title="Last"),
        ),
        edges=(WorkflowEdge(source="all", target="last"),),
    )
    async with run_engine(tmp_path, traced=True) as life:
        task = await life.run_workflow(workflow)
        await life.until(task, TaskStatus.COMPLETED)
        trace = await traced(life, task)

    nodes = [(span.depth, span.name) for span in spans_of_kind(trace, SpanKind.NODE)]
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

    each = ForeachConfig(collection="['a', 'b', 'c']", body=("read",))
    workflow = Workflow(
        plan="",
        nodes=(
            WorkflowNode(id="all", title="All letters", type=NodeType.FOREACH, config=each),
            WorkflowNode(id="read", title="Read {{item}}"),
        ),
    )
    async with run_engine(tmp_path, FakeBackend(on_step=hold), traced=True) as life:
        task = await life.run_workflow(workflow)
        await begun.wait()
        await life.tasks.replan(task, "leave out c", by=BOSS, source="r:1")
        gate.set()
        await life.until(task, TaskStatus.COMPLETED)
        trace = await traced(life, task)

    nodes = {(span.depth, span.name) for span in spans_of_kind(trace, SpanKind.NODE)}
    assert {(1, "All letters"), (2, "Read a [1]"), (2, "Read b [2]")} <= nodes
    types = {span.attributes["shiftboss.node.type"] for span in spans_of_kind(trace, SpanKind.NODE)}
    assert "" not in types


async def test_no_secret_is_in_a_trace(tmp_path: Path) -> None:
    backend = FakeBackend(steps=("log in with hunter2",), models=("model-hunter2",))
    async with run_engine(tmp_path, backend, traced=True) as life:
        task = await life.create_task("Use hunter2")
        await life.until(task, TaskStatus.COMPLETED)
        trace = await traced(life, task)

        assert "hunter2" not in str(trace)
        async with life.db.read() as view:
            kept = (await SpanRepo(life.db).get_task_parts(task.id, tx=view)).calls
        assert kept
        assert "hunter2" not in str(kept)


async def test_work_goes_on_where_no_span_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any) -> None:
        raise RuntimeError("no such table")

    monkeypatch.setattr(SpanRepo, "start_model_call", broken)
    async with run_engine(tmp_path, FakeBackend(steps=("one", "two")), traced=True) as life:
        task = await life.create_task()
        await life.until(task, TaskStatus.COMPLETED)

        assert spans_of_kind(await traced(life, task), SpanKind.LLM) == []
    assert caplog.text.count("cannot be recorded as spans") == 1


async def test_old_calls_of_ended_tasks_are_forgotten_and_no_others(tmp_path: Path) -> None:
    gate = asyncio.Event()

    def hold(title: str) -> Any:
        return gate if title == "open" else None

    async with run_engine(tmp_path, FakeBackend(steps=("one",), on_step=hold), traced=True) as life:
        ended = await life.create_task()
        await life.until(ended, TaskStatus.COMPLETED)
        life.clock.advance(days=1)
        life.backend.steps = ("open",)
        running = await life.create_task()
        await life.until(running, TaskStatus.RUNNING)

        repo = SpanRepo(life.db)
        assert await repo.prune(before=ended.created_at) == 0
        assert await repo.prune(before=life.clock()) == 2
        assert spans_of_kind(await traced(life, ended), SpanKind.LLM) == []
        gate.set()
        await life.until(running, TaskStatus.COMPLETED)
        assert len(spans_of_kind(await traced(life, running), SpanKind.LLM)) == 2


class ChattingBackend(FakeBackend):
    fails: Exception | None = None

    async def respond(self, request: RunRequest) -> RunResult:
        if self.fails:
            raise self.fails
        return run_result(text="Hello, Boss")


class ChatScene:
    """One chat, and who looks at what its last answer was made of."""

    def __init__(self, world: EngineHarness, home: Path, backend: ChattingBackend) -> None:
        self.world, self.backend = world, backend
        self.began = world.clock()
        self.talk = make_conversation(
            db=world.db,
            sessions=SessionRepo(world.db),
            gateway=world.gateway,
            data_dir=home,
            context_builder=make_context_builder(),
            now=world.clock,
            sleep=_at_once,
        )

    async def says(self, text: str, source: str) -> None:
        language = Language.ENGLISH
        question = ChatQuestion(person=BOSS, chat=CHAT, text=text, language=language, source=source)
        await self.talk.answer(question, _unseen)
        self.world.clock.advance(seconds=1)

    async def dies_answering(self, source: str) -> None:
        """The call was begun, and nobody was there to write down its end."""
        start = ModelCallStart(
            task_id=None,
            chat_id=CHAT.id,
            turn_source=source,
            parent_span_id="",
            purpose="chat",
            backend="fake",
            model="fake-1",
            session_id="gone",
        )
        await make_span_recorder(self.world.db, self.world.clock).begin(start)
        self.world.clock.advance(seconds=1)

    async def trace(self) -> Trace:
        found = await self._reader().get_chat_trace(CHAT.id)
        assert found is not None
        return found

    async def elsewhere(self) -> Trace | None:
        return await self._reader().get_chat_trace(GROUP.id)

    def _reader(self) -> ChatTraceReader:
        return ChatTraceReader(
            db=self.world.db,
            spans=SpanRepo(self.world.db),
            redact=lambda text: text.replace("fake-1", "••••"),
            now=self.world.clock,
            process_started_at=self.began,
        )


async def _at_once(_seconds: float) -> None:
    pass


async def _unseen(_text: str) -> None:
    pass


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[ChatScene]:
    backend = ChattingBackend()
    async with run_engine(tmp_path, backend, start_dispatcher=False, traced=True) as world:
        yield ChatScene(world, tmp_path, backend)


async def test_an_answer_leaves_a_span_for_itself_and_one_for_each_call_with_its_cost(
    scene: ChatScene,
) -> None:
    await scene.says("hi", "inbox:1")
    trace = await scene.trace()

    kinds = [(span.depth, span.kind, span.state) for span in trace.spans]
    assert kinds == [
        (0, SpanKind.CHAT, SpanState.DONE),
        (1, SpanKind.LLM, SpanState.DONE),
    ]
    assert trace.task_id is None
    assert trace.root.spent == trace.spans[1].spent
    assert trace.root.spent.input_tokens > 0
    assert parse_trace(trace_data(trace)) == trace


async def test_nothing_of_it_holds_what_was_said_or_a_secret(scene: ChatScene) -> None:
    await scene.says("my dear otter", "inbox:1")

    told = str(trace_data(await scene.trace()))

    assert "otter" not in told
    assert "Hello" not in told
    assert "fake-1" not in told


async def test_the_last_answer_of_the_chat_is_told_and_no_other_chats(scene: ChatScene) -> None:
    await scene.says("hi", "inbox:1")
    first = await scene.trace()
    await scene.says("and now?", "inbox:2")
    second = await scene.trace()

    assert first.id != second.id
    assert len(second.spans) == 2
    assert await scene.elsewhere() is None


async def test_an_answer_that_failed_says_so(scene: ChatScene) -> None:
    scene.backend.fails = BackendDenied("no key")
    with pytest.raises(BackendFailure):
        await scene.says("hi", "inbox:1")

    trace = await scene.trace()

    assert trace.root.state is SpanState.FAILED
    assert trace.root.error == trace.spans[1].error != ""


async def test_what_a_death_cut_off_stands_beside_the_answer_that_was_given_after_it(
    scene: ChatScene,
) -> None:
    await scene.dies_answering("inbox:1")
    assert (await scene.trace()).root.state is SpanState.RUNNING

    scene.began = scene.world.clock()
    assert {span.state for span in (await scene.trace()).spans} == {SpanState.CUT_OFF}
    scene.world.clock.advance(seconds=1)
    await scene.says("hi", "inbox:1")

    states = [span.state for span in (await scene.trace()).spans]
    assert states == [SpanState.DONE, SpanState.CUT_OFF, SpanState.DONE]


async def test_answers_of_long_ago_are_forgotten(scene: ChatScene) -> None:
    await scene.says("hi", "inbox:1")

    await SpanRepo(scene.world.db).prune(before=scene.world.clock() - timedelta(days=1))
    assert len((await scene.trace()).spans) == 2
    gone = await SpanRepo(scene.world.db).prune(before=scene.world.clock() + timedelta(days=1))

    assert gone == 1
