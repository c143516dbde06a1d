"""/history finds what was said; /compact has it told in fewer words."""

from __future__ import annotations

from datetime import UTC, datetime

from handlers.services.histories import PastLine
from storage.records.people import ChatId
from tests.handlers.desk import Desk, text_of

AT = datetime(2026, 5, 2, 9, 30, tzinfo=UTC)


def desk() -> Desk:
    made = Desk()
    made.world.histories.said = [
        PastLine(at=AT, by_bot=True, text="The gate is green", ref="s1#2"),
        PastLine(at=AT, by_bot=False, text="花园叫绿禾公园", ref="s1#1"),
        PastLine(at=AT, by_bot=False, text="the gate again", ref="s2#1", task="k3m9qa"),
        PastLine(at=AT, by_bot=False, text="gate of elsewhere", ref="s3#1", elsewhere=True),
    ]
    return made


async def test_words_find_who_said_them_and_where() -> None:
    shown = text_of(await desk().say("/history search gate"))

    assert "The gate is green" in shown
    assert "task k3m9qa" in shown
    assert "another chat" in shown
    assert "花园" not in shown


async def test_it_is_found_in_chinese_too() -> None:
    shown = text_of(await desk().say("/历史 搜索 绿禾"))

    assert "花园叫绿禾公园" in shown
    assert "gate" not in shown


async def test_without_search_words_are_looked_for_as_well_and_nothing_shows_the_last() -> None:
    found = await desk().say("/history green")
    last = await desk().say("/history")

    assert "The gate is green" in text_of(found)
    assert "花园叫绿禾公园" in text_of(last)
    assert found.data is not None
    assert [line["ref"] for line in found.data["lines"]] == ["s1#2"]


async def test_quoted_words_belong_together() -> None:
    assert "The gate is green" in text_of(await desk().say('/history search "gate is"'))
    assert "Nobody has said that" in text_of(await desk().say('/history search "green gate"'))


async def test_what_has_only_some_of_the_words_says_so() -> None:
    made = desk()
    made.world.histories.said = [
        PastLine(at=AT, by_bot=False, text="gate", ref="s1#1", near=True),
    ]

    assert "Nothing has all of these words" in text_of(await made.say("/history gate"))


async def test_a_search_that_ran_out_of_time_says_so_also_where_it_found_nothing() -> None:
    made = desk()
    made.world.histories.cut = True

    assert "no time to look at everything" in text_of(await made.say("/history gate"))
    assert "no time to look at everything" in text_of(await made.say("/history violet"))
    assert "no time to look" not in text_of(await made.say("/history"))


async def test_a_search_for_nothing_says_what_is_missing() -> None:
    assert "/history" in text_of(await desk().say("/history search"))


async def test_what_is_looked_for_cannot_break_the_card() -> None:
    shown = text_of(await desk().say("/history search *[x](http://y)* | `"))

    assert "Nobody has said that" in shown


async def test_a_conversation_is_summarised_on_somebodys_word() -> None:
    made = desk()
    assert "no conversation" in text_of(await made.say("/compact"))
    made.world.histories.under_way.add(ChatId("c1"))

    assert "in the background" in text_of(await made.say("/compact"))
