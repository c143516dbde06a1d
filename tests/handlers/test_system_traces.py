"""/trace: a task's spans as a tree, by time, by what went wrong and by cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cards.catalog import catalog_for
from cards.views.traces import parse_trace, tree_lines
from storage.records.people import ChatId, Language
from storage.records.tasks import Task, TaskId, TaskStatus, UsageTotals
from storage.records.traces import SpanKind, SpanState, Trace
from tests.builders import NOW, make_span, make_task, make_trace
from tests.handlers.router_harness import RouterHarness, text_of

SPENT = UsageTotals(calls=1, input_tokens=900, output_tokens=100, cost_micros=20_000)


def traced(task: Task) -> Trace:
    return make_trace(
        task.id,
        make_span("w", SpanKind.WORKFLOW, SpanState.RUNNING, name=task.title, spent=SPENT),
        make_span("n", parent="w", name="Mix colours", depth=1, seconds=9, spent=SPENT),
        make_span("c", SpanKind.LLM, parent="n", name="chat opus", depth=2, seconds=8, spent=SPENT),
        make_span(
            "t",
            SpanKind.TOOL,
            SpanState.FAILED,
            parent="c",
            name="execute_tool shell",
            depth=3,
            seconds=6,
            error="failed",
        ),
        make_span("u", SpanKind.NODE, SpanState.RUNNING, parent="w", name="Paint", depth=1, at=9),
    )


@pytest.fixture
def task() -> Task:
    return make_task(title="Paint it", status=TaskStatus.RUNNING)


@pytest.fixture
def desk(task: Task) -> RouterHarness:
    desk = RouterHarness(task)
    desk.world.traces.traces[task.id] = traced(task)
    return desk


async def test_the_tree_has_a_line_for_each_span_with_time_and_cost(
    desk: RouterHarness, task: Task
) -> None:
    told = text_of(await desk.send_message(f"/trace {task.id}"))

    lines = [line for line in told.splitlines() if "Mix colours" in line or "opus" in line]
    assert "9.0 s" in lines[0]
    assert "$0.02" in lines[0]
    assert lines[1].index("opus") > lines[0].index("Mix")
    assert "✗ tool shell" in told
    assert "▶ Paint" in told
    assert "Still running" in told


async def test_without_an_id_it_is_the_newest_task_that_is_meant(
    desk: RouterHarness, task: Task
) -> None:
    assert task.id in text_of(await desk.send_message("/追踪"))


@pytest.mark.parametrize("said", ["errors", "错误", "ERRORS"])
async def test_errors_are_those_spans_alone_that_went_wrong(
    desk: RouterHarness, task: Task, said: str
) -> None:
    told = text_of(await desk.send_message(f"/trace {task.id} {said}"))

    assert "shell" in told
    assert "Paint │" not in told
    assert "Mix colours" not in told


async def test_slow_ranks_by_the_time_that_is_a_spans_own(desk: RouterHarness, task: Task) -> None:
    told = text_of(await desk.send_message(f"/trace slow {task.id}"))

    assert told.index("shell") < told.index("Mix colours")


async def test_cost_names_the_step_that_asked_the_model(desk: RouterHarness, task: Task) -> None:
    told = text_of(await desk.send_message(f"/trace {task.id} cost"))

    assert "Mix colours" in told
    assert "100%" in told


@pytest.mark.parametrize("said", ["a b", "slow cost", "x slow more"])
async def test_what_cannot_be_meant_is_told_how_to_say_it(desk: RouterHarness, said: str) -> None:
    reply = await desk.send_message(f"/trace {said}")

    assert not reply.good
    assert "/trace" in text_of(reply)


async def test_who_may_not_see_the_task_sees_no_trace(desk: RouterHarness) -> None:
    reply = await desk.send_message("/trace task-nobodys")

    assert not reply.good
    assert "Mix colours" not in text_of(reply)


async def test_a_program_reads_all_of_it_and_gets_the_same_trace_back(
    desk: RouterHarness, task: Task
) -> None:
    reply = await desk.send_message(f"/trace {task.id}")

    assert reply.data is not None
    assert parse_trace(reply.data) == traced(task)


def test_a_long_trace_shows_what_is_wrong_and_what_runs_first() -> None:
    calm = [make_span(f"n{n}", parent="w", depth=1, at=n) for n in range(100)]
    wrong = make_span("broken", SpanKind.TOOL, SpanState.CUT_OFF, parent="n3", depth=2, at=3)
    spans = [make_span("w", SpanKind.WORKFLOW), *calm[:4], wrong, *calm[4:]]

    lines = tree_lines(make_trace(TaskId("t"), *spans), catalog_for(Language.ENGLISH), most=25)

    assert len(lines) == 25
    assert any("broken" in line for line in lines)
    assert any("n3 " in line for line in lines)
    assert any("n99 " in line for line in lines)
    assert not any("n40 " in line for line in lines)


def test_an_open_span_has_lasted_until_the_trace_was_read() -> None:
    span = make_span("w", SpanKind.WORKFLOW, SpanState.RUNNING)

    assert span.seconds(NOW + timedelta(seconds=75)) == 75


async def test_the_card_of_what_runs_is_followed_and_no_other(
    desk: RouterHarness, task: Task
) -> None:
    reply = await desk.send_message(f"/trace {task.id}")
    assert desk.world.traces.followed == [("c1", reply.key)]

    desk.world.traces.traces[task.id] = make_trace(task.id)
    await desk.send_message(f"/trace {task.id}")
    assert len(desk.world.traces.followed) == 1


@pytest.mark.parametrize("said", ["/trace talk", "/追踪 对话", "/trace talk cost"])
async def test_the_last_answer_of_a_chat_can_be_looked_at(desk: RouterHarness, said: str) -> None:
    desk.world.traces.answers[ChatId("c1")] = answer()

    told = text_of(await desk.send_message(said))

    assert "opus" in told or "answer" in told
    assert "$0.02" in told
    assert "Paint it" not in told


async def test_where_there_is_no_task_it_is_the_last_answer_that_is_meant() -> None:
    desk = RouterHarness()
    assert "nothing to trace yet" in text_of(await desk.send_message("/trace"))

    desk.world.traces.answers[ChatId("c1")] = answer()

    assert "model opus" in text_of(await desk.send_message("/trace"))


def answer() -> Trace:
    whole = make_span("w", SpanKind.CHAT, name="chat", spent=SPENT)
    call = make_span("c", SpanKind.LLM, parent="w", name="chat opus", depth=1, spent=SPENT)
    return replace(make_trace(TaskId("t"), whole, call), task_id=None)
