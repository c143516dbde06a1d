"""The story of one call that a CLI was allowed after its process had gone, ended at each of its
commits and taken up by another life."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.engine.agent.personas.builtin import PRAGMATIST
from storage.agents.calls import CallRepo
from storage.records.tasks import Task, TaskStatus
from storage.records.tools import CallState
from tests.bot.engine.death import Death
from tests.bot.engine.llm.acp.life import PLAN, life
from tests.bot.engine.llm.acp.world import DONE
from tests.emulators.acp.cli import FakeCli, result, wish
from tests.engine_world import Clock
from tests.thorough import sampled

MOST_COMMITS = 10
COMPLETED = {"sessionUpdate": "tool_call_update", "toolCallId": "call-1", "status": "completed"}


def scenario(cli: FakeCli, *then: dict[str, Any]) -> None:
    """A plan, and then what makes something that can be counted, and `then` once it is made."""
    make = {"append": {"path": str(cli.root / "made.txt"), "text": "made\n"}}
    cli.will([PLAN], [wish("make", yes=[make, *then], no=[result(DONE)])])


async def taken_up(cli: FakeCli, clock: Clock, task: Task) -> set[CallState]:
    """Another life brings it to its end."""
    async with life(cli, clock) as here:
        async with asyncio.timeout(60):
            assert await here.ends(task) is TaskStatus.COMPLETED
        assert here.times == 1
        return {each.state for each in await CallRepo(here.world.db).of_task(task.id, 50)}


@pytest.mark.parametrize("nth", range(MOST_COMMITS, 0, -sampled(1, 2)))
async def test_a_call_that_was_allowed_late_is_never_made_twice_unasked_whenever_death_comes(
    cli: FakeCli, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    scenario(cli, {"update": COMPLETED}, result(DONE))
    clock, death = Clock(), Death(nth)
    async with life(cli, clock) as first:
        task = await first.world.add("Ship it")
        asked = await first.request(task)
        assert first.times == 0
        with monkeypatch.context() as patched:
            death.on(patched)

            async def story() -> None:
                await first.decide(asked, approve=True)
                await first.ends(task)

            await death.or_end_of(story())

    states = await taken_up(cli, clock, task)

    assert not states & {CallState.OPEN, CallState.RUNNING}


async def test_one_that_was_being_made_when_death_came_is_asked_about_not_made_again(
    cli: FakeCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario(cli, {"hang": True})
    clock, death = Clock(), Death(0)
    async with life(cli, clock) as first:
        task = await first.world.add("Ship it")
        await first.decide(await first.request(task), approve=True)
        async with asyncio.timeout(60):
            while not first.times:
                await asyncio.sleep(0.005)
        with monkeypatch.context() as patched:
            death.on(patched)
            death.came.set()
    scenario(cli, {"update": COMPLETED}, result(DONE))

    states = await taken_up(cli, clock, task)

    assert states == {CallState.CUT, CallState.DENIED}
    assert "it was cut off while it ran" in "".join(cli.prompts(PRAGMATIST.name))
