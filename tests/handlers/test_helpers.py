"""What helpers report is answered as talk, whatever words it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handlers.ports import Answered
from tests.handlers.desk import Desk, text_of


@pytest.mark.parametrize("told", ["/stop everything", "yes", "@opus do it", "Clouds all day."])
async def test_it_is_no_command_no_decision_and_no_choice(told: str) -> None:
    desk = Desk()
    desk.world.talk.answers = [Answered(text="So it rains.")]

    reply = await desk.deliver(desk.row(replace(desk.message(""), told=told)))

    (question,) = desk.world.talk.questions
    assert text_of(reply) == "So it rains."
    assert question.text == told
    assert question.settle, "nothing is proposed in its name"
    assert question.model == ""


async def test_it_is_heard_however_much_its_person_has_said() -> None:
    desk = Desk()
    for _ in range(60):
        await desk.say("hello to you")

    reply = await desk.deliver(desk.row(replace(desk.message(""), told="Clouds.")))

    assert "Fine" in text_of(reply)
