"""One session over all the runs of a task, though each has a process of its own."""

from __future__ import annotations

import asyncio

from bot.engine.agent.personas.builtin import PRAGMATIST
from storage.records.tasks import TaskStatus
from tests.bot.engine.llm.acp.life import PLAN, life
from tests.bot.engine.llm.acp.world import DONE
from tests.emulators.acp.cli import FakeCli, result
from tests.engine_world import Clock


async def test_steps_go_on_in_the_session_of_the_plan_also_after_its_process_died(
    cli: FakeCli,
) -> None:
    cli.will([PLAN], [{"say": "So far."}, {"die": 9}], [result(DONE)])
    async with life(cli, Clock()) as here:
        task = await here.world.add("Ship it")
        async with asyncio.timeout(60):
            ended = await here.ends(task)

    who = PRAGMATIST.name
    assert ended is TaskStatus.COMPLETED
    assert len(cli.received("session/new", who)) == 1
    assert len(cli.received("session/resume", who)) == 2
    assert len(cli.prompts(who)) == 3
