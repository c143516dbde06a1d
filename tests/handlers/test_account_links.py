"""Linking accounts in chat, on the real store: codes, confirmations, rights and notices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cards.actions import DecideApproval, UnlinkAccount
from cards.card_json import load_card
from cards.model import ButtonsBlock
from handlers.account_link_notices import AccountLinkNotifier
from handlers.request import Reply
from storage.memory.linked_memories import person_scope
from storage.records.memory import MemoryKind, NewMemoryEntry
from storage.records.people import Channel, Person, PersonRole
from tests.bot.transports.outbox_builders import outbox_harness
from tests.handlers.router_harness import text_of
from tests.handlers.test_router_with_storage import RouterOnStorage
from tests.storage.message_store import group, message, sender

OWNER, MEMBER, OTHER = "1", "2", "3"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RouterOnStorage]:
    async with outbox_harness(tmp_path) as post:
        await post.room.people.ensure_owners([(Channel.TELEGRAM, OWNER)], now=post.room.now)
        for each in (MEMBER, OTHER):
            await post.room.person(each)
        house = RouterOnStorage(post)
        for each in (OWNER, MEMBER, OTHER):
            await house.say("/language en", each)
        yield house


async def who(house: RouterOnStorage, account: str) -> Person:
    person = await house.post.room.people.find_by_account(Channel.TELEGRAM, account)
    assert person is not None
    return person


async def make_code(house: RouterOnStorage, account: str) -> str:
    reply = await house.say("/link", account)
    assert reply.data is not None
    return str(reply.data["code"])


async def link(house: RouterOnStorage, maker: str, taker: str, *, confirmer: str) -> Reply:
    reply = await house.say(f"/link {await make_code(house, maker)}", taker)
    assert reply.data is not None, text_of(reply)
    key, _ = await house.key_of(f"approval:{reply.data['approval']}")
    return await house.press(await house.token(key, DecideApproval), confirmer)


async def told(house: RouterOnStorage, state: str) -> dict[str, str]:
    """What each chat was told, by the account it is with."""
    rows = await house.post.room.outbox.list_by_prefix("link:")
    found = {}
    for key, chat_id in rows:
        row = await house.post.room.outbox.find_by_key(key)
        assert row is not None
        if f":{state}:" in key:
            chat = await house.post.room.chats.get(chat_id)
            found[chat.external_id] = text_of(load_card(row.card))
    return found


async def test_two_members_are_one_person_after_a_code_and_a_confirmation(
    house: RouterOnStorage,
) -> None:
    reply = await link(house, MEMBER, OTHER, confirmer=OTHER)

    assert reply.good, reply.toast
    assert await who(house, OTHER) == await who(house, MEMBER)
    news = await told(house, "linked")
    assert {*news} == {MEMBER, OTHER}
    assert all("Accounts linked" in text and "Telegram 3" in text for text in news.values())


async def test_both_are_told_at_the_start_if_a_crash_came_before(house: RouterOnStorage) -> None:
    used = await house.say(f"/link {await make_code(house, MEMBER)}", OTHER)
    assert used.data is not None
    room = house.post.room
    request = await room.approvals.get(str(used.data["approval"]))
    by = await who(house, OTHER)
    await room.approvals.decide(request, approve=True, by=by, source="press before the crash")
    assert await told(house, "linked") == {}

    for _ in range(2):
        links = AccountLinkNotifier(
            links=room.account_links, people=room.people, courier=house.post.courier
        )
        await links.notify()

    assert {*await told(house, "linked")} == {MEMBER, OTHER}
    assert not await room.account_links.list_untold()


async def test_an_owner_confirms_that_a_member_gets_their_rights(house: RouterOnStorage) -> None:
    used = await house.say(f"/link {await make_code(house, OWNER)}", MEMBER)
    assert "where it was made" in text_of(used)
    key, _ = await house.key_of("approval:")
    assert "rights of an owner" in text_of(await house.card(key))
    token = await house.token(key, DecideApproval)

    by_member = await house.press(token, MEMBER)
    assert not by_member.good
    assert (await who(house, MEMBER)).role is PersonRole.MEMBER

    assert (await house.press(token, OWNER)).good
    assert (await who(house, MEMBER)).role is PersonRole.OWNER
    assert (await who(house, MEMBER)).id == (await who(house, OWNER)).id


async def test_an_owner_who_types_a_members_code_is_asked_too(house: RouterOnStorage) -> None:
    owner = await who(house, OWNER)
    await house.say(f"/link {await make_code(house, MEMBER)}", OWNER)
    assert (await who(house, MEMBER)).role is PersonRole.MEMBER
    key, _ = await house.key_of("approval:")
    assert "rights of an owner" in text_of(await house.card(key))

    await house.press(await house.token(key, DecideApproval), OWNER)

    assert await who(house, MEMBER) == owner


async def test_unlinking_restores_rights_and_tells_both(house: RouterOnStorage) -> None:
    before = [await who(house, each) for each in (OWNER, MEMBER)]
    await link(house, OWNER, MEMBER, confirmer=OWNER)
    listed = await house.say("/unlink", OWNER)
    assert "main account" in text_of(listed)
    assert "/unlink" in text_of(await house.say("/unlink telegram:1", MEMBER))

    reply = await house.say(f"/unlink telegram:{MEMBER}", MEMBER)

    assert reply.good, text_of(reply)
    assert [await who(house, each) for each in (OWNER, MEMBER)] == before
    assert {*await told(house, "ended")} == {OWNER, MEMBER}


async def test_the_list_has_a_button_that_unlinks(house: RouterOnStorage) -> None:
    await link(house, MEMBER, OTHER, confirmer=OTHER)
    await house.say("/unlink", MEMBER)
    rows = await house.post.room.outbox.list_by_prefix("reply:")
    key = rows[-1][0]

    reply = await house.press(await house.token(key, UnlinkAccount), MEMBER)

    assert reply.good
    assert await who(house, OTHER) != await who(house, MEMBER)


async def test_a_code_works_once_expires_and_is_replaced_by_the_next(
    house: RouterOnStorage,
) -> None:
    old = await make_code(house, MEMBER)
    code = await make_code(house, MEMBER)
    assert "doesn't work" in text_of(await house.say(f"/link {old}", OTHER))

    first = await house.say(f"/link {code.lower()[:4]} - {code.lower()[4:]}", OTHER)
    again = await house.say(f"/link {code}", OTHER)
    assert first.data == again.data
    assert "doesn't work" in text_of(await house.say(f"/link {code}", OWNER))

    late = await make_code(house, OWNER)
    house.post.room.advance(minutes=11)
    assert "doesn't work" in text_of(await house.say(f"/link {late}", OTHER))


async def test_guessing_is_stopped_for_the_guesser_only(house: RouterOnStorage) -> None:
    code = await make_code(house, OWNER)
    for n in range(5):
        assert "doesn't work" in text_of(await house.say(f"/link WRONG{n}", OTHER))

    assert "Too many" in text_of(await house.say(f"/link {code}", OTHER))
    assert (await house.say(f"/link {code}", MEMBER)).data is not None
    house.post.room.advance(hours=2)
    assert "doesn't work" in text_of(await house.say(f"/link {code}", OTHER))


async def test_a_rejected_or_outdated_request_links_nobody(house: RouterOnStorage) -> None:
    used = await house.say(f"/link {await make_code(house, MEMBER)}", OTHER)
    assert used.data is not None
    await house.say(f"/reject {used.data['approval']}", OTHER)
    assert await who(house, OTHER) != await who(house, MEMBER)

    # Rights that have changed since somebody was asked need another question.
    used = await house.say(f"/link {await make_code(house, MEMBER)}", OTHER)
    assert used.data is not None
    configured = [(Channel.TELEGRAM, OWNER), (Channel.TELEGRAM, MEMBER)]
    await house.post.room.people.ensure_owners(configured, now=house.post.room.now)
    await house.say(f"/approve {used.data['approval']}", OTHER)
    assert await who(house, OTHER) != await who(house, MEMBER)


async def test_nothing_is_linked_in_a_group_nor_by_strangers(house: RouterOnStorage) -> None:
    for text in ("/link", "/link CODE", "/unlink", "/unlink telegram"):
        said = message(text, place=group(), sender=sender(MEMBER), message_id=text)
        assert "Only in a private chat" in text_of(await house.take(said))

    reply = await house.say(f"/link {await make_code(house, MEMBER)}", "666")
    assert "pairing code" in text_of(reply).lower()


async def test_members_cannot_touch_the_accounts_of_others(house: RouterOnStorage) -> None:
    await link(house, OWNER, OTHER, confirmer=OWNER)

    for text in ("/unlink telegram:3", "/unlink telegram:3 revoke", "/unlink telegram:1 revoke"):
        assert "No account" in text_of(await house.say(text, MEMBER))

    assert await who(house, OTHER) == await who(house, OWNER)


async def test_an_account_in_wrong_hands_loses_access_and_keeps_nothing(
    house: RouterOnStorage,
) -> None:
    """Also the main account: what it had stays with the person."""
    person = await who(house, MEMBER)
    await link(house, MEMBER, OTHER, confirmer=OTHER)

    reply = await house.say(f"/unlink telegram:{MEMBER} revoke", OTHER)

    assert reply.good, text_of(reply)
    assert await house.post.room.people.find_by_account(Channel.TELEGRAM, MEMBER) is None
    assert await who(house, OTHER) == person
    assert "pairing code" in text_of(await house.say("/list", MEMBER)).lower()
    assert {*await told(house, "revoked")} == {MEMBER, OTHER}
    last = await house.say(f"/unlink telegram:{OTHER} revoke", OTHER)
    assert "keeps its access" in text_of(last)


async def test_removing_a_person_removes_all_their_accounts(house: RouterOnStorage) -> None:
    await link(house, MEMBER, OTHER, confirmer=OTHER)

    await house.say(f"/people remove {(await who(house, MEMBER)).id} yes", OWNER)

    for each in (MEMBER, OTHER):
        assert await house.post.room.people.find_by_account(Channel.TELEGRAM, each) is None


async def test_demoting_a_person_outlasts_unlinking(house: RouterOnStorage) -> None:
    configured = [(Channel.TELEGRAM, each) for each in (OWNER, MEMBER, OTHER)]
    await house.post.room.people.ensure_owners(configured, now=house.post.room.now)
    await link(house, MEMBER, OTHER, confirmer=OTHER)

    await house.say(f"/people demote {(await who(house, MEMBER)).id} yes", OWNER)
    await house.say("/unlink telegram:3", OTHER)

    assert [(await who(house, each)).role for each in (MEMBER, OTHER)] == [PersonRole.MEMBER] * 2


async def remember(house: RouterOnStorage, account: str, text: str, **facts: Any) -> None:
    room = house.post.room
    scope = person_scope((await who(house, account)).id)
    new = NewMemoryEntry(kind=MemoryKind.PROFILE, scope=scope, text=text, **facts)
    async with room.db.write() as tx:
        assert await room.entries.add(tx, new, now=room.advance(minutes=1)) is not None


async def known(house: RouterOnStorage, account: str) -> list[str]:
    scope = person_scope((await who(house, account)).id)
    return sorted(each.text for each in await house.post.room.entries.list([scope]))


async def test_memories_that_exclude_each_other_are_shown_once_to_choose(
    house: RouterOnStorage,
) -> None:
    await remember(house, MEMBER, "Name is Ann", key="profile:name")
    await remember(house, MEMBER, "Likes tea")
    await remember(house, OTHER, "Name is 安", key="profile:name")
    await remember(house, OTHER, "likes tea")
    await remember(house, OTHER, "Uses vim", key="preferences:editor")

    await link(house, MEMBER, OTHER, confirmer=OTHER)
    assert await known(house, MEMBER) == ["Likes tea", "Name is 安", "Uses vim"]
    [key] = [
        each
        for each, _ in await house.post.room.outbox.list_by_prefix("link:")
        if each.endswith(":choices")
    ]
    card = text_of(await house.card(key))
    assert "Which is right? (1)" in card
    assert "1b. Name is Ann" in card
    tokens = [
        item.token
        for block in (await house.card(key)).blocks
        if isinstance(block, ButtonsBlock)
        for item in block.items
    ]

    assert (await house.press(tokens[1], OTHER)).good
    assert await known(house, MEMBER) == ["Likes tea", "Name is Ann", "Uses vim"]
    assert "Nothing is left" in text_of(await house.card(key))
    assert "Nothing to choose" in text_of(await house.say("/link choose zzzz", OTHER))

    await remember(house, OTHER, "Lives in Bern")
    await house.say("/unlink telegram:3", MEMBER)
    assert await known(house, MEMBER) == ["Likes tea", "Lives in Bern", "Name is Ann"]
    assert await known(house, OTHER) == ["Name is 安", "Uses vim", "likes tea"]


async def test_words_written_while_linked_stay_with_the_person_who_is_left(
    house: RouterOnStorage,
) -> None:
    await remember(house, OTHER, "Likes tea")
    await link(house, MEMBER, OTHER, confirmer=OTHER)
    room = house.post.room
    [entry] = await room.entries.list([person_scope((await who(house, MEMBER)).id)])
    async with room.db.write() as tx:
        await room.entries.update(tx, replace(entry, text="Likes tea and a secret"), now=room.now)

    await house.say("/unlink telegram:3", MEMBER)

    assert await known(house, OTHER) == []
    assert await known(house, MEMBER) == ["Likes tea and a secret"]
