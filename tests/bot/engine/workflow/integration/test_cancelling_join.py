"""A join that cancels the branches that have not arrived: a running step, a round, a person's
question and a timer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.engine.workflow.nodes.delay import DelayConfig
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.join import JoinConfig
from bot.engine.workflow.nodes.registry import NodeType
from storage.records.approvals import ApprovalState
from storage.records.tasks import EventKind, NodeStatus, TaskStatus, TaskView
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

MAX_COMMITS = 16
PLAN = make_graph(
    make_node("fork", NodeType.PARALLEL),
    task_node("fast"),
    task_node("slow"),
    task_node("later"),
    make_node(
        "each", NodeType.FOREACH, ForeachConfig(collection="variables.items", body=("read",))
    ),
    task_node("read", "read {{item}}"),
    make_node("ask", NodeType.HUMAN),
    make_node("rest", NodeType.DELAY, DelayConfig(seconds=3600)),
    make_node("meet", NodeType.JOIN, JoinConfig(mode="any", cancel_others=True)),
    task_node("last", "last {{nodeStates.slow}}"),
    "fork>fast>meet>last",
    "fork>slow>later>meet",
    "fork>each>meet",
    "fork>ask>meet",
    "fork>rest>meet",
    variables={"items": ["a", "b"]},
    parallel=3,
)
CANCELLED = {"slow", "later", "each", "each[0]/read", "ask", "rest"}


def backend_with_slow_branches() -> PacedBackend:
    backend = PacedBackend()
    backend.hold("fast", "slow", "read a")
    return backend


async def live_to_the_end(here: WorkflowWorld) -> TaskView:
    """Let the fast branch arrive as soon as the others are under way."""
    made = await here.engine.run_workflow(PLAN, source="test:once")
    while True:
        view = await here.engine.views.view(made.id)
        if view.task.status.is_final:
            return view
        runs = await here.runs(made)
        began = {path for path, run in runs.items() if run.started_at is not None}
        asked = await here.approvals.list_by_task(made.id)
        if asked and began >= {"slow", "each[0]/read", "rest"}:
            here.backend.release("fast")
        await asyncio.sleep(0.005)


async def test_the_first_that_arrives_ends_the_others(tmp_path: Path) -> None:
    backend = backend_with_slow_branches()
    async with workflow_world(tmp_path, backend) as here:
        async with asyncio.timeout(WAIT_SECONDS):
            view = await live_to_the_end(here)
        runs = await here.runs(view.task)
        asked = await here.approvals.list_by_task(view.task.id)
        notes = await here.event_texts(view.task, EventKind.NOTE)

    assert view.task.status is TaskStatus.COMPLETED
    assert {path for path, run in runs.items() if run.status is NodeStatus.CANCELLED} == CANCELLED
    # What never began has no beginning, and a step sees what came of the others.
    assert runs["later"].started_at is None
    assert backend.started_steps[-1] == "last cancelled"
    assert [each.state for each in asked] == [ApprovalState.EXPIRED]
    assert len(notes) == 1
    assert all(name in notes[0] for name in ("slow", "read", "rest"))
    shown = {step.path: step for step in view.steps}
    assert shown["slow"].status is NodeStatus.CANCELLED
    assert "meet" in shown["slow"].error


@pytest.mark.parametrize("nth", range(1, MAX_COMMITS + 1, sampled(1, 4)))
async def test_whenever_death_comes_what_was_cancelled_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    clock, death = ManualClock(), CrashAfterCommit(nth)
    first, second = backend_with_slow_branches(), backend_with_slow_branches()
    async with workflow_world(tmp_path, first, clock=clock) as here:
        with monkeypatch.context() as patched:
            death.install(patched)
            await death.run_until_crash(live_to_the_end(here))
        stored = [
            run
            for task in await here.engine.store.tasks.list_recent(10)
            for run in (await here.runs(task)).values()
        ]
        before = {run.path for run in stored if run.status is NodeStatus.CANCELLED}
    async with workflow_world(tmp_path, second, clock=clock) as here:
        async with asyncio.timeout(WAIT_SECONDS):
            view = await live_to_the_end(here)
        runs = await here.runs(view.task)
        asked = await here.approvals.list_by_task(view.task.id)

    assert view.task.status is TaskStatus.COMPLETED
    # All at once or none.
    assert before in (set(), CANCELLED)
    assert {path for path, run in runs.items() if run.status is NodeStatus.CANCELLED} == CANCELLED
    assert not before or not {"slow", "read a"} & {*second.started_steps}
    assert [each.state for each in asked] == [ApprovalState.EXPIRED]
