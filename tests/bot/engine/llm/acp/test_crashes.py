"""The story of one call that a CLI was allowed after its process had gone, ended at each of its
commits and taken up by another life."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.engine.workers.personas import PRAGMATIST_PERSONA
from storage.records.approvals import ToolCallState
from storage.records.tasks import Task, TaskStatus
from storage.tools import ToolCallRepo
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.llm.acp.builders import DONE_ANSWER, PLAN_REPLY, run_cli_task
from tests.emulators.acp.fake_cli import FakeCli, permission_request, result_reply
from tests.engine_harness import ManualClock
from tests.thoroughness import sampled
from tests.waiting import WAIT_SECONDS

MAX_COMMITS = 10
COMPLETED = {"sessionUpdate": "tool_call_update", "toolCallId": "call-1", "status": "completed"}


def write_scenario(cli: FakeCli, *then: dict[str, Any]) -> None:
    """A plan, and then what makes something that can be counted, and `then` once it is made."""
    make = {"append": {"path": str(cli.root / "made.txt"), "text": "made\n"}}
    cli.script(
        [PLAN_REPLY],
        [permission_request("make", yes=[make, *then], no=[result_reply(DONE_ANSWER)])],
    )


async def taken_up(cli: FakeCli, clock: ManualClock, task: Task) -> set[ToolCallState]:
    """Another life brings it to its end."""
    async with run_cli_task(cli, clock) as here:
        async with asyncio.timeout(WAIT_SECONDS):
            assert await here.run_to_end(task) is TaskStatus.COMPLETED
        assert here.call_count == 1
        return {each.state for each in await ToolCallRepo(here.world.db).list_by_task(task.id, 50)}


@pytest.mark.parametrize("nth", range(MAX_COMMITS, 0, -sampled(1, 2)))
async def test_a_call_that_was_allowed_late_is_never_made_twice_unasked_whenever_death_comes(
    cli: FakeCli, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    write_scenario(cli, {"update": COMPLETED}, result_reply(DONE_ANSWER))
    clock, death = ManualClock(), CrashAfterCommit(nth)
    async with run_cli_task(cli, clock) as first:
        task = await first.world.create_task("Ship it")
        asked = await first.pending_approval(task)
        assert first.call_count == 0
        with monkeypatch.context() as patched:
            death.install(patched)

            async def story() -> None:
                await first.decide(asked, approve=True)
                await first.run_to_end(task)

            await death.run_until_crash(story())

    states = await taken_up(cli, clock, task)

    assert not states & {ToolCallState.OPEN, ToolCallState.RUNNING}


async def test_one_that_was_being_made_when_death_came_is_asked_about_not_made_again(
    cli: FakeCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_scenario(cli, {"hang": True})
    clock, death = ManualClock(), CrashAfterCommit(0)
    async with run_cli_task(cli, clock) as first:
        task = await first.world.create_task("Ship it")
        await first.decide(await first.pending_approval(task), approve=True)
        async with asyncio.timeout(WAIT_SECONDS):
            while not first.call_count:
                await asyncio.sleep(0.005)
        with monkeypatch.context() as patched:
            death.install(patched)
            death.crashed.set()
    write_scenario(cli, {"update": COMPLETED}, result_reply(DONE_ANSWER))

    states = await taken_up(cli, clock, task)

    assert states == {ToolCallState.CUT, ToolCallState.DENIED}
    assert "it was cut off while it ran" in "".join(cli.prompts(PRAGMATIST_PERSONA.name))


async def test_steps_go_on_in_the_session_of_the_plan_also_after_its_process_died(
    cli: FakeCli,
) -> None:
    cli.script([PLAN_REPLY], [{"say": "So far."}, {"die": 9}], [result_reply(DONE_ANSWER)])
    async with run_cli_task(cli, ManualClock()) as here:
        task = await here.world.create_task("Ship it")
        async with asyncio.timeout(WAIT_SECONDS):
            ended = await here.run_to_end(task)

    who = PRAGMATIST_PERSONA.name
    assert ended is TaskStatus.COMPLETED
    assert len(cli.received("session/new", who)) == 1
    assert len(cli.received("session/resume", who)) == 2
    assert len(cli.prompts(who)) == 3
