"""/history finds what was said; /compact has it told in fewer words."""

from __future__ import annotations

from datetime import UTC, datetime

from cards.model import FileBlock
from handlers.ports_workers import HistoryLine
from storage.records.people import ChatId
from tests.handlers.router_harness import RouterHarness, text_of

AT = datetime(2026, 5, 2, 9, 30, tzinfo=UTC)


def desk() -> RouterHarness:
    made = RouterHarness()
    made.world.histories.lines = [
        HistoryLine(at=AT, by_bot=True, text="The gate is green", ref="s1#2"),
        HistoryLine(at=AT, by_bot=False, text="花园叫绿禾公园", ref="s1#1"),
        HistoryLine(at=AT, by_bot=False, text="the gate again", ref="s2#1", task="k3m9qa"),
        HistoryLine(at=AT, by_bot=False, text="gate of elsewhere", ref="s3#1", elsewhere=True),
    ]
    return made


async def test_words_find_who_said_them_and_where() -> None:
    shown = text_of(await desk().send_message("/history search gate"))

    assert "The gate is green" in shown
    assert "task k3m9qa" in shown
    assert "another chat" in shown
    assert "花园" not in shown


async def test_it_is_found_in_chinese_too() -> None:
    shown = text_of(await desk().send_message("/历史 搜索 绿禾"))

    assert "花园叫绿禾公园" in shown
    assert "gate" not in shown


async def test_without_search_words_are_looked_for_as_well_and_nothing_shows_the_last() -> None:
    found = await desk().send_message("/history green")
    last = await desk().send_message("/history")

    assert "The gate is green" in text_of(found)
    assert "花园叫绿禾公园" in text_of(last)
    assert found.data is not None
    assert [line["ref"] for line in found.data["lines"]] == ["s1#2"]


async def test_quoted_words_belong_together() -> None:
    assert "The gate is green" in text_of(await desk().send_message('/history search "gate is"'))
    assert "No messages found" in text_of(await desk().send_message('/history search "green gate"'))


async def test_what_has_only_some_of_the_words_says_so() -> None:
    made = desk()
    made.world.histories.lines = [
        HistoryLine(at=AT, by_bot=False, text="gate", ref="s1#1", partial_match=True),
    ]

    assert "No message has all of these words" in text_of(await made.send_message("/history gate"))


async def test_a_search_that_ran_out_of_time_says_so_also_where_it_found_nothing() -> None:
    made = desk()
    made.world.histories.cut = True

    assert "ran out of time" in text_of(await made.send_message("/history gate"))
    assert "ran out of time" in text_of(await made.send_message("/history violet"))
    assert "ran out of time" not in text_of(await made.send_message("/history"))


async def test_a_search_for_nothing_says_what_is_missing() -> None:
    assert "/history" in text_of(await desk().send_message("/history search"))


async def test_what_is_looked_for_cannot_break_the_card() -> None:
    shown = text_of(await desk().send_message("/history search *[x](http://y)* | `"))

    assert "No messages found" in shown


async def test_a_conversation_is_summarised_on_somebodys_word() -> None:
    made = desk()
    assert "No conversation" in text_of(await made.send_message("/compact"))
    made.world.histories.open_chats.add(ChatId("c1"))

    assert "in the background" in text_of(await made.send_message("/compact"))


async def owner(text: str, chat: str = "c0") -> tuple[RouterHarness, str]:
    desk = RouterHarness()
    reply = await desk.send_message(text, who="x-olga", chat=chat)
    return desk, text_of(reply)


async def test_an_owner_sees_which_sessions_there_are() -> None:
    _, shown = await owner("/transcript")

    assert "5e551011" in shown
    assert "task:k3m9qa" in shown


async def test_one_is_sent_as_a_file_by_the_beginning_of_its_id() -> None:
    desk = RouterHarness()

    reply = await desk.send_message("/transcript 5e5", who="x-olga", chat="c0")

    assert reply.card is not None
    files = [block for block in reply.card.blocks if isinstance(block, FileBlock)]
    assert [(file.path, file.size) for file in files] == [("exports/s.jsonl", 10)]
    assert reply.data is not None
    assert reply.data["file"] == "/home/s.jsonl"


async def test_there_is_nothing_for_members_nor_where_others_read_along() -> None:
    assert "Only an owner" in text_of(await RouterHarness().send_message("/transcript 5e5"))
    desk = RouterHarness()
    desk.world.people.chats[ChatId("g1")]
    _, shown = await owner("/transcript 5e5", chat="g1")
    assert "private chat" in shown
    assert "exports" not in shown


async def test_a_session_nobody_knows_is_said_to_be_unknown() -> None:
    _, shown = await owner("/transcript zzz")

    assert "No such session: zzz" in shown
    assert "`/transcript` lists" in shown or "/transcript lists" in shown
