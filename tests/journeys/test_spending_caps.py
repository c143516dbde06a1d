"""A cap pauses work before the call that would pass it; a press lets it go on from there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulators.models.script import ApiKind, ReceivedRequest, ScriptedCall, ScriptedReply
from tests.emulators.telegram.chats import TelegramChat, TelegramMessage
from tests.journeys.model_world import (
    ScriptLine,
    held_reply,
    label_with,
    model_world,
    plan_reply,
    step_reply,
    wait_for_message,
    write_call,
)
from tests.thoroughness import sampled


def costing(line: ScriptLine, tokens: int) -> Callable[[ReceivedRequest], ScriptedReply]:
    """The same answer, after so much was read."""

    def reply(asked: ReceivedRequest) -> ScriptedReply:
        made = line if isinstance(line, ScriptedReply) else line(asked)
        return replace(made, usage={"input_tokens": tokens})

    return reply


async def the_request(chat: TelegramChat) -> TelegramMessage:
    """The card that asks for more."""
    return await chat.wait_for(lambda m: "cap" in m.text and len(m.buttons) >= 2)


@pytest.mark.parametrize("api", ["anthropic", "openai"][: sampled(2, 1)])
async def test_a_task_pauses_before_exceeding_its_cap_and_continues_once_extended(
    tmp_path: Path, api: ApiKind
) -> None:
    async with model_world(tmp_path, api, SHIFTBOSS_CAP_TASK="25k tokens") as world:
        world.script.script("money-cue", "plan", costing(plan_reply("Write it"), 6_000))
        world.script.script(
            "money-cue",
            "step",
            costing(write_call("money.md"), 10_000),
            costing(step_reply("It is written.", "money.md"), 10_500),
        )
        boss, chat = world.new_owner()
        await boss.says(chat, "/run write money.md for money-cue")
        request = await the_request(chat)
        assert len(world.script.requests_for("money-cue")) == 2, "the third call is not made"
        assert "25.0k" in request.text

        await boss.presses(request, label_with(request.buttons, "Extend"))
        await wait_for_message(chat, "Task finished", "1/1")

        heard = world.script.requests_for("money-cue")
        assert len(heard) == 3, "what was paid for is not asked for again"
        assert "some text" in str(heard[2].body["messages"]), "the file is not written again"
        assert world.models.refused == []


async def test_a_run_stopped_by_a_cap_asks_for_an_extension_and_is_not_a_failed_attempt(
    tmp_path: Path,
) -> None:
    def as_long_as_allowed(asked: ReceivedRequest) -> ScriptedReply:
        """The answer needs 10,000 tokens."""
        if int(asked.body["max_tokens"]) < 10_000:
            return costing(
                ScriptedReply(calls=[ScriptedCall(name="final_result", raw="{")], stop="cut"),
                10_000,
            )(asked)
        return step_reply("It is long.")(asked)

    async with model_world(tmp_path, "anthropic", SHIFTBOSS_CAP_TASK="25k tokens") as world:
        world.script.script("long-cue", "plan", costing(plan_reply("Write long"), 6_000))
        world.script.script("long-cue", "step", as_long_as_allowed)
        boss, chat = world.new_owner()
        await boss.says(chat, "/run write something long for long-cue")
        request = await the_request(chat)
        assert len(world.script.requests_for("long-cue", "step")) == 1, "it is not tried again"

        await boss.presses(request, label_with(request.buttons, "Extend"))
        await wait_for_message(chat, "Task finished", "1/1")

        assert len(world.script.requests_for("long-cue", "step")) == 2


async def test_chat_over_the_daily_cap_is_answered_only_after_an_extension(
    tmp_path: Path,
) -> None:
    async with model_world(tmp_path, "anthropic", SHIFTBOSS_CAP_DAY="40k tokens") as world:
        world.script.script(
            "dear-cue", "talk", costing(ScriptedReply(text="a dear answer"), 30_000)
        )
        boss, chat = world.new_owner()
        await boss.says(chat, "tell me about dear-cue")
        await wait_for_message(chat, "a dear answer")
        await boss.says(chat, "and about other-cue?")
        request = await the_request(chat)
        assert not world.script.requests_for("other-cue")

        await boss.presses(request, label_with(request.buttons, "Extend"))
        await wait_for_message(chat, "Approved")
        await boss.says(chat, "then about another-cue?")
        await world.wait_until(lambda: world.script.requests_for("another-cue"))

        await boss.says(chat, "/cost today")
        costs = await wait_for_message(chat, "Spending caps")
        assert "80.0k" in costs.text


async def test_a_call_lost_in_a_kill_is_counted_as_an_estimate_and_nothing_is_done_twice(
    tmp_path: Path,
) -> None:
    async with model_world(tmp_path, "anthropic") as world:
        world.script.script("lost-cue", "plan", plan_reply("Write it"))
        never = held_reply(step_reply("never said"), asyncio.Event())
        end = step_reply("It is written.", "lost.md")
        world.script.script("lost-cue", "step", write_call("lost.md"), never, end)
        boss, chat = world.new_owner()
        await boss.says(chat, "/run write lost.md for lost-cue")
        await world.script.wait_for_request("lost-cue", "step", 2)
        await world.program.kill()
        await world.program.start()

        await wait_for_message(chat, "Task finished", "1/1")
        await boss.says(chat, "/cost")
        cost = await wait_for_message(chat, "are an estimate")
        assert re.search(r"\b4\b", cost.text), "planning, two replies, and the lost call"
        steps = world.script.requests_for("lost-cue", "step")
        assert len(steps) == 3, "the reply that had come is not asked for again"
        written = [[tool for tool, _ in asked.tool_results].count("write") for asked in steps]
        assert written == [0, 1, 1]
