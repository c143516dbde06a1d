"""The effects of a decision on its task, and the texts of its cards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import insert

from bot.engine.llm.answer_schemas import PlanAnswer, PlanStep
from bot.engine.tasks.approvals import ApprovalExpirer
from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.plan import HUMAN
from cards.actions import DecideApproval, RequestApprovalAgain
from cards.model import ButtonsBlock, Card
from storage.approvals import NewApproval, add_approval
from storage.errors import NotAllowed, StoreUnavailable
from storage.ids import IdGenerator
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import Language, Person
from storage.records.tasks import EventKind, Task, TaskEvent, TaskId, TaskStatus
from storage.records.usage import BudgetScope
from storage.schema import chats
from storage.usage import BudgetRepo
from tests.bot.engine.tasks.approval_world import ApprovalWorld, approval_world
from tests.due_timer import run_timer
from tests.engine_harness import BOSS, CHAT, GROUP, MATE, START, THREAD, FakeBackend
from tests.waiting import WAIT_SECONDS


async def test_a_risky_step_waits_and_runs_once_it_is_approved(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        task, approval = await here.create_waiting()
        assert here.engine.backend.started_steps == []

        await here.decide(approval, approve=True)
        view = await here.engine.until(task)

    assert view.task.status is TaskStatus.COMPLETED
    assert here.engine.backend.started_steps == ["Deploy it"]


async def test_no_blocks_the_task_names_who_and_why_and_is_asked_anew_on_resume(
    tmp_path: Path,
) -> None:
    async with approval_world(tmp_path) as here:
        task, first = await here.create_waiting()

        await here.decide(first, approve=False, reason="not on Friday")
        blocked = (await here.view(task)).task
        assert blocked.status is TaskStatus.BLOCKED
        assert "Boss" in blocked.status_reason
        assert "not on Friday" in blocked.status_reason
        await here.engine.tasks.resume(blocked, by=BOSS, source="r:1")
        await here.engine.until(task, TaskStatus.WAITING)
        second = (await here.approvals.list_by_task(task.id))[-1]

    assert second.id != first.id
    assert second.state is ApprovalState.WAITING
    assert here.engine.backend.started_steps == []


async def test_yes_to_a_paused_task_leaves_it_paused_and_holds_when_it_goes_on(
    tmp_path: Path,
) -> None:
    async with approval_world(tmp_path) as here:
        task, approval = await here.create_waiting()
        await here.engine.tasks.pause(task, by=BOSS, source="p:1")

        await here.decide(approval, approve=True)
        assert (await here.view(task)).task.status is TaskStatus.PAUSED
        await here.engine.tasks.resume(task, by=BOSS, source="r:1")
        view = await here.engine.until(task)

    assert view.task.status is TaskStatus.COMPLETED
    assert here.engine.backend.started_steps == ["Deploy it"]


async def test_no_to_a_paused_task_meets_it_when_it_goes_on(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        task, approval = await here.create_waiting()
        await here.engine.tasks.pause(task, by=BOSS, source="p:1")

        await here.decide(approval, approve=False, reason="too dear")
        await here.engine.tasks.resume(task, by=BOSS, source="r:1")
        view = await here.engine.until(task, TaskStatus.BLOCKED)

    assert "Boss" in view.task.status_reason
    assert "too dear" in view.task.status_reason
    assert here.engine.backend.started_steps == []


async def test_a_persons_step_is_done_by_their_yes(tmp_path: Path) -> None:
    plan = PlanAnswer(
        plan="Ask.", steps=[PlanStep(title="Look at it", kind="ask"), PlanStep(title="Go on")]
    )
    backend = FakeBackend(on_plan=lambda: plan)
    async with approval_world(tmp_path, backend) as here:
        task, approval = await here.create_waiting()
        assert approval.kind is ApprovalKind.HUMAN

        await here.decide(approval, approve=True)
        view = await here.engine.until(task)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["Go on"]


async def test_a_task_that_was_stopped_is_not_moved_by_a_late_yes(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        task, approval = await here.create_waiting()
        await here.engine.tasks.stop(task, by=BOSS, source="s:1")
        await here.notify_all()

        assert await here.approvals.list_waiting(by=BOSS, chat=None) == ()
        assert "task is over" in (await here.copy_texts(approval))[CHAT.id]
        assert (await here.view(task)).task.status is TaskStatus.CANCELLED


async def test_an_old_request_does_not_move_a_task_that_waits_for_another(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        task, approval = await here.create_waiting()
        stray = await _asked(here, task, ApprovalKind.HUMAN, path="s9")

        await here.decide(stray, approve=False, source="d:stray")
        assert (await here.view(task)).task.status is TaskStatus.WAITING
        await here.decide(approval, approve=True)
        view = await here.engine.until(task)

    assert view.task.status is TaskStatus.COMPLETED


@pytest.mark.parametrize(
    ("approve", "status"), [(True, TaskStatus.PENDING), (False, TaskStatus.CANCELLED)]
)
async def test_money_moves_every_task_that_waits_for_it_and_no_other(
    tmp_path: Path, approve: bool, status: TaskStatus
) -> None:
    async with approval_world(tmp_path) as here:
        first, _ = await here.create_waiting()
        second, _ = await here.create_waiting()
        other, _ = await here.create_waiting()
        approval = await _asked(here, first, ApprovalKind.BUDGET, tasks=(first, second))
        seen: list[TaskStatus] = []

        async with here.engine.db.write() as tx:
            for task in (first, second):
                await here.engine.store.events.append_event(
                    tx, task.id, EventKind.WAITING, now=here.engine.clock(), text=approval.id
                )
        await here.approvals.decide(approval, approve=approve, by=BOSS, source="d:1")
        seen = [(await here.view(task)).task.status for task in (first, second, other)]
        granted = await BudgetRepo(here.engine.db).get_granted(BudgetScope.DAY, "", "2026-01-05")

    assert seen == [status, status, TaskStatus.WAITING]
    assert granted.micros == (5_000_000 if approve else 0)


async def test_each_task_that_a_cap_stopped_is_told_of_by_its_own_name(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        first, _ = await here.create_waiting("Deploy the secret")
        second, _ = await here.create_waiting("Deploy the rest", chat_id=GROUP.id)
        approval = await _asked(here, first, ApprovalKind.BUDGET, tasks=(first, second))
        async with here.engine.db.write() as tx:
            await here.engine.store.events.append_event(
                tx, second.id, EventKind.WAITING, now=here.engine.clock(), text=approval.id
            )

        await here.approvals.decide(approval, approve=False, by=BOSS, source="d:1")
        told = (await here.view(second)).task.status_reason

    assert "Deploy the rest" in told
    assert approval.title not in told


async def test_it_is_asked_in_the_thread_and_of_the_owner_in_private(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        _, approval = await here.create_waiting(chat_id=THREAD.id)
        copies = await here.copy_texts(approval)
        before = await here.count_messages()
        await here.card_publisher.handle_events(*await _again(here, approval))

        assert set(copies) == {THREAD.id, CHAT.id}
        for said in copies.values():
            assert "Deploy it" in said
            assert "any owner" in said
        assert await here.count_messages() == before, "told again, nothing is sent again"


async def test_in_the_private_chat_of_who_may_decide_it_is_asked_once(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        _, approval = await here.create_waiting()

        assert set(await here.copy_texts(approval)) == {CHAT.id}
        assert here.changed.is_set()


async def test_every_copy_says_who_decided_and_why(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        _, approval = await here.create_waiting(chat_id=GROUP.id)

        await here.decide(approval, approve=False, reason="not on Friday")
        await here.notify_all()

        copies = await here.copy_texts(approval)
        assert set(copies) == {GROUP.id, CHAT.id}
        for said in copies.values():
            assert "Rejected" in said
            assert "Boss" in said
            assert "not on Friday" in said


async def test_somebody_else_may_not_decide(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        _, approval = await here.create_waiting(chat_id=GROUP.id)

        with pytest.raises(NotAllowed):
            await here.approvals.decide(approval, approve=True, by=MATE, source="d:1")

        assert await here.approvals.list_waiting(by=MATE, chat=GROUP.id) == ()
        assert [each.id for each in await here.approvals.list_waiting(by=BOSS, chat=None)] == [
            approval.id
        ]


async def _again(here: ApprovalWorld, approval: Approval) -> tuple[Task, Sequence[TaskEvent]]:
    assert approval.task_id is not None
    events = await here.engine.store.events.list_latest(approval.task_id, 50)
    return (await here.engine.views.view(approval.task_id)).task, events


async def _asked(
    here: ApprovalWorld,
    task: Task,
    kind: ApprovalKind,
    *,
    path: str = "",
    tasks: tuple[Task, ...] = (),
) -> Approval:
    now = here.engine.clock()
    new = NewApproval(
        kind=kind,
        chat_id=task.chat_id,
        title="Something else",
        expires_at=now.replace(year=now.year + 1),
        task_id=task.id,
        path=path,
        payload={
            "tasks": [each.id for each in tasks],
            "scope": "day",
            "subject": "",
            "day": "2026-01-05",
            "more_micros": 5_000_000,
            "more_tokens": 0,
        },
    )
    async with here.engine.db.write() as tx:
        return await add_approval(tx, new, ids=IdGenerator(), now=now)


@pytest.mark.parametrize("assignee", [("Mate",), ("Zaphod", "Mate"), ("Zaphod",), ()])
async def test_who_is_named_for_a_step_gets_the_request_in_private(
    tmp_path: Path, assignee: tuple[str, ...]
) -> None:
    step = WorkflowNode(
        id="sign", title="Sign it", type=HUMAN, config=HumanConfig(assignee=assignee)
    )
    async with approval_world(tmp_path) as here:
        await _let_in_private(here, MATE)
        task = await here.engine.run_workflow(Workflow(plan="", nodes=(step,)))
        await here.engine.until(task, TaskStatus.WAITING)
        await here.notify_all()
        (asked,) = await here.approvals.list_by_task(task.id)
        copies = await here.copy_texts(asked)

    assert set(copies) == ({CHAT.id, "m1"} if "Mate" in assignee else {CHAT.id})


async def _let_in_private(here: ApprovalWorld, person: Person) -> None:
    async with here.engine.db.write() as tx:
        await tx.execute(
            insert(chats).values(
                id="m1",
                channel=CHAT.channel,
                external_id="mate",
                thread="",
                kind=CHAT.kind,
                title="",
                settings={},
                person_id=person.id,
                created_at=START,
            )
        )


def actions_of(card: Card) -> set[type]:
    return {
        type(button.action)
        for block in card.blocks
        if isinstance(block, ButtonsBlock)
        for button in block.items
    }


async def test_what_nobody_decides_pauses_the_task_and_offers_to_ask_again(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        task, approval = await here.create_waiting(chat_id=GROUP.id)
        await here.expirer.run_due()
        assert (await here.view(task)).task.status is TaskStatus.WAITING

        here.engine.clock.advance(days=8)
        await here.expirer.run_due()

        cards = await here.cards(approval)
        assert set(cards) == {GROUP.id, CHAT.id}
        for card in cards.values():
            assert RequestApprovalAgain in actions_of(card)
            assert DecideApproval not in actions_of(card)
        assert (await here.view(task)).task.status is TaskStatus.PAUSED
        assert here.wakes

        await here.engine.tasks.resume(task, by=BOSS, source="r:1")
        await here.engine.until(task, TaskStatus.WAITING)
        await here.notify_all()
        newest = (await here.approvals.list_by_task(task.id))[-1]
        assert newest.id != approval.id
        assert DecideApproval in actions_of((await here.cards(newest))[GROUP.id])


async def test_a_second_turn_expires_nothing_twice(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        task, _ = await here.create_waiting()
        here.engine.clock.advance(days=8)
        await here.expirer.run_due()
        await here.expirer.run_due()

        assert list(await here.kinds(task)).count(EventKind.PAUSED) == 1


async def test_a_cap_that_opens_with_the_new_day_pauses_nothing(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        task, _ = await here.create_waiting()
        await here.engine.tasks.pause(task, by=BOSS, source="p:1")
        day = here.engine.clock.time.replace(hour=23, minute=59)
        approval = await _budget(here, task.id, day.isoformat())
        async with here.engine.db.write() as tx:
            held = await here.engine.store.tasks.lock(tx, task.id)
            await here.engine.store.tasks.update(tx, held, status=TaskStatus.WAITING, wake_at=day)
            await here.engine.store.events.append_event(
                tx, task.id, EventKind.WAITING, now=here.engine.clock(), text=approval.id
            )
        await here.notify_all()

        here.engine.clock.advance(days=1)
        await here.expirer.run_due()
        await here.notify_all()

        assert TaskStatus.PAUSED is not (await here.view(task)).task.status
        said = (await here.copy_texts(approval))[CHAT.id]
        assert "new day" in said
        assert actions_of((await here.cards(approval))[CHAT.id]) == set()


@pytest.mark.parametrize("approve", [True, False])
async def test_after_a_crash_between_decision_and_cards_the_cards_tell_the_truth(
    tmp_path: Path, approve: bool
) -> None:
    async with approval_world(tmp_path) as here:
        _, approval = await here.create_waiting(chat_id=GROUP.id)
        await here.approvals.decide(approval, approve=approve, by=BOSS, source="d:1")
        assert [each.id for each in await here.approvals.list_with_stale_buttons()] == [approval.id]

    async with approval_world(tmp_path) as later:
        await later.expirer.run_due()

        copies = await later.copy_texts(approval)
        assert set(copies) == {GROUP.id, CHAT.id}
        assert all("Boss" in said for said in copies.values())
        assert await later.approvals.list_with_stale_buttons() == ()


async def test_pairings_decided_before_a_crash_are_shown_as_well(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        now = here.engine.clock()
        new = NewApproval(
            kind=ApprovalKind.PAIRING,
            chat_id=GROUP.id,
            title="Eve",
            expires_at=now.replace(year=now.year + 1),
        )
        async with here.engine.db.write() as tx:
            approval = await add_approval(tx, new, ids=IdGenerator(), now=now)
        await here.approval_cards.request_decision(approval, CHAT.id, fallback=Language.ENGLISH)
        await here.decide(approval, approve=True)

        await here.expirer.run_due()

        assert "Approved" in (await here.copy_texts(approval))[CHAT.id]


async def test_the_next_expiry_is_what_the_timer_waits_for(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        assert await here.expirer.next_due() is None
        _, approval = await here.create_waiting()
        assert await here.expirer.next_due() == approval.expires_at


async def test_a_clock_set_back_expires_nothing(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        _, approval = await here.create_waiting()
        here.engine.clock.advance(days=-30)
        await here.expirer.run_due()

        assert (await here.approvals.get(approval.id)).state is ApprovalState.WAITING


async def test_trouble_with_the_store_is_lived_through_and_made_up_for(tmp_path: Path) -> None:
    async with approval_world(tmp_path) as here:
        await here.create_waiting()
        here.engine.clock.advance(days=8)
        tried = asyncio.Event()
        settled = asyncio.Event()

        class Faulty:
            """Fails once; then as the real ones."""

            async def expire_overdue(self) -> object:
                if not tried.is_set():
                    tried.set()
                    raise StoreUnavailable("disk full")
                done = await here.approvals.expire_overdue()
                settled.set()
                return done

            async def next_expiry(self) -> object:
                return await here.approvals.next_expiry()

        keeper = ApprovalExpirer(
            approvals=Faulty(),  # type: ignore[arg-type] # the two calls it makes
            card_publisher=here.card_publisher,
            on_change=lambda: None,
        )
        async with run_timer(keeper, now=here.engine.clock), asyncio.timeout(WAIT_SECONDS):
            await settled.wait()


async def _budget(here: ApprovalWorld, task_id: TaskId, until: str) -> Approval:
    now = here.engine.clock()
    new = NewApproval(
        kind=ApprovalKind.BUDGET,
        chat_id=CHAT.id,
        title="More",
        expires_at=now.fromisoformat(until),
        task_id=task_id,
        payload={"tasks": [task_id], "scope": "day", "until": until},
    )
    async with here.engine.db.write() as tx:
        return await add_approval(tx, new, ids=IdGenerator(), now=now)
