"""The Boss's messages to a running task, in the real program."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.journeys.model_world import (
    held_reply,
    model_world,
    plan_reply,
    step_reply,
    wait_for_message,
    write_call,
)


async def test_a_message_reaches_the_worker_while_its_step_runs(tmp_path: Path) -> None:
    async with model_world(tmp_path, "anthropic") as world:
        go = asyncio.Event()
        end = step_reply("It is painted.", "wall.md")
        world.script.script("paint-cue", "plan", plan_reply("Paint it"))
        first = held_reply(write_call("wall.md"), go)
        world.script.script("paint-cue", "step", first, end)
        boss, chat = world.new_owner()
        await boss.says(chat, "/run paint wall.md for paint-cue")
        await world.script.wait_for_request("paint-cue", "step")
        await boss.says(chat, "/trace")
        traced = await wait_for_message(chat, "Trace of", "Still running")
        task = re.search(r"Trace of (\S+)", traced.text)
        assert task is not None

        await boss.says(chat, f"/msg {task[1]} in green, please")
        await wait_for_message(chat, "💬 Sent.")
        go.set()
        await wait_for_message(chat, "Task finished", "1/1")

        heard = [
            sum("in green, please" in text for text in asked.user_texts)
            for asked in world.script.requests_for("paint-cue", "step")
        ]
    assert heard == [0, 1], "with the result of its call, and in no step of its own"
