"""/transcript: for owners, in private, as a file."""

from __future__ import annotations

from cards.model import File
from storage.records.people import ChatId
from tests.handlers.desk import Desk, text_of


async def owner(text: str, chat: str = "c0") -> tuple[Desk, str]:
    desk = Desk()
    reply = await desk.say(text, who="x-olga", chat=chat)
    return desk, text_of(reply)


async def test_an_owner_sees_which_sessions_there_are() -> None:
    _, shown = await owner("/transcript")

    assert "5e551011" in shown
    assert "task:k3m9qa" in shown


async def test_one_is_sent_as_a_file_by_the_beginning_of_its_id() -> None:
    desk = Desk()

    reply = await desk.say("/transcript 5e5", who="x-olga", chat="c0")

    assert reply.card is not None
    files = [block for block in reply.card.blocks if isinstance(block, File)]
    assert [(file.path, file.size) for file in files] == [("exports/s.jsonl", 10)]
    assert reply.data is not None
    assert reply.data["file"] == "/home/s.jsonl"


async def test_there_is_nothing_for_members_nor_where_others_read_along() -> None:
    assert "Only an owner" in text_of(await Desk().say("/transcript 5e5"))
    desk = Desk()
    desk.world.people.chats[ChatId("g1")]
    _, shown = await owner("/transcript 5e5", chat="g1")
    assert "private chat" in shown
    assert "exports" not in shown


async def test_a_session_nobody_knows_is_said_to_be_unknown() -> None:
    _, shown = await owner("/transcript zzz")

    assert "No such session: zzz" in shown
    assert "`/transcript` lists" in shown or "/transcript lists" in shown
