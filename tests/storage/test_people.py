from __future__ import annotations

import pytest

from storage.errors import NotFound, TooManyAttempts
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import (
    Channel,
    Chat,
    ChatKind,
    ChatSettings,
    Language,
    PairingRequest,
    PairingState,
    Person,
    PersonId,
    PersonRole,
)
from tests.storage.message_store import START, MessageStore, group, place, sender


async def test_owners_of_the_settings_and_of_the_web_chat_are_owners(room: MessageStore) -> None:
    named = [(Channel.TELEGRAM, "42"), (Channel.FEISHU, "ou_x")]

    await room.people.ensure_owners(named, now=START)

    for channel, external_id in [*named, (Channel.WEB, "local")]:
        person = await room.people.find_by_account(channel, external_id)
        assert person is not None
        assert person.role is PersonRole.OWNER


async def test_the_web_chats_owner_has_a_name_in_the_language_spoken(room: MessageStore) -> None:
    await room.people.ensure_owners([], now=START, local_name="管理员")

    person = await room.people.find_by_account(Channel.WEB, "local")
    assert person is not None
    assert person.name == "管理员"


async def test_making_owners_at_every_start_changes_nothing(room: MessageStore) -> None:
    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=START)
    first = await room.people.find_by_account(Channel.TELEGRAM, "42")

    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=room.advance(days=1))

    assert await room.people.find_by_account(Channel.TELEGRAM, "42") == first


async def test_a_member_named_in_the_settings_becomes_an_owner(room: MessageStore) -> None:
    member = await room.person("42")

    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=START)

    assert (await room.people.get(member.id)).role is PersonRole.OWNER


async def test_a_stranger_is_nobody(room: MessageStore) -> None:
    assert await room.people.find_by_account(Channel.TELEGRAM, "666") is None
    with pytest.raises(NotFound):
        await room.people.get(PersonId("nobody"))


async def test_the_same_account_name_on_another_channel_is_another_account(
    room: MessageStore,
) -> None:
    await room.person("42", channel=Channel.TELEGRAM)

    assert await room.people.find_by_account(Channel.FEISHU, "42") is None


async def test_a_person_keeps_the_language_they_speak(room: MessageStore) -> None:
    person = await room.person()

    await room.people.set_language(person, Language.CHINESE)

    assert (await room.people.get(person.id)).language is Language.CHINESE


async def test_a_chat_is_made_once_for_each_thread(room: MessageStore) -> None:
    main = await room.chat(group(title="Team"))
    again = await room.chat(group(title="Team"))
    topic = await room.chat(group(thread="7"))

    assert main.id == again.id
    assert topic.id != main.id
    assert await room.people.get_chat(main.id) == main


async def test_a_chat_keeps_up_with_its_title_and_does_not_lose_it(room: MessageStore) -> None:
    await room.chat(group(title="Old"))

    assert (await room.chat(group(title="New"))).title == "New"
    assert (await room.chat(group(title=""))).title == "New"


async def test_a_private_chat_knows_its_partner_once_paired(room: MessageStore) -> None:
    before = await room.chat()
    person = await room.person("42")

    after = await room.chat()

    assert before.person_id is None
    assert after.person_id == person.id
    assert await room.people.get_chat(before.id) == after


async def test_a_group_has_no_partner(room: MessageStore) -> None:
    await room.person("42")

    assert (await room.chat(group())).person_id is None


async def test_an_owner_known_by_account_alone_gets_a_name_when_they_speak(
    room: MessageStore,
) -> None:
    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=START)

    await room.chat(by=sender("42", name="Lin"))
    await room.chat(by=sender("42", name="Someone who renames later"))

    person = await room.people.find_by_account(Channel.TELEGRAM, "42")
    assert person is not None
    assert person.name == "Lin"


async def test_settings_of_a_chat_are_kept_and_given_up(room: MessageStore) -> None:
    chat = await room.chat()
    chosen = ChatSettings(model="opus", backend="anthropic", language=Language.CHINESE)

    await room.people.update_chat_settings(chat, model="opus", backend="anthropic")
    # Whoever saw the chat before that changes nothing else of it.
    changed = await room.people.update_chat_settings(chat, language=Language.CHINESE)
    assert changed.settings == (await room.chat()).settings == chosen
    none = await room.people.update_chat_settings(chat, model="", backend="", language=None)
    assert none.settings == ChatSettings()


async def test_owners_are_told_in_one_private_chat_for_each_channel(room: MessageStore) -> None:
    await room.person("1", role=PersonRole.OWNER)
    await room.person("2", role=PersonRole.MEMBER)
    topic = await room.chat(place("1", thread="9"), sender("1"))
    main = await room.chat(place("1"), sender("1"))
    member = await room.chat(place("2"), sender("2"))
    await room.chat(group(), sender("1"))

    assert topic.id != main.id
    assert [each.id for each in await room.people.private_chats(PersonRole.OWNER)] == [main.id]
    assert [each.id for each in await room.people.private_chats(PersonRole.MEMBER)] == [member.id]


async def test_kinds_of_chats_are_told_apart(room: MessageStore) -> None:
    assert (await room.chat(place())).kind is ChatKind.PRIVATE
    assert (await room.chat(group())).kind is ChatKind.GROUP


async def test_an_owner_taken_out_of_the_settings_becomes_a_member(room: MessageStore) -> None:
    both = [(Channel.TELEGRAM, "42"), (Channel.TELEGRAM, "43")]
    await room.people.ensure_owners(both, now=START)

    await room.people.ensure_owners(both[:1], now=room.advance(days=1))
    fallen = await room.people.demote_unlisted_owners()

    assert [each.name for each in fallen] == ["43"]
    assert await roles(room) == {
        "42": PersonRole.OWNER,
        "43": PersonRole.MEMBER,
        "local": PersonRole.OWNER,
    }
    assert room.people.unlisted_owner == ""
    assert await room.people.demote_unlisted_owners() == []


async def test_where_the_settings_name_nobody_the_oldest_owner_stays(room: MessageStore) -> None:
    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=START)
    await room.people.ensure_owners([(Channel.TELEGRAM, "43")], now=room.advance(days=1))

    await room.people.ensure_owners([], now=room.advance(days=1))
    await room.people.demote_unlisted_owners()

    assert await roles(room) == {
        "42": PersonRole.OWNER,
        "43": PersonRole.MEMBER,
        "local": PersonRole.OWNER,
    }
    assert room.people.unlisted_owner == "42"


async def test_who_is_named_again_is_an_owner_again(room: MessageStore) -> None:
    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=START)
    await room.people.ensure_owners([(Channel.TELEGRAM, "43")], now=START)
    await room.people.demote_unlisted_owners()

    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=START)
    await room.people.demote_unlisted_owners()

    assert await roles(room) == {
        "42": PersonRole.OWNER,
        "43": PersonRole.MEMBER,
        "local": PersonRole.OWNER,
    }


async def test_who_is_removed_is_nobody_and_keeps_what_was_theirs(room: MessageStore) -> None:
    await room.people.ensure_owners([(Channel.TELEGRAM, "42")], now=START)
    member = await room.person("43")
    chat = await room.chat(place("43"), sender("43"))

    rooms = await room.people.remove(member.id)

    assert rooms == [chat.id]
    assert await room.people.find_by_account(Channel.TELEGRAM, "43") is None
    assert (await room.people.get(member.id)).name == member.name
    assert not await room.people.has_access(member.id)
    assert chat.id not in {each.id for each in await room.people.private_chats(PersonRole.MEMBER)}
    assert "43" not in await roles(room)


async def test_who_was_removed_can_be_let_in_again_as_somebody_new(room: MessageStore) -> None:
    await room.people.ensure_owners([], now=START)
    chat = await room.chat(place("43"), sender("43"))
    await pair(room, chat)
    first = await room.people.find_by_account(Channel.TELEGRAM, "43")
    assert first is not None
    await room.people.remove(first.id)

    await pair(room, chat)

    second = await room.people.find_by_account(Channel.TELEGRAM, "43")
    assert second is not None
    assert second.id != first.id


async def test_neither_the_local_nor_the_last_owner_is_moved(room: MessageStore) -> None:
    await room.people.ensure_owners([], now=START)
    local = await room.people.find_by_account(Channel.WEB, "local")
    assert local is not None

    assert not await room.people.demote(local.id)
    assert await room.people.remove(local.id) is None
    with pytest.raises(NotFound):
        await room.people.remove(PersonId("nobody"))

    assert await roles(room) == {"local": PersonRole.OWNER}


async def roles(room: MessageStore) -> dict[str, PersonRole]:
    return {
        external_id: each.person.role
        for each in await room.people.list_members()
        for _, external_id in each.accounts
    }


async def pair(room: MessageStore, chat: Chat) -> None:
    owner = await room.people.find_by_account(Channel.WEB, "local")
    assert owner is not None
    pairing, new = await room.pairings.get_or_create(
        Channel.TELEGRAM, "43", "Ann", chat.id, now=room.advance(minutes=1)
    )
    assert new
    approval = await room.pairings.get_approval(pairing)
    await room.approvals.decide(approval, approve=True, by=owner, source=f"s:{pairing.code}")


async def ask(room: MessageStore, who: str = "9") -> tuple[PairingRequest, bool]:
    chat = await room.chat(place(who), sender(who))
    return await room.pairings.get_or_create(
        Channel.TELEGRAM, who, "Mallory", chat.id, now=room.now
    )


async def decide(
    room: MessageStore, pairing: PairingRequest, *, approve: bool, by: Person
) -> Approval:
    approval = await room.pairings.get_approval(pairing)
    return await room.approvals.decide(approval, approve=approve, by=by, source="t:1")


async def test_asking_makes_a_code_and_a_decision_for_the_owners(room: MessageStore) -> None:
    pairing, new = await ask(room)

    assert new
    assert len(pairing.code) == 8
    approval = await room.pairings.get_approval(pairing)
    assert (approval.kind, approval.subject) == (ApprovalKind.PAIRING, pairing.code)
    assert (approval.title, approval.expires_at) == ("Mallory", pairing.expires_at)


async def test_asking_again_within_the_hour_gets_the_same_code(room: MessageStore) -> None:
    first, _ = await ask(room)
    room.advance(minutes=59)

    assert await ask(room) == (first, False)


async def test_after_an_hour_the_code_is_gone_and_a_new_one_is_made(room: MessageStore) -> None:
    first, _ = await ask(room)
    room.advance(hours=1)

    with pytest.raises(NotFound):
        await room.pairings.find(first.code, now=room.now)
    second, new = await ask(room)
    assert new
    assert second.code != first.code


async def test_a_code_may_be_typed_in_any_case_with_blanks_and_dashes(room: MessageStore) -> None:
    pairing, _ = await ask(room)
    typed = f" {pairing.code[:4].lower()}-{pairing.code[4:].lower()} "

    assert await room.pairings.find(typed, now=room.now) == pairing


async def test_approving_lets_the_stranger_in_as_a_member(room: MessageStore) -> None:
    owner = await room.person("1", role=PersonRole.OWNER)
    pairing, _ = await ask(room)

    await decide(room, pairing, approve=True, by=owner)

    person = await room.people.find_by_account(Channel.TELEGRAM, "9")
    assert person is not None
    assert (person.name, person.role) == ("Mallory", PersonRole.MEMBER)
    assert (await room.people.get_chat(pairing.chat_id)).person_id == person.id
    with pytest.raises(NotFound):
        await room.pairings.find(pairing.code, now=room.now)


async def test_refusing_lets_nobody_in_and_stops_asking_for_an_hour(room: MessageStore) -> None:
    owner = await room.person("1", role=PersonRole.OWNER)
    pairing, _ = await ask(room)

    await decide(room, pairing, approve=False, by=owner)

    assert await room.people.find_by_account(Channel.TELEGRAM, "9") is None
    again, new = await ask(room)
    assert (again.code, again.state, new) == (pairing.code, PairingState.REFUSED, False)
    room.advance(hours=1)
    assert (await ask(room))[1]


async def test_somebody_already_known_stays_who_they_are(room: MessageStore) -> None:
    owner = await room.person("1", role=PersonRole.OWNER)
    pairing, _ = await ask(room)
    known = await room.person("9", role=PersonRole.OWNER)

    await decide(room, pairing, approve=True, by=owner)

    assert await room.people.find_by_account(Channel.TELEGRAM, "9") == known


async def test_five_wrong_codes_in_an_hour_lock_even_the_right_one(room: MessageStore) -> None:
    pairing, _ = await ask(room)
    room.advance(minutes=-1)
    for guess in range(5):
        with pytest.raises(NotFound):
            await room.pairings.find(f"WRONG{guess}", now=room.now)

    room.advance(minutes=1)
    with pytest.raises(TooManyAttempts):
        await room.pairings.find(pairing.code, now=room.now)


async def test_the_lock_opens_again_after_an_hour(room: MessageStore) -> None:
    for guess in range(5):
        with pytest.raises(NotFound):
            await room.pairings.find(f"WRONG{guess}", now=room.now)
    room.advance(hours=1)
    pairing, _ = await ask(room)

    assert await room.pairings.find(pairing.code, now=room.now) == pairing


async def test_old_and_settled_codes_are_no_guesses(room: MessageStore) -> None:
    pairing, _ = await ask(room)
    room.advance(hours=2)
    for _ in range(6):
        with pytest.raises(NotFound):
            await room.pairings.find(pairing.code, now=room.now)

    other, _ = await ask(room, "10")
    assert await room.pairings.find(other.code, now=room.now) == other


async def test_a_request_nobody_decided_expires_without_letting_anyone_in(
    room: MessageStore,
) -> None:
    pairing, _ = await ask(room)
    room.advance(hours=1)

    expired = await room.approvals.expire_overdue()

    assert [(each.subject, each.state) for each in expired] == [
        (pairing.code, ApprovalState.EXPIRED)
    ]
    assert await room.people.find_by_account(Channel.TELEGRAM, "9") is None
