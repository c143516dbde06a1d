"""The story of one risky call, ended at each of its commits and taken up by another life."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from storage.records.approvals import ApprovalState
from storage.records.tasks import TaskStatus
from storage.records.tools import CallState
from tests.bot.engine.agent.leave.world import Hands, Shop, does, shop
from tests.bot.engine.death import Death
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Asked, Reply
from tests.engine_world import Clock
from tests.journeys.model_world import Stage, done, steps
from tests.thorough import sampled

MOST_COMMITS = 16


async def live(here: Shop) -> TaskStatus:
    """Ask for the task, allow what is asked, and wait for its end."""
    task = await here.world.add("Ship it", source="test:once")
    while True:
        view = await here.world.views.view(task.id)
        if view.task.status.is_final:
            return view.task.status
        for each in await here.approvals.of_task(task.id):
            if each.state is ApprovalState.WAITING:
                await here.decide(each)
        await asyncio.sleep(0.005)


def once(asked: Asked) -> Reply:
    """The worker wants one thing, and is done when it knows what came of it."""
    told = any(tool == "deploy" for tool, _ in asked.results)
    return done("It is live.")(asked) if told else does("deploy", "a")


@pytest.mark.parametrize("nth", range(1, MOST_COMMITS + 1, sampled(1, 4)))
async def test_a_risky_call_is_never_made_twice_whenever_death_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    hands, clock, stage, death = Hands(), Clock(), Stage(), Death(nth)
    stage.on("Ship it", "plan", steps("go live"))
    stage.on("go live", "step", once)
    async with Models() as models:
        async with shop(tmp_path, models, stage, hands, clock=clock) as here:
            with monkeypatch.context() as patched:
                death.on(patched)
                await death.or_end_of(live(here))
        async with shop(tmp_path, models, stage, hands, clock=clock) as here:
            async with asyncio.timeout(60):
                ended = await live(here)
            task = await here.world.add("Ship it", source="test:once")
            states = [each.state for each in await here.of_task(task)]

    assert ended is TaskStatus.COMPLETED
    assert hands.ran == ["a"] or (hands.ran == [] and CallState.CUT in states)
    assert models.refused == []
