"""What people may do to a task on its way, and what the work may ask of people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.engine.agent.budget import grant
from bot.engine.dispatch.decisions import Decisions
from bot.engine.llm.answers import PlanAnswer, PlanStep, StepAnswer
from bot.engine.llm.base import BadAnswer, BudgetReached, CapHit
from storage.approvals import Approvals
from storage.errors import WrongState
from storage.records.approvals import Approval, ApprovalKind
from storage.records.logs import LogKind
from storage.records.people import Language, Person
from storage.records.tasks import NodeStatus, Task, TaskStatus, TaskView
from tests.engine_world import BOSS, CHAT, MATE, Engine, FakeBackend, engine, plan_of

MATE_IN_CHAT = replace(MATE, id=BOSS.id)
"""Somebody who may move the task, and allow nothing."""

HIT = CapHit(
    scope="task",
    subject="t",
    day="",
    cap_micros=1000,
    cap_tokens=0,
    spent_micros=990,
    spent_tokens=0,
    until=None,
)


class Held(FakeBackend):
    """Its first step waits for `gate`."""

    def __init__(self, **facts: Any) -> None:
        super().__init__(**facts)
        self.gate = asyncio.Event()
        self.on_step = lambda title: self.gate if title == "one" else None

    async def begun(self, step: str) -> None:
        async with asyncio.timeout(60):
            while step not in self.done:
                await asyncio.sleep(0.005)


def approvals_of(world: Engine) -> Approvals:
    async def english(_task: Task) -> Language:
        return Language.ENGLISH

    async def name(_person: object) -> str:
        return "Boss"

    decisions = Decisions(
        store=world.store, language_of=english, name_of=name, now=world.clock, grant=grant
    )
    return Approvals(world.db, now=world.clock, consequences=decisions.consequences)


async def asked(world: Engine, task: Task) -> Approval:
    await world.until(task, TaskStatus.WAITING)
    waiting = await approvals_of(world).waiting(by=BOSS, chat=CHAT.id)
    assert len(waiting) == 1
    return waiting[0]


async def decided(world: Engine, approval: Approval, *, approve: bool, reason: str = "") -> None:
    await approvals_of(world).decide(
        approval, approve=approve, by=BOSS, source=f"press:{approval.id}", reason=reason
    )
    world.dispatcher.wake()


async def test_a_step_put_in_runs_next_and_the_one_under_way_is_not_touched(
    tmp_path: Path,
) -> None:
    backend = Held()
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        await backend.begun("one")
        await world.foreman.inject(task, ("extra a", "extra b"), by=BOSS, source="m1")
        await world.foreman.inject(task, ("extra a", "extra b"), by=BOSS, source="m1")
        backend.gate.set()
        view = await world.until(task)

    assert backend.done == ["one", "extra a", "extra b", "two", "three"]
    assert view.percent == 100


async def test_a_step_cannot_be_put_into_what_is_over_or_has_no_plan(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        task = await world.add()
        with pytest.raises(WrongState):
            await world.foreman.inject(task, ("x",), by=BOSS, source="m1")
        await world.foreman.stop(task, by=BOSS, source="m2")
        with pytest.raises(WrongState):
            await world.foreman.tell(task, "x", by=BOSS, source="m3")


async def test_a_message_reaches_the_next_step(tmp_path: Path) -> None:
    backend = Held()
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        await backend.begun("one")
        await world.foreman.tell(task, "use the figures of May", by=BOSS, source="m1")
        backend.gate.set()
        await world.until(task)

    prompts = {r.facts["step"]["title"]: r.prompt for r in backend.asked if "step" in r.facts}
    assert "figures of May" not in prompts["one"]
    assert "figures of May" in prompts["two"]


async def test_a_message_before_the_plan_reaches_the_planner(tmp_path: Path) -> None:
    backend = FakeBackend()
    async with engine(tmp_path, backend, running=False) as world:
        task = await world.add()
        await world.foreman.tell(task, "in French", by=BOSS, source="m1")
    async with engine(tmp_path, backend) as world:
        await world.until(task)

    assert "in French" in backend.asked[0].prompt
    assert backend.done == ["one", "two", "three"]


async def test_a_message_that_came_during_the_last_step_gets_a_step_of_its_own(
    tmp_path: Path,
) -> None:
    backend = Held(steps=("one",))
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        await backend.begun("one")
        await world.foreman.tell(task, "and send it to Ann", by=BOSS, source="m1")
        backend.gate.set()
        view = await world.until(task)

    assert backend.done == ["one", "💬 and send it to Ann"]
    assert view.task.status is TaskStatus.COMPLETED


async def test_a_new_plan_is_made_when_ordered_and_once(tmp_path: Path) -> None:
    plans = iter([plan_of("one", "two", "three"), plan_of("better", "best")])
    backend = Held(on_plan=lambda: next(plans))
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        await backend.begun("one")
        await world.foreman.replan(task, "cheaper please", by=BOSS, source="m1")
        backend.gate.set()
        view = await world.until(task)

    assert backend.done == ["one", "better", "best"]
    assert view.task.replans == 0
    assert "cheaper please" in backend.asked[2].prompt


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_new_plan_keeps_the_steps_that_people_put_in(tmp_path: Path, when: str) -> None:
    plans = iter([plan_of("one", "two"), plan_of("better")])
    backend = Held(on_plan=lambda: next(plans))
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        await backend.begun("one")
        if when == "after":
            await world.foreman.replan(task, "cheaper", by=BOSS, source="m1")
        await world.foreman.inject(task, ["ask Ann", "ask Bob"], by=BOSS, source="m2")
        if when == "before":
            await world.foreman.replan(task, "cheaper", by=BOSS, source="m1")
        backend.gate.set()
        view = await world.until(task)

    assert backend.done == ["one", "ask Ann", "ask Bob", "better"]
    assert [step.title for step in view.steps] == backend.done
    assert "do not repeat them:\n- ask Ann\n- ask Bob" in backend.asked[2].prompt


async def test_a_step_that_a_new_plan_puts_aside_was_never_begun(tmp_path: Path) -> None:
    plans = iter([plan_of("one", "two"), plan_of("better")])
    backend = Held(on_plan=lambda: next(plans))
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        await backend.begun("one")
        await world.foreman.replan(task, "cheaper", by=BOSS, source="m1")
        backend.gate.set()
        await world.until(task)
        aside = (await world.store.graphs.runs(task.id))["s2"]

    assert (aside.status, aside.started_at, aside.ended_at) == (NodeStatus.PENDING, None, None)


async def test_a_new_plan_that_nobody_can_make_leaves_the_old_one(tmp_path: Path) -> None:
    plans = iter([plan_of("one", "two"), BadAnswer("hm")])
    backend = Held(on_plan=lambda: next(plans))
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        await backend.begun("one")
        await world.foreman.replan(task, "", by=BOSS, source="m1")
        backend.gate.set()
        await world.until(task)

    assert backend.done == ["one", "two"]


async def test_three_failures_in_a_row_ask_for_a_new_plan_and_three_more_for_a_person(
    tmp_path: Path,
) -> None:
    plans = iter([plan_of("one", "two"), plan_of("other way")])
    backend = FakeBackend(
        on_plan=lambda: next(plans),
        on_step=lambda t: None if t == "one" else StepAnswer(status="error", summary="no luck"),
    )
    async with engine(tmp_path, backend) as world:
        view = await world.until(await world.add(), TaskStatus.BLOCKED)

    assert backend.done == ["one", *["two"] * 3, *["other way"] * 3]
    assert view.steps[0].status is NodeStatus.DONE
    assert "no luck" in view.task.status_reason


async def test_the_fifth_error_under_one_plan_asks_a_person(tmp_path: Path) -> None:
    failing = iter([True, True, False, True, True, False, True])

    def on_step(_title: str) -> StepAnswer | None:
        return StepAnswer(status="error", summary="again") if next(failing) else None

    backend = FakeBackend(on_step=on_step)
    async with engine(tmp_path, backend) as world:
        view = await world.until(await world.add(), TaskStatus.BLOCKED)
        assert view.task.errors == 5
        await world.foreman.resume(view.task, by=BOSS, source="go")
        backend.on_step = lambda _title: None
        await world.until(view.task, TaskStatus.COMPLETED)


def risky() -> FakeBackend:
    return FakeBackend(steps=("build", "deploy it", "tidy"))


async def test_a_risky_step_waits_and_one_yes_is_for_that_step_alone(tmp_path: Path) -> None:
    backend = risky()
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        approval = await asked(world, task)
        assert backend.done == ["build"]
        assert approval.kind is ApprovalKind.RISK
        await decided(world, approval, approve=True)
        await world.until(task)

    assert backend.done == ["build", "deploy it", "tidy"]


async def test_a_no_leaves_it_to_the_boss_who_is_asked_anew_on_resuming(tmp_path: Path) -> None:
    backend = risky()
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        first = await asked(world, task)
        await decided(world, first, approve=False, reason="not on a Friday")
        view = await world.until(task, TaskStatus.BLOCKED)
        assert "not on a Friday" in view.task.status_reason

        await world.foreman.resume(view.task, by=BOSS, source="go")
        second = await asked(world, task)
        assert second.id != first.id
        await decided(world, second, approve=True)
        await world.until(task)

    assert backend.done == ["build", "deploy it", "tidy"]


async def test_a_persons_step_is_done_by_their_word(tmp_path: Path) -> None:
    plan = PlanAnswer(
        plan="",
        steps=[
            PlanStep(title="draft"),
            PlanStep(title="Sign it", kind="ask"),
            PlanStep(title="file it"),
        ],
    )
    backend = FakeBackend(on_plan=lambda: plan)
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        approval = await asked(world, task)
        assert approval.kind is ApprovalKind.HUMAN
        await decided(world, approval, approve=True, reason="signed in blue")
        view = await world.until(task)

    assert backend.done == ["draft", "file it"]
    assert view.percent == 100
    assert "signed in blue" in backend.asked[-1].prompt


async def broke(
    tmp_path: Path, on: Callable[[FakeBackend], None], *, approve: bool
) -> tuple[FakeBackend, TaskView]:
    backend = FakeBackend(steps=("one", "two"))
    on(backend)
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        approval = await asked(world, task)
        assert approval.kind is ApprovalKind.BUDGET
        await decided(world, approval, approve=approve)
        view = await world.until(task, TaskStatus.COMPLETED, TaskStatus.CANCELLED)
    return backend, view


@pytest.mark.parametrize("where", ["plan", "step"])
async def test_a_cap_is_asked_about_and_the_work_goes_on_where_it_was(
    tmp_path: Path, where: str
) -> None:
    hits = iter([BudgetReached(HIT)])

    def on(backend: FakeBackend) -> None:
        if where == "plan":
            backend.on_plan = lambda: next(hits, None)
        else:
            backend.on_step = lambda title: next(hits, None) if title == "two" else None

    backend, view = await broke(tmp_path, on, approve=True)

    assert view.task.status is TaskStatus.COMPLETED
    assert view.task.errors == 0
    assert backend.done[0] == "one"


async def test_no_more_money_stops_the_task(tmp_path: Path) -> None:
    def on(backend: FakeBackend) -> None:
        backend.on_step = lambda _title: BudgetReached(HIT)

    _, view = await broke(tmp_path, on, approve=False)

    assert view.task.status is TaskStatus.CANCELLED


async def test_the_work_is_written_down_and_a_task_keeps_few_notes(tmp_path: Path) -> None:
    def on_step(title: str) -> StepAnswer:
        return StepAnswer(
            status="done",
            summary=f"did {title}",
            findings=[f"{title} found {n}" for n in range(4)],
            decisions=["x" * 300],
        )

    async with engine(tmp_path, FakeBackend(on_step=on_step)) as world:
        task = await world.add()
        await world.until(task)
        logs = await world.store.logs.latest(task.id, 100)

    kinds = [log.kind for log in logs]
    assert kinds.count(LogKind.FINDING) == 5
    assert kinds.count(LogKind.DECISION) == 3
    assert kinds.count(LogKind.PLAN) == 1
    assert kinds.count(LogKind.PROGRESS) == 3
    assert kinds[-1] is LogKind.MILESTONE
    assert max(len(log.text) for log in logs if log.kind is LogKind.DECISION) == 100


async def test_a_shared_session_is_not_told_again_what_it_holds(tmp_path: Path) -> None:
    backend = FakeBackend()
    async with engine(tmp_path, backend) as world:
        await world.until(await world.add("Compare the three offers " + "in detail " * 50))

    plan, first, _, last = (request.prompt for request in backend.asked)
    assert "Compare the three offers" in last
    assert "did two" not in last
    assert max(len(first), len(last)) < len(plan)


async def test_a_session_grown_too_long_is_left_behind_and_the_next_is_told_everything(
    tmp_path: Path,
) -> None:
    backend = FakeBackend(context=200_000)
    async with engine(tmp_path, backend) as world:
        await world.until(await world.add())

    *_, last = backend.asked
    assert last.history == ()
    assert "did two" in last.prompt


async def test_a_word_on_the_way_that_is_risky_is_asked_about_before_a_step_hears_it(
    tmp_path: Path,
) -> None:
    backend = Held(steps=("one", "two", "three"))
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        await backend.begun("one")
        await world.foreman.tell(task, "and deploy it to production", by=BOSS, source="m1")
        backend.gate.set()
        approval = await asked(world, task)

        assert backend.done == ["one"], "who is at work does not hear it"
        assert (approval.kind, approval.title) == (ApprovalKind.RISK, "two")
        assert "and deploy it to production" in approval.detail

        await decided(world, approval, approve=True)
        await world.until(task, TaskStatus.COMPLETED)

        assert backend.done == ["one", "two", "three"], "the step after it does not ask again"
        assert await approvals_of(world).waiting(by=BOSS, chat=CHAT.id) == ()


async def test_more_said_while_one_word_waits_for_leave_is_asked_about_as_well(
    tmp_path: Path,
) -> None:
    backend = Held(steps=("one", "two"))
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        await backend.begun("one")
        await world.foreman.tell(task, "deploy the draft", by=BOSS, source="m1")
        backend.gate.set()
        first = await asked(world, task)
        await world.foreman.tell(task, "no, deploy everything", by=MATE_IN_CHAT, source="m2")
        await decided(world, first, approve=True)
        async with asyncio.timeout(60):
            while (second := await asked(world, task)).id == first.id:
                await asyncio.sleep(0.005)

        assert backend.done == ["one"]
        assert "deploy everything" in second.detail


@pytest.mark.parametrize(("by", "is_asked"), [(BOSS, False), (MATE_IN_CHAT, True)])
async def test_the_answer_of_who_may_allow_it_to_the_steps_own_question_is_leave_enough(
    tmp_path: Path, by: Person, is_asked: bool
) -> None:
    questions = [StepAnswer(status="blocked", summary="How shall it get there?")]
    backend = FakeBackend(steps=("one",), on_step=lambda _: questions.pop() if questions else None)
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        await world.until(task, TaskStatus.BLOCKED)
        await world.foreman.resume(task, by=by, source="m1", said="deploy it by hand")

        if is_asked:
            assert "deploy it by hand" in (await asked(world, task)).detail
        else:
            await world.until(task, TaskStatus.COMPLETED)
            assert "deploy it by hand" in backend.asked[-1].prompt


async def test_an_answer_to_a_pause_is_no_leave(tmp_path: Path) -> None:
    backend = Held(steps=("one", "two"))
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        await backend.begun("one")
        await world.foreman.pause(task, by=BOSS, source="m1")
        backend.gate.set()
        await world.until(task, TaskStatus.PAUSED)
        await world.foreman.resume(task, by=BOSS, source="m2", said="deploy it")

        assert "deploy it" in (await asked(world, task)).detail


async def test_a_long_task_is_told_whole_once_a_session(tmp_path: Path) -> None:
    """Planning and all steps share one; whoever goes on after a pause is told anew."""
    whole = "Make the handbook. " * 40 + "And mind the gap."
    backend = Held(steps=("one", "two", "three"))
    async with engine(tmp_path, backend) as world:
        task = await world.add(whole)
        await backend.begun("one")
        await world.foreman.pause(task, by=BOSS, source="m1")
        backend.gate.set()
        await world.until(task, TaskStatus.PAUSED)
        await world.foreman.resume(task, by=BOSS, source="m2")
        await world.until(task)

    told = ["And mind the gap." in request.prompt for request in backend.asked]
    assert told == [True, False, True, False]
    assert all("Make the handbook." in request.prompt for request in backend.asked)
