"""In a group only an owner chooses for all; in private everybody for themselves."""

from __future__ import annotations

import pytest

from cards.actions import PickModel, PickPersona
from storage.records.people import ChatId, ChatSettings
from tests.handlers.desk import Desk, text_of

CHOICES = ("/model haiku", "/model default", "/backend offline", "/persona poet", "/queue wait")


def settings(desk: Desk, chat: str) -> ChatSettings:
    return desk.world.people.chats[ChatId(chat)].settings


@pytest.mark.parametrize("said", CHOICES)
async def test_a_member_chooses_nothing_for_a_group_and_is_told_who_can(said: str) -> None:
    desk = Desk()

    reply = await desk.say(said, chat="g1")

    assert not reply.good
    assert desk.world.olga.name in text_of(reply)
    assert settings(desk, "g1") == ChatSettings()


@pytest.mark.parametrize("said", CHOICES)
async def test_an_owner_chooses_for_a_group_and_a_member_for_their_own_chat(said: str) -> None:
    desk = Desk()

    assert (await desk.say(said, who="x-olga", chat="g1")).good
    assert (await desk.say(said)).good
    assert settings(desk, "g1") == settings(desk, "c1")


@pytest.mark.parametrize("said", ["/model", "/backend", "/persona", "/persona show poet", "/queue"])
async def test_everybody_may_look(said: str) -> None:
    assert (await Desk().say(said, chat="g1")).good


@pytest.mark.parametrize("action", [PickModel(), PickPersona(name="poet")])
async def test_a_members_pick_on_a_groups_card_changes_nothing(
    action: PickModel | PickPersona,
) -> None:
    desk = Desk()
    token = desk.world.post.put(action, chat="g1")

    refused = await desk.press(token, chat="g1", value="haiku")
    before = settings(desk, "g1")
    value = "haiku" if isinstance(action, PickModel) else ""
    taken = await desk.press(token, who="x-olga", chat="g1", value=value)

    assert not refused.good
    assert desk.world.olga.name in refused.toast
    assert before == ChatSettings()
    assert taken.good
    assert settings(desk, "g1") != ChatSettings()
