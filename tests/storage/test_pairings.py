from __future__ import annotations

import pytest

from storage.errors import NotFound, TooManyTries
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import Channel, Pairing, PairingState, Person, Role
from tests.storage.mail_room import Room, place, sender


async def ask(room: Room, who: str = "9") -> tuple[Pairing, bool]:
    chat = await room.chat(place(who), sender(who))
    return await room.pairings.ask(Channel.TELEGRAM, who, "Mallory", chat.id, now=room.now)


async def decide(room: Room, pairing: Pairing, *, approve: bool, by: Person) -> Approval:
    approval = await room.pairings.approval(pairing)
    return await room.approvals.decide(approval, approve=approve, by=by, source="t:1")


async def test_asking_makes_a_code_and_a_decision_for_the_owners(room: Room) -> None:
    pairing, new = await ask(room)

    assert new
    assert len(pairing.code) == 8
    approval = await room.pairings.approval(pairing)
    assert (approval.kind, approval.subject) == (ApprovalKind.PAIRING, pairing.code)
    assert (approval.title, approval.expires_at) == ("Mallory", pairing.expires_at)


async def test_asking_again_within_the_hour_gets_the_same_code(room: Room) -> None:
    first, _ = await ask(room)
    room.later(minutes=59)

    assert await ask(room) == (first, False)


async def test_after_an_hour_the_code_is_gone_and_a_new_one_is_made(room: Room) -> None:
    first, _ = await ask(room)
    room.later(hours=1)

    with pytest.raises(NotFound):
        await room.pairings.find(first.code, now=room.now)
    second, new = await ask(room)
    assert new
    assert second.code != first.code


async def test_a_code_may_be_typed_in_any_case_with_blanks_and_dashes(room: Room) -> None:
    pairing, _ = await ask(room)
    typed = f" {pairing.code[:4].lower()}-{pairing.code[4:].lower()} "

    assert await room.pairings.find(typed, now=room.now) == pairing


async def test_approving_lets_the_stranger_in_as_a_member(room: Room) -> None:
    owner = await room.person("1", role=Role.OWNER)
    pairing, _ = await ask(room)

    await decide(room, pairing, approve=True, by=owner)

    person = await room.people.who(Channel.TELEGRAM, "9")
    assert person is not None
    assert (person.name, person.role) == ("Mallory", Role.MEMBER)
    assert (await room.people.chat(pairing.chat_id)).person_id == person.id
    with pytest.raises(NotFound):
        await room.pairings.find(pairing.code, now=room.now)


async def test_refusing_lets_nobody_in_and_stops_asking_for_an_hour(room: Room) -> None:
    owner = await room.person("1", role=Role.OWNER)
    pairing, _ = await ask(room)

    await decide(room, pairing, approve=False, by=owner)

    assert await room.people.who(Channel.TELEGRAM, "9") is None
    again, new = await ask(room)
    assert (again.code, again.state, new) == (pairing.code, PairingState.REFUSED, False)
    room.later(hours=1)
    assert (await ask(room))[1]


async def test_somebody_already_known_stays_who_they_are(room: Room) -> None:
    owner = await room.person("1", role=Role.OWNER)
    pairing, _ = await ask(room)
    known = await room.person("9", role=Role.OWNER)

    await decide(room, pairing, approve=True, by=owner)

    assert await room.people.who(Channel.TELEGRAM, "9") == known


async def test_five_wrong_codes_in_an_hour_lock_even_the_right_one(room: Room) -> None:
    pairing, _ = await ask(room)
    room.later(minutes=-1)
    for guess in range(5):
        with pytest.raises(NotFound):
            await room.pairings.find(f"WRONG{guess}", now=room.now)

    room.later(minutes=1)
    with pytest.raises(TooManyTries):
        await room.pairings.find(pairing.code, now=room.now)


async def test_the_lock_opens_again_after_an_hour(room: Room) -> None:
    for guess in range(5):
        with pytest.raises(NotFound):
            await room.pairings.find(f"WRONG{guess}", now=room.now)
    room.later(hours=1)
    pairing, _ = await ask(room)

    assert await room.pairings.find(pairing.code, now=room.now) == pairing


async def test_old_and_settled_codes_are_no_guesses(room: Room) -> None:
    pairing, _ = await ask(room)
    room.later(hours=2)
    for _ in range(6):
        with pytest.raises(NotFound):
            await room.pairings.find(pairing.code, now=room.now)

    other, _ = await ask(room, "10")
    assert await room.pairings.find(other.code, now=room.now) == other


async def test_a_request_nobody_decided_expires_without_letting_anyone_in(room: Room) -> None:
    pairing, _ = await ask(room)
    room.later(hours=1)

    expired = await room.approvals.expire()

    assert [(each.subject, each.state) for each in expired] == [
        (pairing.code, ApprovalState.EXPIRED)
    ]
    assert await room.people.who(Channel.TELEGRAM, "9") is None
