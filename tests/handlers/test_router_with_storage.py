"""The router on the real store: doors, buttons and forms hold where the rows really are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bot.transports.outbox import ButtonClaimService, SentCardService
from cards.actions import Action, AnswerWithoutTask, DecideApproval, StartTask, SubmitTaskForm
from cards.card_json import load_card
from cards.model import ButtonsBlock, Card, FormBlock
from handlers.ports import ChatAnswer, TaskProposal
from handlers.request import Reply
from handlers.router import Router
from storage.records.messages import InboxRow, Incoming, IncomingPress, MessagePlacement
from storage.records.people import Channel, ChatId, PersonRole
from storage.records.tasks import TaskPriority
from tests.bot.transports.outbox_builders import OutboxHarness, outbox_harness
from tests.fakes.services import FakeServices
from tests.handlers.router_harness import text_of
from tests.storage.message_store import message, place, sender

OWNER, STRANGER = "1", "2"


@dataclass
class RouterOnStorage:
    """A post office with the router in it; `world` holds the parts that stay fakes."""

    post: OutboxHarness
    world: FakeServices = field(default_factory=FakeServices)
    count: int = 0

    def __post_init__(self) -> None:
        room = self.post.room
        services = replace(
            self.world.services,
            people=room.people,
            pairings=room.pairings,
            account_links=room.account_links,
            approvals=room.approvals,
            buttons=ButtonClaimService(room.actions),
            cards=SentCardService(room.outbox, room.chats),
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
        pressed = IncomingPress(
            place=place(who), sender=sender(who), token=token, message_id="m", **facts
        )
        return await self.take(pressed)

    async def take(self, incoming: Incoming) -> Reply:
        return await self.handle(await self.store(incoming))

    async def store(self, incoming: Incoming) -> InboxRow:
        room = self.post.room
        self.count += 1
        async with room.db.write() as tx:
            chat = await room.chats.get_or_create(tx, incoming.place, incoming.sender, room.now)
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
        row = await self.post.room.outbox.find_by_key(key)
        assert row is not None, key
        return load_card(row.card)

    async def token(self, key: str, kind: type[Action]) -> str:
        for block in (await self.card(key)).blocks:
            match block:
                case ButtonsBlock(items=items):
                    for item in items:
                        if isinstance(item.action, kind):
                            return item.token
                case FormBlock() if isinstance(block.action, kind):
                    return block.token
                case _:
                    pass
        raise LookupError(kind)

    async def key_of(self, prefix: str) -> tuple[str, ChatId]:
        return (await self.post.room.outbox.list_by_prefix(prefix))[0]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RouterOnStorage]:
    async with outbox_harness(tmp_path) as post:
        await post.room.person(OWNER, role=PersonRole.OWNER)
        yield RouterOnStorage(post)


async def test_a_stranger_is_let_in_by_button_and_then_served(house: RouterOnStorage) -> None:
    await house.say("hello", OWNER)
    await house.say("hello over there", STRANGER)
    key, _ = await house.key_of("approval:")

    reply = await house.press(await house.token(key, DecideApproval))

    assert reply.good
    assert "Approved" in text_of(await house.card(key))
    told, _ = await house.key_of("paired:")
    assert "You have access" in text_of(await house.card(told))
    assert "Fine." in text_of(await house.say("hello over there", STRANGER))
    person = await house.post.room.people.find_by_account(Channel.TELEGRAM, STRANGER)
    assert person is not None
    assert person.role is PersonRole.MEMBER


async def test_a_stranger_is_let_in_by_code_once(house: RouterOnStorage) -> None:
    code = next(
        value
        for block in (await house.say("hello over there", STRANGER)).card.blocks  # type: ignore[union-attr] # a stranger always gets the card
        if hasattr(block, "pairs")
        for _, value in block.pairs
    )

    first, second = await house.say(f"/pair {code.lower()}"), await house.say(f"/pair {code}")

    assert "✅" in text_of(first)
    assert "No such pairing code" in text_of(second)


async def test_the_owners_second_button_finds_the_decision_taken(house: RouterOnStorage) -> None:
    await house.say("hello", OWNER)
    await house.say("hello over there", STRANGER)
    key, _ = await house.key_of("approval:")
    token = await house.token(key, DecideApproval)
    await house.press(token)

    late = await house.press(token)

    assert not late.good
    assert "You already pressed" in late.toast


async def test_a_press_handled_again_after_a_crash_ends_well(house: RouterOnStorage) -> None:
    await house.say("hello", OWNER)
    await house.say("hello over there", STRANGER)
    key, _ = await house.key_of("approval:")
    token = await house.token(key, DecideApproval)
    row = await house.store(
        IncomingPress(place=place(OWNER), sender=sender(OWNER), token=token, message_id="m")
    )

    first, again = await house.handle(row), await house.handle(row)

    assert first.good
    assert again.good


async def test_a_strangers_press_on_an_owners_button_changes_nothing(
    house: RouterOnStorage,
) -> None:
    await house.say("hello", OWNER)
    await house.say("hello over there", STRANGER)
    key, _ = await house.key_of("approval:")

    reply = await house.press(await house.token(key, DecideApproval), STRANGER)

    assert not reply.good
    assert await house.post.room.people.find_by_account(Channel.TELEGRAM, STRANGER) is None


async def test_a_form_is_answered_by_a_reply_to_its_card(house: RouterOnStorage) -> None:
    house.post.run()
    await house.say("/run")
    await house.post.telegram.sent(1)
    placed = f"m{house.post.telegram.letters[0].outbox_id}"
    await house.post.settled("reply:1")

    reply = await house.say("priority: urgent\nFeed the cat", reply_to=placed)

    new = house.world.tasks.created[0]
    assert (new.instruction, new.priority) == ("Feed the cat", TaskPriority.URGENT)
    assert reply.key.startswith("task:")


async def test_a_reply_may_be_quicker_than_the_note_of_where_the_form_stands(
    house: RouterOnStorage,
) -> None:
    room = house.post.room
    await house.say("/run")
    asked = await room.outbox.find_by_key("reply:1")
    assert asked is not None
    async with room.db.write() as tx:
        tried = await room.outbox.begin_attempt(tx, asked.id)
    assert tried is not None

    async def meanwhile(_seconds: float) -> None:
        await room.outbox.mark_shown(
            tried, MessagePlacement(message_ids=("m7",)), revision=1, now=room.now
        )

    cards = SentCardService(room.outbox, room.chats, meanwhile)

    assert await cards.find_shown(asked.chat_id, "m7") is not None
    assert await cards.find_shown(asked.chat_id, "m8") is None


async def test_a_proposal_leads_to_one_task_and_then_to_none(house: RouterOnStorage) -> None:
    proposal = TaskProposal(title="Cat", text="Feed the cat", priority=TaskPriority.NORMAL)
    house.world.talk.answers = [ChatAnswer(text="", proposal=proposal)]
    await house.say("please feed the cat")
    start = await house.token("reply:1", StartTask)
    talk = await house.token("reply:1", AnswerWithoutTask)

    first = await house.press(start)
    late = [await house.press(token) for token in (start, talk)]

    assert first.key.startswith("task:")
    assert [reply.good for reply in late] == [False, False]
    assert len(house.world.tasks.created) == 1


async def test_a_forms_button_is_found_by_its_token_too(house: RouterOnStorage) -> None:
    await house.say("/run")

    reply = await house.press(
        await house.token("reply:1", SubmitTaskForm), form={"text": "Feed", "priority": "normal"}
    )

    assert reply.key.startswith("task:")
