"""A workflow with branches, rounds, a person and a rest, ended at each of its commits and taken up
by another life: no finished step is done again, and none is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from bot.engine.workflow.model.nodes import Assign, Assignment, Delay, Foreach, NodeType
from storage.records.approvals import ApprovalState
from storage.records.tasks import NodeStatus, TaskStatus, TaskView
from tests.bot.engine.death import Death
from tests.bot.engine.workflow.flows.world import Flows, Paced, flows, graph, node, task
from tests.engine_world import Clock
from tests.thorough import sampled

MOST_COMMITS = 30

PLAN = graph(
    node("fork", NodeType.PARALLEL),
    node(
        "each",
        NodeType.FOREACH,
        Foreach(collection="variables.items", body=("read", "note"), mode="parallel"),
    ),
    task("read", "read {{item}}"),
    node(
        "note",
        NodeType.ASSIGN,
        Assign(
            assignments=(
                Assignment(variable="seen", value="variables.seen + 1", is_expression=True),
            )
        ),
    ),
    node("ask", NodeType.HUMAN),
    node("rest", NodeType.DELAY, Delay(seconds=3600)),
    task("call"),
    node("both", NodeType.JOIN),
    task("sum", "sum of {{variables.seen}}"),
    "read>note",
    "fork>each>both",
    "fork>ask>rest>call>both>sum",
    variables={"items": ["a", "b", "c"], "seen": 0},
    outputs={"all": "len(outputs.each.results)"},
    parallel=2,
)
STEPS = {"read a", "read b", "read c", "call", "sum of 3"}


async def live(here: Flows) -> TaskView:
    """Ask for the task, allow what is asked, let the hour pass, and wait for its end."""
    made = await here.world.run_workflow(PLAN, source="test:once")
    while True:
        view = await here.world.views.view(made.id)
        if view.task.status.is_final:
            return view
        for each in await here.approvals.of_task(made.id):
            if each.state is ApprovalState.WAITING:
                await here.decide(each)
        runs = await here.runs(made)
        if "rest" in runs and runs["rest"].status is NodeStatus.WAITING:
            await here.later(hours=2)
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("nth", range(1, MOST_COMMITS + 1, sampled(1, 5)))
async def test_whenever_death_comes_each_step_is_done_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    clock, first, second, death = Clock(), Paced(), Paced(), Death(nth)
    async with flows(tmp_path, first, clock=clock) as here:
        with monkeypatch.context() as patched:
            death.on(patched)
            await death.or_end_of(live(here))
    async with flows(tmp_path, second, clock=clock) as here:
        async with asyncio.timeout(60):
            view = await live(here)
        runs = await here.runs(view.task)
        asked = await here.approvals.of_task(view.task.id)

    assert view.task.status is TaskStatus.COMPLETED
    assert "all: 3" in view.task.summary
    assert [run.path for run in runs.values() if not run.status.is_settled] == []
    assert {*first.done, *second.done} == STEPS
    again = Counter(first.done) & Counter(second.done)
    # Only what was under way when it died.
    assert again.total() <= PLAN.parallel
    assert max(Counter(second.done).values(), default=0) <= 1
    assert [each.state for each in asked] == [ApprovalState.APPROVED]
