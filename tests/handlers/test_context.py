"""/context says what a worker is told first, how much it is, and what is left out."""

from __future__ import annotations

from storage.records.people import Language
from tests.handlers.desk import Desk, text_of


async def test_parts_are_listed_with_sizes_and_what_became_of_them() -> None:
    shown = text_of(await Desk().say("/context"))

    assert "15.2k characters, about 3.8k tokens" in shown
    assert "14.0k of 30.0k" in shown
    assert "head and tail" in shown
    assert "the project in brief" in shown
    assert "Not there: TOOLS.md." in shown


async def test_it_is_told_in_chinese_too() -> None:
    shown = text_of(await Desk(language=Language.CHINESE).say("/上下文"))

    assert "保留首尾" in shown
    assert "项目概况" in shown


async def test_a_program_is_told_the_same_as_data() -> None:
    reply = await Desk().say("/context")

    assert reply.data is not None
    assert reply.data["parts"][0] == {
        "name": "AGENTS.md",
        "state": "cut",
        "size": 30_000,
        "used": 14_000,
    }


async def test_nothing_of_ones_own_is_not_said_to_be_nothing_at_all() -> None:
    desk = Desk()
    desk.world.contexts.told = ()

    shown = text_of(await desk.say("/context"))

    assert "Nothing of yours yet" in shown
    assert "0 characters" not in shown
