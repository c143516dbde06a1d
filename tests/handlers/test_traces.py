"""/trace: a task's spans as a tree, by time, by what went wrong and by cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cards.views.work.trace_data import trace_from
from cards.views.work.traces import tree_lines
from cards.words import words_for
from storage.records.people import ChatId, Language
from storage.records.tasks import Spent, Task, TaskId, TaskStatus
from storage.records.workers.spans import SpanKind, SpanState, Trace
from tests.handlers.desk import Desk, text_of
from tests.samples import NOW, a_span, a_task, a_trace

SPENT = Spent(calls=1, input_tokens=900, output_tokens=100, cost_micros=20_000)


def traced(task: Task) -> Trace:
    return a_trace(
        task.id,
        a_span("w", SpanKind.WORKFLOW, SpanState.RUNNING, name=task.title, spent=SPENT),
        a_span("n", parent="w", name="Mix colours", depth=1, seconds=9, spent=SPENT),
        a_span("c", SpanKind.LLM, parent="n", name="chat opus", depth=2, seconds=8, spent=SPENT),
        a_span(
            "t",
            SpanKind.TOOL,
            SpanState.FAILED,
            parent="c",
            name="execute_tool shell",
            depth=3,
            seconds=6,
            error="failed",
        ),
        a_span("u", SpanKind.NODE, SpanState.RUNNING, parent="w", name="Paint", depth=1, at=9),
    )


@pytest.fixture
def task() -> Task:
    return a_task(title="Paint it", status=TaskStatus.RUNNING)


@pytest.fixture
def desk(task: Task) -> Desk:
    desk = Desk(task)
    desk.world.traces.known[task.id] = traced(task)
    return desk


async def test_the_tree_has_a_line_for_each_span_with_time_and_cost(desk: Desk, task: Task) -> None:
    told = text_of(await desk.say(f"/trace {task.id}"))

    lines = [line for line in told.splitlines() if "Mix colours" in line or "opus" in line]
    assert "9.0 s" in lines[0]
    assert "$0.02" in lines[0]
    assert lines[1].index("opus") > lines[0].index("Mix")
    assert "✗ tool shell" in told
    assert "▶ Paint" in told
    assert "Still going on" in told


async def test_without_an_id_it_is_the_newest_task_that_is_meant(desk: Desk, task: Task) -> None:
    assert task.id in text_of(await desk.say("/追踪"))


@pytest.mark.parametrize("said", ["errors", "错误", "ERRORS"])
async def test_errors_are_those_spans_alone_that_went_wrong(
    desk: Desk, task: Task, said: str
) -> None:
    told = text_of(await desk.say(f"/trace {task.id} {said}"))

    assert "shell" in told
    assert "Paint │" not in told
    assert "Mix colours" not in told


async def test_slow_ranks_by_the_time_that_is_a_spans_own(desk: Desk, task: Task) -> None:
    told = text_of(await desk.say(f"/trace slow {task.id}"))

    assert told.index("shell") < told.index("Mix colours")


async def test_cost_names_the_step_that_asked_the_model(desk: Desk, task: Task) -> None:
    told = text_of(await desk.say(f"/trace {task.id} cost"))

    assert "Mix colours" in told
    assert "100 %" in told


@pytest.mark.parametrize("said", ["a b", "slow cost", "x slow more"])
async def test_what_cannot_be_meant_is_told_how_to_say_it(desk: Desk, said: str) -> None:
    reply = await desk.say(f"/trace {said}")

    assert not reply.good
    assert "/trace" in text_of(reply)


async def test_who_may_not_see_the_task_sees_no_trace(desk: Desk) -> None:
    reply = await desk.say("/trace task-nobodys")

    assert not reply.good
    assert "Mix colours" not in text_of(reply)


async def test_a_program_reads_all_of_it_and_gets_the_same_trace_back(
    desk: Desk, task: Task
) -> None:
    reply = await desk.say(f"/trace {task.id}")

    assert reply.data is not None
    assert trace_from(reply.data) == traced(task)


def test_a_long_trace_shows_what_is_wrong_and_what_runs_first() -> None:
    calm = [a_span(f"n{n}", parent="w", depth=1, at=n) for n in range(100)]
    wrong = a_span("broken", SpanKind.TOOL, SpanState.CUT, parent="n3", depth=2, at=3)
    spans = [a_span("w", SpanKind.WORKFLOW), *calm[:4], wrong, *calm[4:]]

    lines = tree_lines(a_trace(TaskId("t"), *spans), words_for(Language.ENGLISH), most=25)

    assert len(lines) == 25
    assert any("broken" in line for line in lines)
    assert any("n3 " in line for line in lines)
    assert any("n99 " in line for line in lines)
    assert not any("n40 " in line for line in lines)


def test_an_open_span_has_lasted_until_the_trace_was_read() -> None:
    span = a_span("w", SpanKind.WORKFLOW, SpanState.RUNNING)

    assert span.seconds(NOW + timedelta(seconds=75)) == 75


async def test_the_card_of_what_runs_is_followed_and_no_other(desk: Desk, task: Task) -> None:
    reply = await desk.say(f"/trace {task.id}")
    assert desk.world.traces.followed == [("c1", reply.key)]

    desk.world.traces.known[task.id] = a_trace(task.id)
    await desk.say(f"/trace {task.id}")
    assert len(desk.world.traces.followed) == 1


@pytest.mark.parametrize("said", ["/trace talk", "/追踪 对话", "/trace talk cost"])
async def test_the_last_answer_of_a_chat_can_be_looked_at(desk: Desk, said: str) -> None:
    desk.world.traces.answers[ChatId("c1")] = answer()

    told = text_of(await desk.say(said))

    assert "opus" in told or "answer" in told
    assert "$0.02" in told
    assert "Paint it" not in told


async def test_where_there_is_no_task_it_is_the_last_answer_that_is_meant() -> None:
    desk = Desk()
    assert "nothing to look back at" in text_of(await desk.say("/trace"))

    desk.world.traces.answers[ChatId("c1")] = answer()

    assert "model opus" in text_of(await desk.say("/trace"))


def answer() -> Trace:
    whole = a_span("w", SpanKind.CHAT, name="chat", spent=SPENT)
    call = a_span("c", SpanKind.LLM, parent="w", name="chat opus", depth=1, spent=SPENT)
    return replace(a_trace(TaskId("t"), whole, call), task_id=None)
