"""What a decision does to the task that waits for it, and what its cards say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import insert

from bot.engine.llm.answers import PlanAnswer, PlanStep
from bot.engine.workflow.graph import HUMAN, Node, Workflow
from bot.engine.workflow.model.nodes import Human
from storage.approvals import NewApproval, add_approval
from storage.budgets import BudgetRepo
from storage.errors import NotAllowed
from storage.ids import Ids
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.money import Scope
from storage.records.people import Person
from storage.records.tasks import EventKind, Task, TaskEvent, TaskStatus
from storage.schema import chats
from tests.bot.engine.dispatch.office import Office, office
from tests.engine_world import BOSS, CHAT, GROUP, MATE, START, THREAD, FakeBackend


async def test_a_risky_step_waits_and_runs_once_it_is_approved(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        task, approval = await here.waiting()
        assert here.world.backend.done == []

        await here.decide(approval, approve=True)
        view = await here.world.until(task)

    assert view.task.status is TaskStatus.COMPLETED
    assert here.world.backend.done == ["Deploy it"]


async def test_no_blocks_the_task_names_who_and_why_and_is_asked_anew_on_resume(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as here:
        task, first = await here.waiting()

        await here.decide(first, approve=False, reason="not on Friday")
        blocked = (await here.view(task)).task
        assert blocked.status is TaskStatus.BLOCKED
        assert "Boss" in blocked.status_reason
        assert "not on Friday" in blocked.status_reason
        await here.world.foreman.resume(blocked, by=BOSS, source="r:1")
        await here.world.until(task, TaskStatus.WAITING)
        second = (await here.approvals.of_task(task.id))[-1]

    assert second.id != first.id
    assert second.state is ApprovalState.WAITING
    assert here.world.backend.done == []


async def test_yes_to_a_paused_task_leaves_it_paused_and_holds_when_it_goes_on(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as here:
        task, approval = await here.waiting()
        await here.world.foreman.pause(task, by=BOSS, source="p:1")

        await here.decide(approval, approve=True)
        assert (await here.view(task)).task.status is TaskStatus.PAUSED
        await here.world.foreman.resume(task, by=BOSS, source="r:1")
        view = await here.world.until(task)

    assert view.task.status is TaskStatus.COMPLETED
    assert here.world.backend.done == ["Deploy it"]


async def test_no_to_a_paused_task_meets_it_when_it_goes_on(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        task, approval = await here.waiting()
        await here.world.foreman.pause(task, by=BOSS, source="p:1")

        await here.decide(approval, approve=False, reason="too dear")
        await here.world.foreman.resume(task, by=BOSS, source="r:1")
        view = await here.world.until(task, TaskStatus.BLOCKED)

    assert "Boss" in view.task.status_reason
    assert "too dear" in view.task.status_reason
    assert here.world.backend.done == []


async def test_a_persons_step_is_done_by_their_yes(tmp_path: Path) -> None:
    plan = PlanAnswer(
        plan="Ask.", steps=[PlanStep(title="Look at it", kind="ask"), PlanStep(title="Go on")]
    )
    backend = FakeBackend(on_plan=lambda: plan)
    async with office(tmp_path, backend) as here:
        task, approval = await here.waiting()
        assert approval.kind is ApprovalKind.HUMAN

        await here.decide(approval, approve=True)
        view = await here.world.until(task)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["Go on"]


async def test_a_task_that_was_stopped_is_not_moved_by_a_late_yes(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        task, approval = await here.waiting()
        await here.world.foreman.stop(task, by=BOSS, source="s:1")
        await here.told()

        assert await here.approvals.waiting(by=BOSS, chat=None) == ()
        assert "task is over" in (await here.copies(approval))[CHAT.id]
        assert (await here.view(task)).task.status is TaskStatus.CANCELLED


async def test_an_old_request_does_not_move_a_task_that_waits_for_another(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        task, approval = await here.waiting()
        stray = await _asked(here, task, ApprovalKind.HUMAN, path="s9")

        await here.decide(stray, approve=False, source="d:stray")
        assert (await here.view(task)).task.status is TaskStatus.WAITING
        await here.decide(approval, approve=True)
        view = await here.world.until(task)

    assert view.task.status is TaskStatus.COMPLETED


@pytest.mark.parametrize(
    ("approve", "status"), [(True, TaskStatus.PENDING), (False, TaskStatus.CANCELLED)]
)
async def test_money_moves_every_task_that_waits_for_it_and_no_other(
    tmp_path: Path, approve: bool, status: TaskStatus
) -> None:
    async with office(tmp_path) as here:
        first, _ = await here.waiting()
        second, _ = await here.waiting()
        other, _ = await here.waiting()
        approval = await _asked(here, first, ApprovalKind.BUDGET, tasks=(first, second))
        seen: list[TaskStatus] = []

        async with here.world.db.write() as tx:
            for task in (first, second):
                await here.world.store.journal.append(
                    tx, task.id, EventKind.WAITING, now=here.world.clock(), text=approval.id
                )
        await here.approvals.decide(approval, approve=approve, by=BOSS, source="d:1")
        seen = [(await here.view(task)).task.status for task in (first, second, other)]
        granted = await BudgetRepo(here.world.db).granted(Scope.DAY, "", "2026-01-05")

    assert seen == [status, status, TaskStatus.WAITING]
    assert granted.micros == (5_000_000 if approve else 0)


async def test_each_task_that_a_cap_stopped_is_told_of_by_its_own_name(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        first, _ = await here.waiting("Deploy the secret")
        second, _ = await here.waiting("Deploy the rest", chat_id=GROUP.id)
        approval = await _asked(here, first, ApprovalKind.BUDGET, tasks=(first, second))
        async with here.world.db.write() as tx:
            await here.world.store.journal.append(
                tx, second.id, EventKind.WAITING, now=here.world.clock(), text=approval.id
            )

        await here.approvals.decide(approval, approve=False, by=BOSS, source="d:1")
        told = (await here.view(second)).task.status_reason

    assert "Deploy the rest" in told
    assert approval.title not in told


async def test_it_is_asked_in_the_thread_and_of_the_owner_in_private(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        _, approval = await here.waiting(chat_id=THREAD.id)
        copies = await here.copies(approval)
        before = await here.letters()
        await here.requests.tell(*await _again(here, approval))

        assert set(copies) == {THREAD.id, CHAT.id}
        for said in copies.values():
            assert "Deploy it" in said
            assert "any owner" in said
        assert await here.letters() == before, "told again, nothing is sent again"


async def test_in_the_private_chat_of_who_may_decide_it_is_asked_once(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        _, approval = await here.waiting()

        assert set(await here.copies(approval)) == {CHAT.id}
        assert here.news.is_set()


async def test_every_copy_says_who_decided_and_why(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        _, approval = await here.waiting(chat_id=GROUP.id)

        await here.decide(approval, approve=False, reason="not on Friday")
        await here.told()

        copies = await here.copies(approval)
        assert set(copies) == {GROUP.id, CHAT.id}
        for said in copies.values():
            assert "Rejected" in said
            assert "Boss" in said
            assert "not on Friday" in said


async def test_somebody_else_may_not_decide(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        _, approval = await here.waiting(chat_id=GROUP.id)

        with pytest.raises(NotAllowed):
            await here.approvals.decide(approval, approve=True, by=MATE, source="d:1")

        assert await here.approvals.waiting(by=MATE, chat=GROUP.id) == ()
        assert [each.id for each in await here.approvals.waiting(by=BOSS, chat=None)] == [
            approval.id
        ]


async def _again(here: Office, approval: Approval) -> tuple[Task, Sequence[TaskEvent]]:
    assert approval.task_id is not None
    events = await here.world.store.journal.latest(approval.task_id, 50)
    return (await here.world.views.view(approval.task_id)).task, events


async def _asked(
    here: Office,
    task: Task,
    kind: ApprovalKind,
    *,
    path: str = "",
    tasks: tuple[Task, ...] = (),
) -> Approval:
    now = here.world.clock()
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
    async with here.world.db.write() as tx:
        return await add_approval(tx, new, ids=Ids(), now=now)


@pytest.mark.parametrize("assignee", [("Mate",), ("Zaphod", "Mate"), ("Zaphod",), ()])
async def test_who_is_named_for_a_step_gets_the_request_in_private(
    tmp_path: Path, assignee: tuple[str, ...]
) -> None:
    step = Node(id="sign", title="Sign it", type=HUMAN, config=Human(assignee=assignee))
    async with office(tmp_path) as here:
        await _let_in_private(here, MATE)
        task = await here.world.run_workflow(Workflow(plan="", nodes=(step,)))
        await here.world.until(task, TaskStatus.WAITING)
        await here.told()
        (asked,) = await here.approvals.of_task(task.id)
        copies = await here.copies(asked)

    assert set(copies) == ({CHAT.id, "m1"} if "Mate" in assignee else {CHAT.id})


async def _let_in_private(here: Office, person: Person) -> None:
    async with here.world.db.write() as tx:
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
