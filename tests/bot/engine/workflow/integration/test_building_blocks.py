"""Sub-workflows on the real runner, ended at their commits and taken up by another life."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from bot.engine.workflow.definition import Workflow
from bot.engine.workflow.named_workflows import WorkflowLibrary, parse_workflow_text
from storage.records.approvals import ApprovalState
from storage.records.tasks import TaskStatus, TaskView
from storage.records.workflows import WorkflowRefused
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    WorkflowWorld,
    workflow_world,
)
from tests.engine_harness import ManualClock
from tests.thoroughness import sampled
from tests.waiting import WAIT_SECONDS

MAX_COMMITS = 16

OUTER = """\
name: Outer
nodes:
  - {id: write, name: write}
  - {id: publish, type: subworkflow, workflow: publish, inputs: {note: "{{outputs.write}}"}}
  - {id: tell, name: "tell {{outputs.publish.times}}"}
outputs: {times: outputs.publish.times}
"""
PUBLISH = """\
name: Publish
inputs: [{name: note}]
variables: {n: 1}
nodes:
  - {id: check, name: check}
  - {id: n, type: assign, assignments: [{variable: n, value: variables.n + 1, isExpression: true}]}
  - {id: send, type: human, name: "send?", form: {more: number, to: {options: [Ann, Bo]}}}
outputs: {times: outputs.send.more + variables.n}
"""


async def plan_of(home: Path, **texts: str) -> Workflow:
    library = WorkflowLibrary(home)
    for name, text in texts.items():
        await library.save(name, text)
    return await library.insert_subworkflows("outer", parse_workflow_text(texts["outer"]))


async def live_to_the_end(here: WorkflowWorld, plan: Workflow) -> TaskView:
    made = await here.engine.run_workflow(plan, source="test:once")
    while True:
        view = await here.engine.views.view(made.id)
        if view.task.status.is_final:
            return view
        for each in await here.approvals.list_by_task(made.id):
            if each.state is ApprovalState.WAITING:
                await here.decide(each, values={"more": 1, "to": "Bo"})
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("nth", range(2, MAX_COMMITS + 1, sampled(1, 6)))
async def test_a_sub_workflow_survives_death_at_any_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    clock, first, second, death = (
        ManualClock(),
        PacedBackend(),
        PacedBackend(),
        CrashAfterCommit(nth),
    )
    plan = await plan_of(tmp_path, outer=OUTER, publish=PUBLISH)
    async with workflow_world(tmp_path, first, clock=clock) as here:
        with monkeypatch.context() as patched:
            death.install(patched)
            await death.run_until_crash(live_to_the_end(here, plan))
    async with workflow_world(tmp_path, second, clock=clock) as here:
        async with asyncio.timeout(WAIT_SECONDS):
            view = await live_to_the_end(here, plan)

    assert view.task.status is TaskStatus.COMPLETED
    assert "times: 3" in view.task.summary
    assert {*first.started_steps, *second.started_steps} == {"write", "check", "tell 3"}
    assert (Counter(first.started_steps) & Counter(second.started_steps)).total() <= 1
    assert [step.title for step in view.steps] == ["write", "check", "send?", "tell 3"]


async def test_a_workflow_that_would_run_itself_is_not_saved(tmp_path: Path) -> None:
    library = WorkflowLibrary(tmp_path)
    # The other file may come later.
    await library.save("outer", OUTER)
    back = "name: B\nnodes: [{id: a, type: subworkflow, workflow: outer}]"

    with pytest.raises(WorkflowRefused) as refused:
        await library.save("publish", back)

    assert [each.code for each in refused.value.errors] == ["runs_itself"]
    assert [each.name for each in (await library.list_workflows()).workflows] == ["outer"]
