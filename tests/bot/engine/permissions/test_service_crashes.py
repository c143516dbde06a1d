"""The story of one risky call, ended at each of its commits and taken up by another life."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from storage.records.approvals import ApprovalState, ToolCallState
from storage.records.tasks import TaskStatus
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.permissions.builders import (
    PermissionSetup,
    ScriptedWorker,
    permission_setup,
    reply_with_call,
)
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ReceivedRequest, ScriptedReply
from tests.engine_harness import ManualClock
from tests.journeys.model_world import ScriptedModel, plan_reply, step_reply
from tests.thoroughness import sampled
from tests.waiting import WAIT_SECONDS

MOST_COMMITS = 16


async def live(here: PermissionSetup) -> TaskStatus:
    """Ask for the task, allow what is asked, and wait for its end."""
    task = await here.world.create_task("Ship it", source="test:once")
    while True:
        view = await here.world.views.view(task.id)
        if view.task.status.is_final:
            return view.task.status
        for each in await here.approvals.list_by_task(task.id):
            if each.state is ApprovalState.WAITING:
                await here.decide(each)
        await asyncio.sleep(0.005)


def once(asked: ReceivedRequest) -> ScriptedReply:
    """The worker wants one thing, and is done when it knows what came of it."""
    told = any(tool == "deploy" for tool, _ in asked.tool_results)
    return step_reply("It is live.")(asked) if told else reply_with_call("deploy", "a")


@pytest.mark.parametrize("nth", range(1, MOST_COMMITS + 1, sampled(1, 4)))
async def test_a_risky_call_is_never_made_twice_whenever_death_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    hands, clock, stage, death = (
        ScriptedWorker(),
        ManualClock(),
        ScriptedModel(),
        CrashAfterCommit(nth),
    )
    stage.script("Ship it", "plan", plan_reply("go live"))
    stage.script("go live", "step", once)
    async with ModelEmulator() as models:
        async with permission_setup(tmp_path, models, stage, hands, clock=clock) as here:
            with monkeypatch.context() as patched:
                death.install(patched)
                await death.run_until_crash(live(here))
        async with permission_setup(tmp_path, models, stage, hands, clock=clock) as here:
            async with asyncio.timeout(WAIT_SECONDS):
                ended = await live(here)
            task = await here.world.create_task("Ship it", source="test:once")
            states = [each.state for each in await here.of_task(task)]

    assert ended is TaskStatus.COMPLETED
    assert hands.ran == ["a"] or (hands.ran == [] and ToolCallState.CUT in states)
    assert models.refused == []
