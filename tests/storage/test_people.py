from __future__ import annotations

import pytest

from storage.errors import NotFound
from storage.records.people import Channel, Chat, ChatKind, ChatSettings, Language, PersonId, Role
from tests.storage.mail_room import START, Room, group, place, sender


async def test_owners_of_the_settings_and_of_the_web_chat_are_owners(room: Room) -> None:
    named = [(Channel.TELEGRAM, "42"), (Channel.FEISHU, "ou_x")]

    await room.people.ensure_owners(named, now=START)

    for channel, external_id in [*named, (Channel.WEB, "local")]:
        person = await room.people.who(channel, external_id)
        assert person is not None
        assert person.role is Role.OWNER


async def test_the_web_chats_owner_has_a_name_in_the_language_spoken(room: Room) -> None:
    await room.people.ensure_owners([], now=START, local="管理者")

    person = await room.people.who(Channel.WEB, "local")
    assert person is not None
    assert person.name == "管理者"


async def test_making_owners_at_every_start_changes_nothing(room: Room) -> None:
    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=START)
    first = await room.people.who(Channel.TELEGRAM, "42")

    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=room.later(days=1))

    assert await room.people.who(Channel.TELEGRAM, "42") == first


async def test_a_member_named_in_the_settings_becomes_an_owner(room: Room) -> None:
    member = await room.person("42")

    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=START)

    assert (await room.people.get(member.id)).role is Role.OWNER


async def test_a_stranger_is_nobody(room: Room) -> None:
    assert await room.people.who(Channel.TELEGRAM, "666") is None
    with pytest.raises(NotFound):
        await room.people.get(PersonId("nobody"))


async def test_the_same_account_name_on_another_channel_is_another_account(room: Room) -> None:
    await room.person("42", channel=Channel.TELEGRAM)

    assert await room.people.who(Channel.FEISHU, "42") is None


async def test_a_person_keeps_the_language_they_speak(room: Room) -> None:
    person = await room.person()

    await room.people.speak(person, Language.CHINESE)

    assert (await room.people.get(person.id)).language is Language.CHINESE


async def test_a_chat_is_made_once_for_each_thread(room: Room) -> None:
    main = await room.chat(group(title="Team"))
    again = await room.chat(group(title="Team"))
    topic = await room.chat(group(thread="7"))

    assert main.id == again.id
    assert topic.id != main.id
    assert await room.people.chat(main.id) == main


async def test_a_chat_keeps_up_with_its_title_and_does_not_lose_it(room: Room) -> None:
    await room.chat(group(title="Old"))

    assert (await room.chat(group(title="New"))).title == "New"
    assert (await room.chat(group(title=""))).title == "New"


async def test_a_private_chat_knows_its_partner_once_paired(room: Room) -> None:
    before = await room.chat()
    person = await room.person("42")

    after = await room.chat()

    assert before.person_id is None
    assert after.person_id == person.id
    assert await room.people.chat(before.id) == after


async def test_a_group_has_no_partner(room: Room) -> None:
    await room.person("42")

    assert (await room.chat(group())).person_id is None


async def test_an_owner_known_by_account_alone_gets_a_name_when_they_speak(room: Room) -> None:
    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=START)

    await room.chat(by=sender("42", name="Lin"))
    await room.chat(by=sender("42", name="Someone who renames later"))

    person = await room.people.who(Channel.TELEGRAM, "42")
    assert person is not None
    assert person.name == "Lin"


async def test_settings_of_a_chat_are_kept_and_given_up(room: Room) -> None:
    chat = await room.chat()
    chosen = ChatSettings(
        model="opus", backend="anthropic", language=Language.CHINESE, project="/code/shop"
    )

    assert (await room.people.adjust(chat, chosen)).settings == chosen
    assert (await room.chat()).settings == chosen
    assert (await room.people.adjust(chat, ChatSettings())).settings == ChatSettings()


async def test_owners_are_told_in_one_private_chat_for_each_channel(room: Room) -> None:
    await room.person("1", role=Role.OWNER)
    await room.person("2", role=Role.MEMBER)
    topic = await room.chat(place("1", thread="9"), sender("1"))
    main = await room.chat(place("1"), sender("1"))
    member = await room.chat(place("2"), sender("2"))
    await room.chat(group(), sender("1"))

    assert topic.id != main.id
    assert [each.id for each in await room.people.private_chats(Role.OWNER)] == [main.id]
    assert [each.id for each in await room.people.private_chats(Role.MEMBER)] == [member.id]


async def test_a_chat_that_got_another_id_is_the_same_chat(room: Room) -> None:
    old = await room.chat(group("-5"))

    await room.chats.move(Channel.TELEGRAM, "-5", "-1005")

    assert (await room.chat(group("-1005"))).id == old.id
    assert await room.chats.find(group("-5")) is None


async def test_what_was_said_under_a_new_id_too_early_is_joined_to_the_old_chat(
    room: Room,
) -> None:
    old = await room.chat(group("-5"))
    early = await room.chat(group("-1005"))
    await room.put(early, key="early")

    await room.chats.move(Channel.TELEGRAM, "-5", "-1005")

    row = await room.outbox.by_key("early")
    assert row is not None
    assert row.chat_id == old.id
    assert (await room.chat(group("-1005"))).id == old.id
    with pytest.raises(NotFound):
        await room.people.chat(early.id)


async def test_kinds_of_chats_are_told_apart(room: Room) -> None:
    assert (await room.chat(place())).kind is ChatKind.PRIVATE
    assert (await room.chat(group())).kind is ChatKind.GROUP


async def test_an_owner_taken_out_of_the_settings_becomes_a_member(room: Room) -> None:
    both = [(Channel.TELEGRAM, "42"), (Channel.TELEGRAM, "43")]
    await room.people.ensure_owners(both, now=START)

    await room.people.ensure_owners(both[:1], now=room.later(days=1))
    fallen = await room.people.demote_unnamed()

    assert [each.name for each in fallen] == ["43"]
    assert await roles(room) == {"42": Role.OWNER, "43": Role.MEMBER, "local": Role.OWNER}
    assert room.people.unnamed_owner == ""
    assert await room.people.demote_unnamed() == []


async def test_where_the_settings_name_nobody_the_oldest_owner_stays(room: Room) -> None:
    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=START)
    await room.people.ensure_owners([(Channel.TELEGRAM, "43")], now=room.later(days=1))

    await room.people.ensure_owners([], now=room.later(days=1))
    await room.people.demote_unnamed()

    assert await roles(room) == {"42": Role.OWNER, "43": Role.MEMBER, "local": Role.OWNER}
    assert room.people.unnamed_owner == "42"


async def test_who_is_named_again_is_an_owner_again(room: Room) -> None:
    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=START)
    await room.people.ensure_owners([(Channel.TELEGRAM, "43")], now=START)
    await room.people.demote_unnamed()

    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=START)
    await room.people.demote_unnamed()

    assert await roles(room) == {"42": Role.OWNER, "43": Role.MEMBER, "local": Role.OWNER}


async def test_who_is_removed_is_nobody_and_keeps_what_was_theirs(room: Room) -> None:
    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=START)
    member = await room.person("43")
    chat = await room.chat(place("43"), sender("43"))

    rooms = await room.people.remove(member.id)

    assert rooms == [chat.id]
    assert await room.people.who(Channel.TELEGRAM, "43") is None
    assert (await room.people.get(member.id)).name == member.name
    assert not await room.people.is_let_in(member.id)
    assert chat.id not in {each.id for each in await room.people.private_chats(Role.MEMBER)}
    assert "43" not in await roles(room)


async def test_who_was_removed_can_be_let_in_again_as_somebody_new(room: Room) -> None:
    await room.people.ensure_owners([], now=START)
    chat = await room.chat(place("43"), sender("43"))
    await pair(room, chat)
    first = await room.people.who(Channel.TELEGRAM, "43")
    assert first is not None
    await room.people.remove(first.id)

    await pair(room, chat)

    second = await room.people.who(Channel.TELEGRAM, "43")
    assert second is not None
    assert second.id != first.id


async def test_neither_the_local_nor_the_last_owner_is_moved(room: Room) -> None:
    await room.people.ensure_owners([], now=START)
    local = await room.people.who(Channel.WEB, "local")
    assert local is not None

    assert not await room.people.demote(local.id)
    assert await room.people.remove(local.id) is None
    with pytest.raises(NotFound):
        await room.people.remove(PersonId("nobody"))

    assert await roles(room) == {"local": Role.OWNER}


async def roles(room: Room) -> dict[str, Role]:
    return {
        external_id: each.person.role
        for each in await room.people.members()
        for _, external_id in each.accounts
    }


async def pair(room: Room, chat: Chat) -> None:
    owner = await room.people.who(Channel.WEB, "local")
    assert owner is not None
    pairing, new = await room.pairings.ask(
        Channel.TELEGRAM, "43", "Ann", chat.id, now=room.later(minutes=1)
    )
    assert new
    approval = await room.pairings.approval(pairing)
    await room.approvals.decide(approval, approve=True, by=owner, source=f"s:{pairing.code}")
