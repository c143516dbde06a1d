"""Which span is within which, and how each has come out: from rows alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from bot.engine.tracing.span_builder import NodeName
from bot.engine.tracing.span_ids import (
    node_span_id,
    subagent_span_id,
    task_trace_id,
    workflow_span_id,
)
from bot.engine.tracing.trace_reader import assemble_task_spans
from bot.engine.workflow.definition import WorkflowNode, dump_workflow
from bot.engine.workflow.plan import linear_workflow
from bot.engine.workflow.presentation.node_display import node_namer
from storage.records.tasks import NodeRun, NodeStatus, TaskId, TaskStatus
from storage.records.traces import (
    ModelCall,
    NodeAttempt,
    SpanState,
    SubagentUse,
    ToolUse,
    TraceSpan,
)
from storage.traces import TraceParts
from tests.builders import NOW, make_task

TASK = make_task(id="t1", title="Whole", status=TaskStatus.RUNNING)
T = TaskId("t1")


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def run(path: str, status: NodeStatus, attempt: int = 1, *, ended: float | None = None) -> NodeRun:
    return NodeRun(
        task_id=T,
        path=path,
        status=status,
        attempt=attempt,
        output={},
        error="",
        started_at=at(0),
        ended_at=None if ended is None else at(ended),
    )


def attempt(path: str, n: int, begun: float, ended: float | None, error: str = "") -> NodeAttempt:
    return NodeAttempt(
        path=path,
        attempt=n,
        started_at=at(begun),
        ended_at=None if ended is None else at(ended),
        error=error,
    )


def call(
    id: str, parent: str, begun: float, ended: float | None, status: str = "", *, session: str = "s"
) -> ModelCall:
    return ModelCall(
        span_id=id,
        trace_id=task_trace_id(T),
        parent_id=parent,
        name=id,
        task_id=T,
        attributes={"gen_ai.conversation.id": session},
        started_at=at(begun),
        status=status,
        ended_at=None if ended is None else at(ended),
    )


def tool(
    n: int, state: str, asked: float, begun: float | None, ended: float | None, **how: Any
) -> ToolUse:
    return replace(
        ToolUse(
            id=n,
            session_id="s",
            call_id=f"c{n}",
            path="a",
            tool=f"tool{n}",
            kind="read",
            state=state,
            asked=False,
            size=0,
            asked_at=at(asked),
            started_at=None if begun is None else at(begun),
            ended_at=None if ended is None else at(ended),
        ),
        **how,
    )


def helper(id: str, path: str, status: str, begun: float, ended: float | None) -> SubagentUse:
    return SubagentUse(
        id=id,
        label=id,
        path=path,
        parent_session="s",
        status=status,
        created_at=at(begun),
        started_at=at(begun),
        ended_at=None if ended is None else at(ended),
    )


def spans(runs: Mapping[str, NodeRun], *, task: Any = TASK, **found: Any) -> dict[str, TraceSpan]:
    nothing: dict[str, Any] = {"calls": (), "attempts": (), "tools": (), "helpers": ()}
    made = assemble_task_spans(
        task,
        runs,
        TraceParts(**{**nothing, **found}),
        lambda path: NodeName(title=path, type="task"),
    )
    return {span.name: span for span in made}


A1 = node_span_id(T, "a", 1)
RUNNING = {"a": run("a", NodeStatus.RUNNING)}


def test_a_tool_is_within_the_newest_call_of_its_session_that_had_begun() -> None:
    made = spans(
        RUNNING,
        attempts=[attempt("a", 1, 0, None)],
        calls=[call("one", A1, 1, 5, "done"), call("two", A1, 6, None)],
        tools=[tool(1, "done", 2, 2, 3), tool(2, "running", 7, 7, None)],
    )

    assert made["execute_tool tool1"].parent == made["one"].id
    assert made["execute_tool tool2"].parent == made["two"].id
    assert made["execute_tool tool2"].state is SpanState.RUNNING


@pytest.mark.parametrize(
    ("state", "ended", "shown"),
    [
        ("open", None, SpanState.WAITING),
        ("allowed", None, SpanState.WAITING),
        ("denied", 3, SpanState.FAILED),
        ("failed", 3, SpanState.FAILED),
        ("cut", 3, SpanState.CUT_OFF),
        ("answered", 3, SpanState.DONE),
        ("done", 3, SpanState.DONE),
    ],
)
def test_what_became_of_a_tool_is_told(state: str, ended: float | None, shown: SpanState) -> None:
    made = spans(
        RUNNING, attempts=[attempt("a", 1, 0, None)], tools=[tool(1, state, 2, None, ended)]
    )

    assert made["execute_tool tool1"].state is shown
    assert made["execute_tool tool1"].parent == A1


def test_a_helper_is_within_the_try_that_sent_it_off_and_its_own_helpers_within_it() -> None:
    made = spans(
        RUNNING,
        attempts=[attempt("a", 1, 0, 2, "interrupted"), attempt("a", 2, 3, None)],
        helpers=[helper("h1", "a", "done", 1, 9), helper("h2", "helper:h1", "running", 2, None)],
        calls=[call("ask", subagent_span_id("h2"), 4, None, session="h")],
        tools=[tool(1, "done", 5, 5, 6, session_id="h", path="helper:h2")],
    )

    assert made["invoke_agent h1"].parent == A1
    assert made["invoke_agent h2"].parent == subagent_span_id("h1")
    assert made["ask"].parent == subagent_span_id("h2")
    assert made["ask"].state is SpanState.RUNNING
    assert made["execute_tool tool1"].parent == made["ask"].id
    assert made["execute_tool tool1"].depth == 5


def test_a_call_that_was_made_under_nothing_known_is_the_workflows_own() -> None:
    made = spans({}, calls=[call("lost", "f" * 16, 1, 2, "done")])

    assert made["lost"].parent == workflow_span_id(T)


def test_a_call_without_an_end_was_cut_off_when_its_try_ended() -> None:
    made = spans(
        {"a": run("a", NodeStatus.PENDING, ended=4)},
        attempts=[attempt("a", 1, 0, 4, "interrupted")],
        calls=[call("dead", A1, 1, None)],
    )

    assert (made["dead"].state, made["dead"].ended_at) == (SpanState.CUT_OFF, at(4))
    assert made["a"].state is SpanState.CUT_OFF


def test_a_call_without_an_end_was_cut_off_when_its_session_went_on() -> None:
    made = spans(
        {}, calls=[call("dead", "", 1, None), call("alive", "", 8, None), call("x", "", 2, None)]
    )

    assert made["dead"].ended_at is not None
    assert made["x"].state is SpanState.RUNNING


def test_a_try_that_was_given_back_did_not_fail() -> None:
    made = spans(
        {"a": run("a", NodeStatus.PENDING, ended=4)},
        attempts=[attempt("a", 1, 0, 4, "waits for leave")],
        calls=[call("asks", A1, 1, 3, "left")],
    )

    assert made["a"].state is SpanState.SUSPENDED
    assert not made["a"].state.is_failure


def test_of_a_task_that_is_over_nothing_goes_on() -> None:
    over = replace(TASK, status=TaskStatus.CANCELLED, ended_at=at(50))
    made = spans(
        RUNNING,
        task=over,
        attempts=[attempt("a", 1, 0, None)],
        calls=[call("dead", A1, 1, None)],
        tools=[tool(1, "running", 2, 2, None)],
    )

    assert {span.state for span in made.values()} == {SpanState.CUT_OFF}
    assert {span.ended_at for span in made.values()} == {at(50)}


def test_no_span_ends_before_it_began() -> None:
    over = replace(TASK, status=TaskStatus.FAILED, ended_at=at(1))
    made = spans(
        RUNNING,
        task=over,
        attempts=[attempt("a", 1, 5, None)],
        calls=[call("late", A1, 9, None)],
        tools=[tool(1, "running", 9, 9, None)],
    )

    for span in made.values():
        assert span.ended_at is not None
        assert span.ended_at >= span.started_at


def test_a_node_that_was_skipped_is_neither_done_nor_wrong() -> None:
    made = spans({"a": run("a", NodeStatus.SKIPPED, ended=1)})

    assert made["a"].state is SpanState.SKIPPED


def test_what_began_in_one_moment_stands_in_the_order_of_the_plan_and_of_the_rounds() -> None:
    body: dict[str, Any] = dump_workflow(
        linear_workflow("p", [WorkflowNode(id=each, title=each) for each in ("z", "y", "x")])
    )
    paths = ["z", "z#2", "z#10", "y", "x"]
    runs = {path: run(path, NodeStatus.DONE, ended=1) for path in sorted(paths, reverse=True)}

    found = assemble_task_spans(
        TASK, runs, TraceParts(calls=(), tools=(), attempts=(), helpers=()), node_namer(body)
    )

    shown = [span.attributes["shiftboss.node.path"] for span in found[1:]]
    assert shown == paths
