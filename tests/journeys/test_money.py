"""A cap pauses work before the call that would pass it; a press lets it go on from there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulators.models.script import Api, Asked, Call, Reply
from tests.emulators.telegram.chats import Chat, Message
from tests.journeys.model_world import (
    PATIENCE,
    Line,
    done,
    label_with,
    steps,
    told,
    world,
    writes,
)
from tests.thorough import sampled


def costing(line: Line, tokens: int) -> Callable[[Asked], Reply]:
    """The same answer, after so much was read."""

    def reply(asked: Asked) -> Reply:
        made = line if isinstance(line, Reply) else line(asked)
        return replace(made, usage={"input_tokens": tokens})

    return reply


async def the_request(chat: Chat) -> Message:
    """The card that asks for more."""
    return await chat.wait_for(lambda m: "cap" in m.text and len(m.buttons) >= 2, timeout=PATIENCE)


@pytest.mark.parametrize("api", ["anthropic", "openai"][: sampled(2, 1)])
async def test_a_task_pauses_before_the_call_that_would_pass_its_cap_and_goes_on_when_extended(
    tmp_path: Path, api: Api
) -> None:
    async with world(tmp_path, api, SHIFTBOSS_CAP_TASK="25k tokens") as place:
        place.stage.on("money-cue", "plan", costing(steps("Write it"), 6_000))
        place.stage.on(
            "money-cue",
            "step",
            costing(writes("money.md"), 10_000),
            costing(done("It is written.", "money.md"), 10_500),
        )
        boss, chat = place.boss()
        await boss.says(chat, "/run write money.md for money-cue")
        request = await the_request(chat)
        assert len(place.stage.heard("money-cue")) == 2, "the third call is not made"
        assert "25.0k" in request.text

        await boss.presses(request, label_with(request.buttons, "Extend"))
        await told(chat, "Task finished", "1/1")

        heard = place.stage.heard("money-cue")
        assert len(heard) == 3, "what was paid for is not asked for again"
        assert "some text" in str(heard[2].body["messages"]), "the file is not written again"
        assert place.models.refused == []


async def test_an_answer_that_a_cap_cut_off_asks_for_more_and_is_no_failed_try(
    tmp_path: Path,
) -> None:
    def as_long_as_allowed(asked: Asked) -> Reply:
        """The answer needs 10,000 tokens."""
        if int(asked.body["max_tokens"]) < 10_000:
            return costing(Reply(calls=[Call(name="final_result", raw="{")], stop="cut"), 10_000)(
                asked
            )
        return done("It is long.")(asked)

    async with world(tmp_path, "anthropic", SHIFTBOSS_CAP_TASK="25k tokens") as place:
        place.stage.on("long-cue", "plan", costing(steps("Write long"), 6_000))
        place.stage.on("long-cue", "step", as_long_as_allowed)
        boss, chat = place.boss()
        await boss.says(chat, "/run write something long for long-cue")
        request = await the_request(chat)
        assert len(place.stage.heard("long-cue", "step")) == 1, "it is not tried again"

        await boss.presses(request, label_with(request.buttons, "Extend"))
        await told(chat, "Task finished", "1/1")

        assert len(place.stage.heard("long-cue", "step")) == 2


async def test_talk_that_would_pass_the_cap_of_the_day_is_not_answered_until_more_is_allowed(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, "anthropic", SHIFTBOSS_CAP_DAY="40k tokens") as place:
        place.stage.on("dear-cue", "talk", costing(Reply(text="a dear answer"), 30_000))
        boss, chat = place.boss()
        await boss.says(chat, "tell me about dear-cue")
        await told(chat, "a dear answer")
        await boss.says(chat, "and about other-cue?")
        request = await the_request(chat)
        assert not place.stage.heard("other-cue")

        await boss.presses(request, label_with(request.buttons, "Extend"))
        await told(chat, "Approved")
        await boss.says(chat, "then about another-cue?")
        await place.until(lambda: place.stage.heard("another-cue"))

        await boss.says(chat, "/cost today")
        costs = await told(chat, "What the caps still allow")
        assert "80.0k" in costs.text
