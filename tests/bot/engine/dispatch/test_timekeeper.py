"""Requests that nobody decides expire by themselves, and no card keeps a button that is dead."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.engine.dispatch.timekeeper import Timekeeper
from cards.actions import AskAgain, Decide
from cards.model import Buttons, Card
from storage.approvals import NewApproval, add_approval
from storage.errors import StoreUnavailable
from storage.ids import Ids
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import Language
from storage.records.tasks import EventKind, TaskId, TaskStatus
from tests.bot.engine.dispatch.office import Office, office
from tests.engine_world import BOSS, CHAT, GROUP


def actions_of(card: Card) -> set[type]:
    return {
        type(button.action)
        for block in card.blocks
        if isinstance(block, Buttons)
        for button in block.items
    }


async def test_what_nobody_decides_pauses_the_task_and_offers_to_ask_again(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        task, approval = await here.waiting(chat_id=GROUP.id)
        await here.timekeeper.turn()
        assert (await here.view(task)).task.status is TaskStatus.WAITING

        here.world.clock.pass_by(days=8)
        await here.timekeeper.turn()

        cards = await here.cards(approval)
        assert set(cards) == {GROUP.id, CHAT.id}
        for card in cards.values():
            assert AskAgain in actions_of(card)
            assert Decide not in actions_of(card)
        assert (await here.view(task)).task.status is TaskStatus.PAUSED
        assert here.woken

        await here.world.foreman.resume(task, by=BOSS, source="r:1")
        await here.world.until(task, TaskStatus.WAITING)
        await here.told()
        newest = (await here.approvals.of_task(task.id))[-1]
        assert newest.id != approval.id
        assert Decide in actions_of((await here.cards(newest))[GROUP.id])


async def test_a_second_turn_expires_nothing_twice(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        task, _ = await here.waiting()
        here.world.clock.pass_by(days=8)
        await here.timekeeper.turn()
        await here.timekeeper.turn()

        assert list(await here.kinds(task)).count(EventKind.PAUSED) == 1


async def test_a_cap_that_opens_with_the_new_day_pauses_nothing(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        task, _ = await here.waiting()
        await here.world.foreman.pause(task, by=BOSS, source="p:1")
        day = here.world.clock.time.replace(hour=23, minute=59)
        approval = await _budget(here, task.id, day.isoformat())
        async with here.world.db.write() as tx:
            held = await here.world.store.tasks.lock(tx, task.id)
            await here.world.store.tasks.move(tx, held, status=TaskStatus.WAITING, wake_at=day)
            await here.world.store.journal.append(
                tx, task.id, EventKind.WAITING, now=here.world.clock(), text=approval.id
            )
        await here.told()

        here.world.clock.pass_by(days=1)
        await here.timekeeper.turn()
        await here.told()

        assert TaskStatus.PAUSED is not (await here.view(task)).task.status
        said = (await here.copies(approval))[CHAT.id]
        assert "new day" in said
        assert actions_of((await here.cards(approval))[CHAT.id]) == set()


@pytest.mark.parametrize("approve", [True, False])
async def test_after_a_crash_between_decision_and_cards_the_cards_tell_the_truth(
    tmp_path: Path, approve: bool
) -> None:
    async with office(tmp_path) as here:
        _, approval = await here.waiting(chat_id=GROUP.id)
        await here.approvals.decide(approval, approve=approve, by=BOSS, source="d:1")
        assert [each.id for each in await here.approvals.outdated()] == [approval.id]

    async with office(tmp_path) as later:
        await later.timekeeper.turn()

        copies = await later.copies(approval)
        assert set(copies) == {GROUP.id, CHAT.id}
        assert all("Boss" in said for said in copies.values())
        assert await later.approvals.outdated() == ()


async def test_pairings_decided_before_a_crash_are_shown_as_well(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        now = here.world.clock()
        new = NewApproval(
            kind=ApprovalKind.PAIRING,
            chat_id=GROUP.id,
            title="Eve",
            expires_at=now.replace(year=now.year + 1),
        )
        async with here.world.db.write() as tx:
            approval = await add_approval(tx, new, ids=Ids(), now=now)
        await here.copies_of.ask(approval, CHAT.id, fallback=Language.ENGLISH)
        await here.decide(approval, approve=True)

        await here.timekeeper.turn()

        assert "Approved" in (await here.copies(approval))[CHAT.id]


async def test_it_sleeps_until_the_next_expiry_but_not_past_a_jump_of_the_clock(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as here:
        assert await here.timekeeper.rest() == 60
        _, approval = await here.waiting()
        assert await here.timekeeper.rest() == 60

        here.world.clock.time = approval.expires_at
        here.world.clock.pass_by(seconds=-5)

        assert 4 < await here.timekeeper.rest() < 5


async def test_a_clock_set_back_expires_nothing(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        _, approval = await here.waiting()
        here.world.clock.pass_by(days=-30)
        await here.timekeeper.turn()

        assert (await here.approvals.get(approval.id)).state is ApprovalState.WAITING


async def test_trouble_with_the_store_is_lived_through_and_made_up_for(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        await here.waiting()
        here.world.clock.pass_by(days=8)
        tried = asyncio.Event()
        settled = asyncio.Event()

        class Faulty:
            """Fails once; then as the real ones."""

            async def expire(self) -> object:
                if not tried.is_set():
                    tried.set()
                    here.news.set()
                    raise StoreUnavailable("disk full")
                done = await here.approvals.expire()
                settled.set()
                return done

            async def next_expiry(self) -> object:
                return await here.approvals.next_expiry()

        keeper = Timekeeper(
            approvals=Faulty(),  # type: ignore[arg-type] # the two calls it makes
            requests=here.requests,
            now=here.world.clock,
            news=here.news,
            on_change=lambda: None,
        )
        running = asyncio.create_task(keeper.run())
        async with asyncio.timeout(60):
            await settled.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _budget(here: Office, task_id: TaskId, until: str) -> Approval:
    now = here.world.clock()
    new = NewApproval(
        kind=ApprovalKind.BUDGET,
        chat_id=CHAT.id,
        title="More",
        expires_at=now.fromisoformat(until),
        task_id=task_id,
        payload={"tasks": [task_id], "scope": "day", "until": until},
    )
    async with here.world.db.write() as tx:
        return await add_approval(tx, new, ids=Ids(), now=now)
