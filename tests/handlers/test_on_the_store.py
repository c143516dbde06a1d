"""The router on the real store: doors, buttons and forms hold where the rows really are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bot.app.services import ButtonService, CardService
from cards.actions import Action, Decide, JustTalk, NewTask, StartTask
from cards.card_json import load_card
from cards.model import Buttons, Card, Form
from handlers.ports import Answered, Proposal
from handlers.request import Reply
from handlers.router import Router
from storage.records.messages import InboxRow, Incoming, Placed, PressIn
from storage.records.people import Channel, ChatId, Role
from storage.records.tasks import Priority
from tests.bot.transports.mail_fakes import Post, post_office
from tests.fakes import FakeWorld
from tests.handlers.desk import text_of
from tests.storage.mail_room import message, place, sender

OWNER, STRANGER = "1", "2"


@dataclass
class House:
    """A post office with the router in it; `world` holds the parts that stay fakes."""

    post: Post
    world: FakeWorld = field(default_factory=FakeWorld)
    count: int = 0

    def __post_init__(self) -> None:
        room = self.post.room
        services = replace(
            self.world.services,
            people=room.people,
            pairings=room.pairings,
            approvals=room.approvals,
            buttons=ButtonService(room.actions),
            cards=CardService(room.outbox, room.chats),
            courier=self.post.courier,
        )
        self.router = Router(
            services, clock=lambda: room.now, zone=ZoneInfo("UTC"), new_incident=lambda: "inc"
        )

    async def say(self, text: str, who: str = OWNER, **facts: Any) -> Reply:
        self.count += 1
        incoming = message(
            text, place=place(who), sender=sender(who), message_id=f"in{self.count}", **facts
        )
        return await self.take(incoming)

    async def press(self, token: str, who: str = OWNER, **facts: Any) -> Reply:
        pressed = PressIn(
            place=place(who), sender=sender(who), token=token, message_id="m", **facts
        )
        return await self.take(pressed)

    async def take(self, incoming: Incoming) -> Reply:
        return await self.handle(await self.store(incoming))

    async def store(self, incoming: Incoming) -> InboxRow:
        room = self.post.room
        self.count += 1
        async with room.db.write() as tx:
            chat = await room.chats.meet(tx, incoming.place, incoming.sender, room.now)
            row = await room.inbox.accept(
                tx, incoming, dedupe=str(self.count), chat_id=chat.id, now=room.now
            )
        assert row is not None
        return row

    async def handle(self, row: InboxRow) -> Reply:
        reply = await self.router.handle(row, ())
        if reply.card:
            key = reply.key or f"reply:{row.id}"
            await self.post.courier.send(row.chat_id, reply.card, key=key, urgency=reply.urgency)
        return reply

    async def card(self, key: str) -> Card:
        row = await self.post.room.outbox.by_key(key)
        assert row is not None, key
        return load_card(row.card)

    async def token(self, key: str, kind: type[Action]) -> str:
        for block in (await self.card(key)).blocks:
            match block:
                case Buttons(items=items):
                    for item in items:
                        if isinstance(item.action, kind):
                            return item.token
                case Form() if isinstance(block.action, kind):
                    return block.token
                case _:
                    pass
        raise LookupError(kind)

    async def key_of(self, prefix: str) -> tuple[str, ChatId]:
        return (await self.post.room.outbox.by_prefix(prefix))[0]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with post_office(tmp_path) as post:
        await post.room.person(OWNER, role=Role.OWNER)
        yield House(post)


async def test_a_stranger_is_let_in_by_button_and_then_served(house: House) -> None:
    await house.say("hello", OWNER)
    await house.say("hello over there", STRANGER)
    key, _ = await house.key_of("approval:")

    reply = await house.press(await house.token(key, Decide))

    assert reply.good
    assert "Approved" in text_of(await house.card(key))
    told, _ = await house.key_of("paired:")
    assert "You are in" in text_of(await house.card(told))
    assert "Fine." in text_of(await house.say("hello over there", STRANGER))
    person = await house.post.room.people.who(Channel.TELEGRAM, STRANGER)
    assert person is not None
    assert person.role is Role.MEMBER


async def test_a_stranger_is_let_in_by_code_once(house: House) -> None:
    code = next(
        value
        for block in (await house.say("hello over there", STRANGER)).card.blocks  # type: ignore[union-attr] # a stranger always gets the card
        if hasattr(block, "pairs")
        for _, value in block.pairs
    )

    first, second = await house.say(f"/pair {code.lower()}"), await house.say(f"/pair {code}")

    assert "✅" in text_of(first)
    assert "No such pairing code" in text_of(second)


async def test_the_owners_second_button_finds_the_decision_taken(house: House) -> None:
    await house.say("hello", OWNER)
    await house.say("hello over there", STRANGER)
    key, _ = await house.key_of("approval:")
    token = await house.token(key, Decide)
    await house.press(token)

    late = await house.press(token)

    assert not late.good
    assert "You pressed" in late.toast


async def test_a_press_handled_again_after_a_crash_ends_well(house: House) -> None:
    await house.say("hello", OWNER)
    await house.say("hello over there", STRANGER)
    key, _ = await house.key_of("approval:")
    token = await house.token(key, Decide)
    row = await house.store(
        PressIn(place=place(OWNER), sender=sender(OWNER), token=token, message_id="m")
    )

    first, again = await house.handle(row), await house.handle(row)

    assert first.good
    assert again.good


async def test_a_strangers_press_on_an_owners_button_changes_nothing(house: House) -> None:
    await house.say("hello", OWNER)
    await house.say("hello over there", STRANGER)
    key, _ = await house.key_of("approval:")

    reply = await house.press(await house.token(key, Decide), STRANGER)

    assert not reply.good
    assert await house.post.room.people.who(Channel.TELEGRAM, STRANGER) is None


async def test_a_form_is_answered_by_a_reply_to_its_card(house: House) -> None:
    house.post.run()
    await house.say("/run")
    await house.post.telegram.sent(1)
    placed = f"m{house.post.telegram.letters[0].outbox_id}"
    await house.post.settled("reply:1")

    reply = await house.say("priority: urgent\nFeed the cat", reply_to=placed)

    new = house.world.tasks.created[0]
    assert (new.instruction, new.priority) == ("Feed the cat", Priority.URGENT)
    assert reply.key.startswith("task:")


async def test_a_reply_may_be_quicker_than_the_note_of_where_the_form_stands(house: House) -> None:
    room = house.post.room
    await house.say("/run")
    asked = await room.outbox.by_key("reply:1")
    assert asked is not None
    async with room.db.write() as tx:
        tried = await room.outbox.begin_try(tx, asked.id)
    assert tried is not None

    async def meanwhile(_seconds: float) -> None:
        await room.outbox.shown(tried, Placed(message_ids=("m7",)), revision=1, now=room.now)

    cards = CardService(room.outbox, room.chats, meanwhile)

    assert await cards.form_of(asked.chat_id, "m7") is not None
    assert await cards.form_of(asked.chat_id, "m8") is None


async def test_a_proposal_leads_to_one_task_and_then_to_none(house: House) -> None:
    proposal = Proposal(title="Cat", text="Feed the cat", priority=Priority.NORMAL)
    house.world.talk.answers = [Answered(text="", proposal=proposal)]
    await house.say("please feed the cat")
    start = await house.token("reply:1", StartTask)
    talk = await house.token("reply:1", JustTalk)

    first = await house.press(start)
    late = [await house.press(token) for token in (start, talk)]

    assert first.key.startswith("task:")
    assert [reply.good for reply in late] == [False, False]
    assert len(house.world.tasks.created) == 1


async def test_a_forms_button_is_found_by_its_token_too(house: House) -> None:
    await house.say("/run")

    reply = await house.press(
        await house.token("reply:1", NewTask), form={"text": "Feed", "priority": "normal"}
    )

    assert reply.key.startswith("task:")
