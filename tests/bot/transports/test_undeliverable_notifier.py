"""The result of a task reaches a person, also if the chat that asked is closed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bot.transports.outbox import SentCardService
from bot.transports.ports import ChatUnreachable
from bot.transports.undeliverable_notifier import UndeliverableNotifier
from cards.catalog import catalog_for
from cards.render.text import render
from handlers.approval_cards import ApprovalCards, card_key
from storage.approvals import NewApproval, add_approval
from storage.records.approvals import Approval, ApprovalKind
from storage.records.people import Chat, ChatKind, Language, PersonRole
from tests.bot.transports.outbox_builders import OutboxHarness, outbox_harness
from tests.storage.message_store import place, sender


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[OutboxHarness]:
    async with outbox_harness(tmp_path) as made:
        made.outbox_sender.on_chat_closed = returns(made)
        made.outbox_sender.is_reader_removed = returns(made).is_reader_removed
        yield made


def returns(post: OutboxHarness, language: Language | None = None) -> UndeliverableNotifier:
    room = post.room
    return UndeliverableNotifier(
        chats=room.chats,
        people=room.people,
        outbox=room.outbox,
        courier=post.courier,
        language=language,
        approvals=room.approvals,
        approval_cards=copies_in(post, language),
    )


def copies_in(post: OutboxHarness, language: Language | None = None) -> ApprovalCards:
    return ApprovalCards(
        people=post.room.people,
        cards=SentCardService(post.room.outbox, post.room.chats),
        courier=post.courier,
        zone=ZoneInfo("UTC"),
        language=language,
    )


async def owner(post: OutboxHarness, number: str = "1") -> Chat:
    await post.room.person(number, role=PersonRole.OWNER)
    return await post.room.chat(place(number), sender(number))


async def test_the_end_of_a_task_goes_to_the_owner_where_its_group_is_closed(
    post: OutboxHarness,
) -> None:
    home = await owner(post)
    group = await post.room.chat(place("-5", kind=ChatKind.GROUP, title="Team"))
    post.telegram.script += [ChatUnreachable("kicked")]
    post.run()

    await post.say(group, "Task finished", key="task:abc:end:1")
    await post.settled("task:abc:end:1", state="dead")
    await post.telegram.sent(2)

    letter = post.telegram.letters[-1]
    assert letter.chat.id == home.id
    shown = render(letter.card).text
    assert "Task finished" in shown
    assert "Team" in shown


async def test_it_says_so_in_the_language_that_the_settings_ask_for(post: OutboxHarness) -> None:
    await owner(post)
    post.outbox_sender.on_chat_closed = returns(post, Language.CHINESE)
    group = await post.room.chat(place("-5", kind=ChatKind.GROUP, title="Team"))
    post.telegram.script += [ChatUnreachable("kicked")]
    post.run()

    await post.say(group, "Task finished", key="task:abc:end:1")
    await post.telegram.sent(2)

    note = catalog_for(Language.CHINESE)("mail.returned", chat="Team")
    assert note in render(post.telegram.letters[-1].card).text


@pytest.mark.parametrize("key", ["reply:1", "task:abc", "returned:1:x"])
async def test_nothing_else_is_carried_from_one_chat_to_another(
    post: OutboxHarness, key: str
) -> None:
    await owner(post)
    group = await post.room.chat(place("-5", kind=ChatKind.GROUP, title="Team"))
    post.telegram.script += [ChatUnreachable("kicked")]
    post.run()

    await post.say(group, "not for others", key=key)
    await post.settled(key, state="dead")

    assert await post.room.outbox.count_queued() == 0


async def test_an_owner_who_blocked_the_bot_is_not_told_for_ever(post: OutboxHarness) -> None:
    home = await owner(post)
    post.telegram.script += [ChatUnreachable("blocked")]
    post.run()

    await post.say(home, "Task finished", key="task:abc:end:1")
    await post.settled("task:abc:end:1", state="dead")

    assert await post.room.outbox.count_queued() == 0


async def asked(post: OutboxHarness, chat: Chat) -> Approval:
    room = post.room
    new = NewApproval(
        kind=ApprovalKind.HUMAN,
        chat_id=chat.id,
        title="Look at the sketch",
        expires_at=room.now + timedelta(days=1),
        approvers=(chat.person_id,) if chat.person_id else (),
    )
    async with room.db.write() as tx:
        return await add_approval(tx, new, ids=room.ids, now=room.now)


async def test_a_decision_that_cannot_be_asked_for_is_asked_of_the_owners_instead(
    post: OutboxHarness,
) -> None:
    home = await owner(post)
    await post.room.person("5")
    closed = await post.room.chat(place("5"), sender("5"))
    approval = await asked(post, closed)
    post.telegram.script += [ChatUnreachable("blocked")]
    post.run()

    await post.say(closed, "Look?", key=card_key(approval, closed.id))
    await post.settled(card_key(approval, closed.id), state="dead")
    await post.telegram.sent(2)

    letter = post.telegram.letters[-1]
    assert letter.chat.id == home.id
    assert "Look at the sketch" in render(letter.card).text


async def test_an_owner_who_has_the_request_already_gets_no_second_one(post: OutboxHarness) -> None:
    home = await owner(post)
    group = await post.room.chat(place("-5", kind=ChatKind.GROUP, title="Team"))
    approval = await asked(post, group)
    post.telegram.script += [ChatUnreachable("kicked")]
    post.run()

    await copies_in(post).request_decision(approval, group.id, fallback=Language.ENGLISH)
    await post.settled(card_key(approval, group.id), state="dead")
    await post.settled(card_key(approval, home.id), state="shown")

    assert [letter.chat.id for letter in post.telegram.letters].count(home.id) == 1
    assert await post.room.outbox.count_queued() == 0


async def test_what_a_removed_person_started_is_told_to_the_owners(post: OutboxHarness) -> None:
    home = await owner(post)
    member = await post.room.person("7")
    theirs = await post.room.chat(place("7"), sender("7"))
    await post.room.people.remove(member.id)
    post.run()

    await post.say(theirs, "Half done", key="task:abc")
    await post.say(theirs, "Task finished", key="task:abc:end:1")
    await post.settled("task:abc:end:1", state="dead")
    await post.settled("task:abc", state="dead")
    await post.telegram.sent(1)

    assert {letter.chat.id for letter in post.telegram.letters} == {home.id}
    assert "Task finished" in render(post.telegram.letters[-1].card).text


async def test_a_removed_person_is_still_answered_as_a_stranger(post: OutboxHarness) -> None:
    await owner(post)
    member = await post.room.person("7")
    theirs = await post.room.chat(place("7"), sender("7"))
    await post.room.people.remove(member.id)
    post.run()

    await post.say(theirs, "Your pairing code", key="reply:9")
    await post.settled("reply:9")

    assert [letter.chat.id for letter in post.telegram.letters] == [theirs.id]
