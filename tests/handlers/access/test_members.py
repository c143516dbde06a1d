"""Owners see who is let in, and make people members or strangers, after a second look."""

from __future__ import annotations

from typing import Any

import pytest

from cards.actions import AskAboutPerson, MovePerson
from cards.model import Buttons
from handlers.request import Reply
from storage.records.people import Channel, Role
from tests.handlers.desk import Desk, text_of

OWNER: dict[str, Any] = {"who": "x-olga", "chat": "c0"}


def actions(reply: Reply) -> list[Any]:
    assert reply.card is not None
    blocks = [block for block in reply.card.blocks if isinstance(block, Buttons)]
    return [button.action for block in blocks for button in block.items]


async def role(desk: Desk, who: str) -> Role | None:
    person = await desk.world.people.who(Channel.TELEGRAM, who)
    return person.role if person else None


async def test_an_owner_sees_everybody_and_may_choose_one() -> None:
    desk = Desk()

    reply = await desk.say("/people", **OWNER)

    for part in (desk.world.olga.name, desk.world.ann.name, "owner", "member", "x-ann"):
        assert part in text_of(reply)
    assert actions(reply) == [AskAboutPerson(person_id="ann", remove=True)]
    assert reply.data is not None
    assert [each["role"] for each in reply.data["people"]] == ["owner", "member"]


@pytest.mark.parametrize("said", ["/people", "/people remove olga", "/people remove olga yes"])
async def test_members_neither_see_nor_move_anybody(said: str) -> None:
    desk = Desk()

    reply = await desk.say(said)

    assert not reply.good
    assert "x-olga" not in text_of(reply)
    assert await role(desk, "x-olga") is Role.OWNER


async def test_nobody_is_listed_where_others_read_along() -> None:
    reply = await Desk().say("/people", who="x-olga", chat="g1")

    assert not reply.good
    assert "x-ann" not in text_of(reply)


@pytest.mark.parametrize("named", ["ann", "x-ann", "ANN"])
async def test_removing_takes_two_presses_and_ends_their_talk(named: str) -> None:
    desk = Desk()

    asked = await desk.say(f"/people remove {named}", **OWNER)
    still = await role(desk, "x-ann")
    token = desk.world.post.put(MovePerson(person_id="ann", remove=True), chat="c0")
    done = await desk.press(token, **OWNER)

    assert actions(asked) == [MovePerson(person_id="ann", remove=True)]
    assert still is Role.MEMBER
    assert "removed" in text_of(done)
    assert await role(desk, "x-ann") is None
    assert "c1" in desk.world.talk.interrupted
    assert "c1" in desk.world.talk.ended


async def test_a_press_on_the_list_asks_first() -> None:
    desk = Desk()
    token = desk.world.post.put(AskAboutPerson(person_id="ann", remove=True), chat="c0")

    asked = await desk.press(token, **OWNER)

    assert actions(asked) == [MovePerson(person_id="ann", remove=True)]
    assert await role(desk, "x-ann") is Role.MEMBER


async def test_who_is_removed_is_a_stranger_from_then_on() -> None:
    desk = Desk()

    await desk.say("/people remove ann yes", **OWNER)
    reply = await desk.say("/list")

    assert "Pairing code" in text_of(reply)


async def test_the_last_owner_stays() -> None:
    desk = Desk()

    for order in ("demote", "remove"):
        reply = await desk.say(f"/people {order} olga yes", **OWNER)
        assert not reply.good
        assert "last owner" in text_of(reply)

    assert await role(desk, "x-olga") is Role.OWNER


async def test_one_owner_makes_another_a_member() -> None:
    desk = Desk()
    ann = desk.world.ann
    desk.world.people.promote(ann.id)

    asked = await desk.say("/people demote ann", **OWNER)
    done = await desk.say("/people demote ann yes", **OWNER)
    again = await desk.say("/people demote ann", **OWNER)

    assert actions(asked) == [MovePerson(person_id="ann", remove=False)]
    assert "a member now" in text_of(done)
    assert await role(desk, "x-ann") is Role.MEMBER
    assert "member already" in text_of(again)


@pytest.mark.parametrize("said", ["/people remove", "/people promote ann", "/people remove nobody"])
async def test_what_is_not_understood_moves_nobody(said: str) -> None:
    desk = Desk()

    assert not (await desk.say(said, **OWNER)).good
    assert await role(desk, "x-ann") is Role.MEMBER
