"""Shiftboss on several machines: processes of each role on one store, and any of them may die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from tests.journeys.model_world import (
    ModelWorld,
    held_reply,
    model_world,
    plan_reply,
    step_reply,
    wait_for_message,
)
from tests.journeys.program import ShiftbossProcess
from tests.postgresql_server import create_database, execute
from tests.waiting import wait_until

Starter: TypeAlias = Callable[..., Awaitable[ShiftbossProcess]]


async def test_work_and_channels_pass_from_dead_machines_to_others(tmp_path: Path) -> None:
    url = create_database(migrated=False)
    async with cluster(tmp_path / "home", url) as (world, start):
        boss, chat = world.new_owner()
        first = await start("worker", "--name", "w1", "--slots", "2")
        held = asyncio.Event()
        world.script.script("owl", "plan", plan_reply("read", "write"))
        world.script.script(
            "owl", "step", step_reply("read it"), held_reply(step_reply("lost"), held)
        )
        world.script.script("fox", "plan", plan_reply("hunt"))
        world.script.script("fox", "step", held_reply(step_reply("hunted"), asyncio.Event()))

        # A task runs on another machine than the chat, and is stopped from there.
        await boss.says(chat, "/task the fox")
        await world.script.wait_for_request("fox")
        ((fox,),) = execute(url, "SELECT id FROM tasks")
        await boss.says(chat, f"/stop {fox}")
        await wait_for_message(chat, "the fox", "Finished steps are kept")
        await first.wait_for_output("no longer this process's")

        # Its machine dies within the second step: the first one is not done again.
        await boss.says(chat, "/task the owl")
        await world.script.wait_for_request("owl", count=2)
        world.script.script("owl", "step", step_reply("wrote it"))
        await first.kill()
        await start("worker", "--name", "w2", "--slots", "2")
        await wait_for_message(chat, "wrote it")
        assert len(world.script.requests_for("owl", "step")) == 3

        # The front dies, and the one that waits has the channels.
        standby = await start("front", "--name", "f2")
        await world.program.kill()
        await standby.wait_for_output("Shiftboss is ready")
        await boss.says(chat, "/task the hen")
        await wait_for_message(chat, "hen", "Task finished")

        code, printed = await standby.run_to_end("worker", "--drain", "w2")
        assert (code, "w2" in printed) == (0, True)
        await wait_until(lambda: not execute(url, "SELECT 1 FROM workers WHERE name = 'w2'"))
    assert execute(url, "SELECT count(*) FROM pending_model_calls") == [(0,)]


@asynccontextmanager
async def cluster(
    home: Path, url: str, **settings: str
) -> AsyncGenerator[tuple[ModelWorld, Starter], None]:
    """A front with the channels, and a function that starts more processes."""
    async with (
        model_world(home, "openai", DATABASE_URL=url, **settings) as world,
        AsyncExitStack() as stack,
    ):
        await world.program.stop()
        world.program.arguments = ("front", "--name", "f1")
        await world.program.start()

        async def start(*arguments: str) -> ShiftbossProcess:
            made = ShiftbossProcess(home=home, settings=world.program.settings, arguments=arguments)
            stack.push_async_callback(made.kill_if_running)
            await made.start()
            return made

        yield world, start
