"""A workflow with branches, rounds, a person and a rest, ended at each of its commits and taken up
by another life: no finished step is done again, and none is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from bot.engine.workflow.nodes.assign import AssignConfig
from bot.engine.workflow.nodes.delay import DelayConfig
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.nodes.shared_settings import VariableAssignment
from storage.records.approvals import ApprovalState
from storage.records.tasks import NodeStatus, TaskStatus, TaskView
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    WorkflowWorld,
    make_graph,
    make_node,
    task_node,
    workflow_world,
)
from tests.engine_harness import ManualClock
from tests.thoroughness import sampled
from tests.waiting import WAIT_SECONDS

MAX_COMMITS = 30

PLAN = make_graph(
    make_node("fork", NodeType.PARALLEL),
    make_node(
        "each",
        NodeType.FOREACH,
        ForeachConfig(collection="variables.items", body=("read", "note"), mode="parallel"),
    ),
    task_node("read", "read {{item}}"),
    make_node(
        "note",
        NodeType.ASSIGN,
        AssignConfig(
            assignments=(
                VariableAssignment(variable="seen", value="variables.seen + 1", is_expression=True),
            )
        ),
    ),
    make_node("ask", NodeType.HUMAN),
    make_node("rest", NodeType.DELAY, DelayConfig(seconds=3600)),
    task_node("call"),
    make_node("both", NodeType.JOIN),
    task_node("sum", "sum of {{variables.seen}}"),
    "read>note",
    "fork>each>both",
    "fork>ask>rest>call>both>sum",
    variables={"items": ["a", "b", "c"], "seen": 0},
    outputs={"all": "len(outputs.each.results)"},
    parallel=2,
)
STEPS = {"read a", "read b", "read c", "call", "sum of 3"}


async def live_to_the_end(here: WorkflowWorld) -> TaskView:
    """Ask for the task, allow what is asked, let the hour pass, and wait for its end."""
    made = await here.engine.run_workflow(PLAN, source="test:once")
    while True:
        view = await here.engine.views.view(made.id)
        if view.task.status.is_final:
            return view
        for each in await here.approvals.list_by_task(made.id):
            if each.state is ApprovalState.WAITING:
                await here.decide(each)
        runs = await here.runs(made)
        if "rest" in runs and runs["rest"].status is NodeStatus.WAITING:
            await here.advance_clock(hours=2)
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("nth", range(1, MAX_COMMITS + 1, sampled(1, 5)))
async def test_whenever_death_comes_each_step_is_done_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    clock, first, second, death = (
        ManualClock(),
        PacedBackend(),
        PacedBackend(),
        CrashAfterCommit(nth),
    )
    async with workflow_world(tmp_path, first, clock=clock) as here:
        with monkeypatch.context() as patched:
            death.install(patched)
            await death.run_until_crash(live_to_the_end(here))
    async with workflow_world(tmp_path, second, clock=clock) as here:
        async with asyncio.timeout(WAIT_SECONDS):
            view = await live_to_the_end(here)
        runs = await here.runs(view.task)
        asked = await here.approvals.list_by_task(view.task.id)

    assert view.task.status is TaskStatus.COMPLETED
    assert "all: 3" in view.task.summary
    assert [run.path for run in runs.values() if not run.status.is_settled] == []
    assert {*first.started_steps, *second.started_steps} == STEPS
    again = Counter(first.started_steps) & Counter(second.started_steps)
    # Only what was under way when it died.
    assert again.total() <= PLAN.parallel
    assert max(Counter(second.started_steps).values(), default=0) <= 1
    assert [each.state for each in asked] == [ApprovalState.APPROVED]
