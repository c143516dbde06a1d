from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from storage.approvals import ApprovalRepo, NewApproval, add_approval
from storage.db import Transaction
from storage.errors import AmbiguousId, NotAllowed, NotFound, WrongState
from storage.ids import IdGenerator
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import Chat, PersonRole
from tests.storage.message_store import MessageStore, group


async def add(room: MessageStore, chat: Chat | None = None, **rest: Any) -> Approval:
    new = NewApproval(
        kind=ApprovalKind.HUMAN,
        chat_id=(chat or await room.chat()).id,
        title="Deploy?",
        expires_at=room.now + timedelta(days=3),
        **rest,
    )
    async with room.db.write() as tx:
        return await add_approval(tx, new, ids=room.ids, now=room.now)


async def test_the_first_decision_wins_and_the_second_is_told(room: MessageStore) -> None:
    owner = await room.person("1", role=PersonRole.OWNER)
    other = await room.person("2", role=PersonRole.OWNER)
    approval = await add(room)

    await room.approvals.decide(approval, approve=False, by=owner, source="t:1", reason="too late")
    with pytest.raises(WrongState) as told:
        await room.approvals.decide(approval, approve=True, by=other, source="t:2")

    assert told.value.state == "rejected"
    settled = await room.approvals.get(approval.id)
    assert (settled.state, settled.decided_by) == (ApprovalState.REJECTED, owner.id)
    assert (settled.reason, settled.decided_at) == ("too late", room.now)


async def test_of_two_at_the_same_time_one_wins(room: MessageStore) -> None:
    owner = await room.person("1", role=PersonRole.OWNER)
    approval = await add(room)

    outcomes = await asyncio.gather(
        *(
            room.approvals.decide(approval, approve=bool(n % 2), by=owner, source=f"t:{n}")
            for n in range(6)
        ),
        return_exceptions=True,
    )

    assert sum(isinstance(each, Approval) for each in outcomes) == 1
    assert sum(isinstance(each, WrongState) for each in outcomes) == 5


async def test_the_same_press_handled_again_is_the_same_decision(room: MessageStore) -> None:
    owner = await room.person("1", role=PersonRole.OWNER)
    approval = await add(room)

    first = await room.approvals.decide(approval, approve=True, by=owner, source="t:1")
    again = await room.approvals.decide(approval, approve=True, by=owner, source="t:1")

    assert again == first


async def test_only_owners_decide_where_no_approvers_are_named(room: MessageStore) -> None:
    member = await room.person("2")
    approval = await add(room)

    with pytest.raises(NotAllowed):
        await room.approvals.decide(approval, approve=True, by=member, source="t:1")

    assert (await room.approvals.get(approval.id)).state is ApprovalState.WAITING


async def test_named_approvers_decide_and_nobody_else(room: MessageStore) -> None:
    member = await room.person("2")
    owner = await room.person("1", role=PersonRole.OWNER)
    approval = await add(room, approvers=(member.id,))

    with pytest.raises(NotAllowed):
        await room.approvals.decide(approval, approve=True, by=owner, source="t:1")
    settled = await room.approvals.decide(approval, approve=True, by=member, source="t:2")

    assert settled.state is ApprovalState.APPROVED


async def test_what_follows_from_a_decision_fails_with_it(room: MessageStore) -> None:
    owner = await room.person("1", role=PersonRole.OWNER)
    approval = await add(room)

    async def fail(tx: Transaction, settled: Approval) -> None:
        await room.key_values.write(tx, "trace", settled.state.value)
        raise LookupError

    approvals = ApprovalRepo(
        room.db, now=lambda: room.now, decision_handlers={ApprovalKind.HUMAN: fail}
    )
    with pytest.raises(LookupError):
        await approvals.decide(approval, approve=True, by=owner, source="t:1")

    assert await room.key_values.get("trace") is None
    assert (await approvals.get(approval.id)).state is ApprovalState.WAITING


async def test_too_late_is_told_as_expired(room: MessageStore) -> None:
    owner = await room.person("1", role=PersonRole.OWNER)
    approval = await add(room)
    room.advance(days=3)

    with pytest.raises(WrongState, match="expired"):
        await room.approvals.decide(approval, approve=True, by=owner, source="t:1")

    assert (await room.approvals.get(approval.id)).state is ApprovalState.EXPIRED
    assert await room.approvals.list_waiting(by=owner, chat=None) == ()


async def test_expiring_settles_each_once(room: MessageStore) -> None:
    overdue = await add(room)
    room.advance(days=2)
    fresh = await add(room)
    room.advance(days=1)

    assert [each.id for each in await room.approvals.expire_overdue()] == [overdue.id]
    assert await room.approvals.expire_overdue() == ()
    assert (await room.approvals.get(fresh.id)).state is ApprovalState.WAITING


async def test_waiting_are_those_one_may_decide_oldest_first(room: MessageStore) -> None:
    owner = await room.person("1", role=PersonRole.OWNER)
    member = await room.person("2")
    here, there = await room.chat(), await room.chat(group())
    first = await add(room, here)
    room.advance(minutes=1)
    second = await add(room, there)
    theirs = await add(room, there, approvers=(member.id,))

    assert await room.approvals.list_waiting(by=owner, chat=None) == (first, second)
    assert await room.approvals.list_waiting(by=owner, chat=here.id) == (first,)
    assert await room.approvals.list_waiting(by=member, chat=there.id) == (theirs,)
    assert await room.approvals.list_waiting(by=member, chat=here.id) == ()


async def test_a_prefix_finds_none_one_or_several(room: MessageStore) -> None:
    numbers = iter([0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2])
    room.ids = IdGenerator(lambda _: next(numbers))
    one, two, three = await add(room), await add(room), await add(room)
    assert (one.id, two.id, three.id) == ("222222", "222333", "444444")

    assert await room.approvals.find("44") == three
    assert await room.approvals.find(" 222333 ") == two
    with pytest.raises(AmbiguousId) as several:
        await room.approvals.find("222")
    assert set(several.value.candidates) == {one.id, two.id}
    for nothing in ("9", "", "%", "2_2"):
        with pytest.raises(NotFound):
            await room.approvals.find(nothing)


async def test_an_id_without_end_is_no_requests(room: MessageStore) -> None:
    await add(room)

    with pytest.raises(NotFound):
        await room.approvals.find("a" * 60_000)


async def test_a_prefix_means_what_waits_before_what_is_settled(room: MessageStore) -> None:
    owner = await room.person("1", role=PersonRole.OWNER)
    numbers = iter([0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1])
    room.ids = IdGenerator(lambda _: next(numbers))
    settled, waiting = await add(room), await add(room)
    await room.approvals.decide(settled, approve=True, by=owner, source="t:1")

    assert await room.approvals.find("222") == waiting
    assert (await room.approvals.find(settled.id)).state is ApprovalState.APPROVED


async def test_two_decisions_never_share_an_id(room: MessageStore) -> None:
    numbers = iter([0] * 6 + [0] * 6 + [1] * 6)
    room.ids = IdGenerator(lambda _: next(numbers))

    assert (await add(room)).id == "222222"
    assert (await add(room)).id == "333333"
