"""A service that fails, and the next one of the chain that goes on, in the real program."""

from __future__ import annotations

import re
from pathlib import Path

from tests.emulators.models.script import ReceivedRequest, ScriptedFailure, ScriptedReply
from tests.journeys.model_world import (
    model_settings,
    model_world,
    plan_reply,
    step_reply,
    wait_for_message,
    write_call,
)

CHAIN = {"SHIFTBOSS_MODEL": "anthropic:sonnet", "SHIFTBOSS_FALLBACK": "openai:local-model, offline"}


async def test_a_refused_key_sends_chat_and_tasks_to_the_next_service(tmp_path: Path) -> None:
    async with model_world(tmp_path, "anthropic") as world:
        await world.restart(**model_settings(world.models, "openai") | CHAIN)
        scripted = world.script

        def reply(asked: ReceivedRequest) -> ScriptedReply:
            if asked.api == "openai":
                return scripted(asked)
            scripted.requests.append(asked)
            return ScriptedReply(failure=ScriptedFailure(status=401, message="bad key"))

        world.models.replies(reply)
        scripted.script("chain-talk", "talk", lambda _asked: ScriptedReply(text="Good evening."))
        scripted.script("chain-task", "plan", plan_reply("Write it"))
        scripted.script("chain-task", "step", write_call("a.md"), step_reply("Written.", "a.md"))
        boss, chat = world.new_owner()

        await boss.says(chat, "chain-talk: hello?")
        answer = await wait_for_message(chat, "Good evening.")
        replaced = r"claude-sonnet-5-5 is unavailable, so local-model \(127\.0\.0\.1:\d+\) is used"
        assert re.search(replaced, answer.text), "a local server is named by where it runs"

        await boss.says(chat, "/run write a.md for chain-task")
        await wait_for_message(chat, "Task finished", "1/1")
        await boss.says(chat, "/backend")
        listed = await wait_for_message(chat, "openai:local-model → offline")
    assert "key" in listed.text
    refused = [asked for asked in scripted.requests if asked.api == "anthropic"]
    assert len(refused) == 1, "who was refused is left alone"
