"""/backend: who can do the work, and who does it in this chat."""

from __future__ import annotations

from storage.records.people import ChatId
from tests.handlers.desk import Desk, text_of


async def test_without_a_name_all_are_listed_with_how_they_are_doing() -> None:
    desk = Desk()

    reply = await desk.say("/backend")

    assert "anthropic" in text_of(reply)
    assert reply.data is not None
    assert [each["name"] for each in reply.data["backends"]] == ["offline", "anthropic", "openai"]


async def test_one_is_tried_out_by_name() -> None:
    reply = await Desk().say("/backend check openai")

    assert reply.data is not None
    assert [each["name"] for each in reply.data["backends"]] == ["openai"]


async def test_an_unknown_one_is_not_tried_out() -> None:
    reply = await Desk().say("/backend check nonsense")

    assert not reply.good
    assert "nonsense" in text_of(reply)


async def test_a_name_chooses_for_this_chat() -> None:
    desk = Desk()

    await desk.say("/backend openai")

    settings = desk.world.people.chats[ChatId("c1")].settings
    assert settings.backend == "openai"
