"""Two branches that stop at a call of a tool each: every decision moves its own branch."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.engine.workflow.nodes.registry import NodeType
from storage.records.approvals import Approval, ApprovalState
from storage.records.tasks import Task, TaskStatus
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.permissions.builders import (
    PermissionSetup,
    ScriptedWorker,
    permission_setup,
    reply_with_call,
)
from tests.bot.engine.workflow.integration.workflow_world import make_graph, make_node, task_node
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ReceivedRequest, ScriptedReply
from tests.engine_harness import ManualClock
from tests.journeys.model_world import ScriptedModel, step_reply
from tests.thoroughness import sampled
from tests.waiting import WAIT_SECONDS

MAX_COMMITS = 24

PLAN = make_graph(
    make_node("fork", NodeType.PARALLEL),
    task_node("east", "open the east door"),
    task_node("west", "open the west door"),
    make_node("both", NodeType.JOIN),
    "fork>east>both",
    "fork>west>both",
    parallel=2,
)


def scene() -> ScriptedModel:
    stage = ScriptedModel()
    for side in ("east", "west"):

        def opens(asked: ReceivedRequest, side: str = side) -> ScriptedReply:
            told = any(tool == "deploy" for tool, _ in asked.tool_results)
            return step_reply(f"{side} is open")(asked) if told else reply_with_call("deploy", side)

        stage.script(f"Your step now: open the {side} door", "step", opens)
    return stage


async def requests(here: PermissionSetup, made: Task, n: int) -> list[Approval]:
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            asked = await here.approvals.list_by_task(made.id)
            left = [each for each in asked if each.state is ApprovalState.WAITING]
            if len(left) >= n:
                return left
            await asyncio.sleep(0.005)


async def test_calls_of_two_branches_are_decided_in_any_order(tmp_path: Path) -> None:
    hands = ScriptedWorker()
    async with (
        ModelEmulator() as models,
        permission_setup(tmp_path, models, scene(), hands) as here,
    ):
        made = await here.world.run_workflow(PLAN)
        first, second = await requests(here, made, 2)
        await here.world.until(made, TaskStatus.WAITING)
        assert hands.ran == []
        await here.decide(second)
        await here.decide(first)
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(hands.ran) == ["east", "west"]
    assert models.refused == []


async def live_to_the_end(here: PermissionSetup) -> TaskStatus:
    made = await here.world.run_workflow(PLAN, source="test:once")
    while True:
        view = await here.world.views.view(made.id)
        if view.task.status.is_final:
            return view.task.status
        for each in await here.approvals.list_by_task(made.id):
            if each.state is ApprovalState.WAITING:
                await here.decide(each)
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("nth", range(2, MAX_COMMITS + 1, sampled(1, 8)))
async def test_no_call_of_either_branch_is_made_twice_whenever_death_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    hands, clock, death = ScriptedWorker(), ManualClock(), CrashAfterCommit(nth)
    async with ModelEmulator() as models:
        async with permission_setup(tmp_path, models, scene(), hands, clock=clock) as here:
            with monkeypatch.context() as patched:
                death.install(patched)
                await death.run_until_crash(live_to_the_end(here))
        async with permission_setup(tmp_path, models, scene(), hands, clock=clock) as here:
            async with asyncio.timeout(WAIT_SECONDS):
                ended = await live_to_the_end(here)

    assert ended is TaskStatus.COMPLETED
    assert len(hands.ran) == len(set(hands.ran))
    assert models.refused == []
