"""Two branches that stop at a call of a tool each: every decision moves its own branch."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.engine.workflow.model.nodes import NodeType
from storage.records.approvals import Approval, ApprovalState
from storage.records.tasks import Task, TaskStatus
from tests.bot.engine.agent.leave.world import Hands, Shop, does, shop
from tests.bot.engine.death import Death
from tests.bot.engine.workflow.flows.world import graph, node, task
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Asked, Reply
from tests.engine_world import Clock
from tests.journeys.model_world import Stage, done
from tests.thorough import sampled

MOST_COMMITS = 24

PLAN = graph(
    node("fork", NodeType.PARALLEL),
    task("east", "open the east door"),
    task("west", "open the west door"),
    node("both", NodeType.JOIN),
    "fork>east>both",
    "fork>west>both",
    parallel=2,
)


def scene() -> Stage:
    stage = Stage()
    for side in ("east", "west"):

        def opens(asked: Asked, side: str = side) -> Reply:
            told = any(tool == "deploy" for tool, _ in asked.results)
            return done(f"{side} is open")(asked) if told else does("deploy", side)

        stage.on(f"Your step now: open the {side} door", "step", opens)
    return stage


async def requests(here: Shop, made: Task, n: int) -> list[Approval]:
    async with asyncio.timeout(60):
        while True:
            asked = await here.approvals.of_task(made.id)
            left = [each for each in asked if each.state is ApprovalState.WAITING]
            if len(left) >= n:
                return left
            await asyncio.sleep(0.005)


async def test_calls_of_two_branches_are_decided_in_any_order(tmp_path: Path) -> None:
    hands = Hands()
    async with Models() as models, shop(tmp_path, models, scene(), hands) as here:
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


async def live(here: Shop) -> TaskStatus:
    made = await here.world.run_workflow(PLAN, source="test:once")
    while True:
        view = await here.world.views.view(made.id)
        if view.task.status.is_final:
            return view.task.status
        for each in await here.approvals.of_task(made.id):
            if each.state is ApprovalState.WAITING:
                await here.decide(each)
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("nth", range(2, MOST_COMMITS + 1, sampled(1, 8)))
async def test_no_call_of_either_branch_is_made_twice_whenever_death_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    hands, clock, death = Hands(), Clock(), Death(nth)
    async with Models() as models:
        async with shop(tmp_path, models, scene(), hands, clock=clock) as here:
            with monkeypatch.context() as patched:
                death.on(patched)
                await death.or_end_of(live(here))
        async with shop(tmp_path, models, scene(), hands, clock=clock) as here:
            async with asyncio.timeout(60):
                ended = await live(here)

    assert ended is TaskStatus.COMPLETED
    assert len(hands.ran) == len(set(hands.ran))
    assert models.refused == []
