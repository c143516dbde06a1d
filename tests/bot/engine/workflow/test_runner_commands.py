"""Commands of people to a running task, and requests of the work to people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.engine.agent.budget import grant_cap_extension
from bot.engine.llm.answer_schemas import PlanAnswer, PlanStep, StepAnswer
from bot.engine.llm.backend import BudgetExceeded, InvalidAnswer, ReachedCap
from bot.engine.tasks.approvals import TaskApprovalEffects
from storage.approvals import ApprovalRepo
from storage.errors import WrongState
from storage.records.approvals import Approval, ApprovalKind
from storage.records.people import Language, Person
from storage.records.task_logs import LogKind
from storage.records.tasks import NodeStatus, Task, TaskStatus, TaskView
from tests.engine_harness import (
    BOSS,
    CHAT,
    MATE,
    EngineHarness,
    FakeBackend,
    make_decision_recorder,
    make_plan,
    make_undoing,
    run_engine,
)
from tests.waiting import WAIT_SECONDS

MATE_IN_CHAT = replace(MATE, id=BOSS.id)
"""Somebody who may move the task, and allow nothing."""

HIT = ReachedCap(
    scope="task",
    subject="t",
    day="",
    cap_micros=1000,
    cap_tokens=0,
    spent_micros=990,
    spent_tokens=0,
    until=None,
)


def held_backend(**facts: Any) -> FakeBackend:
    """Its first step waits."""
    backend = FakeBackend(**facts)
    backend.hold("one")
    return backend


def approvals_of(world: EngineHarness) -> ApprovalRepo:
    async def english(_task: Task) -> Language:
        return Language.ENGLISH

    async def name(_person: object) -> str:
        return "Boss"

    decisions = TaskApprovalEffects(
        store=world.store,
        language_of=english,
        name_of=name,
        now=world.clock,
        undoing=make_undoing(world.store, world.clock),
        grant_budget=grant_cap_extension,
        tool_decisions=make_decision_recorder(world.db, world.clock),
    )
    return ApprovalRepo(world.db, now=world.clock, decision_handlers=decisions.consequences)


async def wait_for_approval(world: EngineHarness, task: Task) -> Approval:
    await world.until(task, TaskStatus.WAITING)
    waiting = await approvals_of(world).list_waiting(by=BOSS, chat=CHAT.id)
    assert len(waiting) == 1
    return waiting[0]


async def decide(
    world: EngineHarness, approval: Approval, *, approve: bool, reason: str = ""
) -> None:
    await approvals_of(world).decide(
        approval, approve=approve, by=BOSS, source=f"press:{approval.id}", reason=reason
    )
    world.dispatcher.wake()


async def test_a_step_put_in_runs_next_and_the_one_under_way_is_not_touched(
    tmp_path: Path,
) -> None:
    backend = held_backend()
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await backend.wait_until_started("one")
        await world.tasks.inject(task, ("extra a", "extra b"), by=BOSS, source="m1")
        await world.tasks.inject(task, ("extra a", "extra b"), by=BOSS, source="m1")
        backend.release()
        view = await world.until(task)

    assert backend.started_steps == ["one", "extra a", "extra b", "two", "three"]
    assert view.percent == 100


async def test_a_step_cannot_be_put_into_what_is_over_or_has_no_plan(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await world.create_task()
        with pytest.raises(WrongState):
            await world.tasks.inject(task, ("x",), by=BOSS, source="m1")
        await world.tasks.stop(task, by=BOSS, source="m2")
        with pytest.raises(WrongState):
            await world.tasks.send_message(task, "x", by=BOSS, source="m3")


async def test_a_message_reaches_the_next_step(tmp_path: Path) -> None:
    backend = held_backend()
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await backend.wait_until_started("one")
        await world.tasks.send_message(task, "use the figures of May", by=BOSS, source="m1")
        backend.release()
        await world.until(task)

    prompts = {r.facts["step"]["title"]: r.prompt for r in backend.requests if "step" in r.facts}
    assert "figures of May" not in prompts["one"]
    assert "figures of May" in prompts["two"]


async def test_a_message_before_the_plan_reaches_the_planner(tmp_path: Path) -> None:
    backend = FakeBackend()
    async with run_engine(tmp_path, backend, start_dispatcher=False) as world:
        task = await world.create_task()
        await world.tasks.send_message(task, "in French", by=BOSS, source="m1")
    async with run_engine(tmp_path, backend) as world:
        await world.until(task)

    assert "in French" in backend.requests[0].prompt
    assert backend.started_steps == ["one", "two", "three"]


async def test_a_message_that_came_during_the_last_step_gets_a_step_of_its_own(
    tmp_path: Path,
) -> None:
    backend = held_backend(steps=("one",))
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await backend.wait_until_started("one")
        await world.tasks.send_message(task, "and send it to Ann", by=BOSS, source="m1")
        backend.release()
        view = await world.until(task)

    assert backend.started_steps == ["one", "💬 and send it to Ann"]
    assert view.task.status is TaskStatus.COMPLETED


async def test_what_people_say_during_the_last_step_of_a_plan_with_an_end_gets_a_step(
    tmp_path: Path,
) -> None:
    plan = """{"nodes": [{"id": "a", "name": "one"}, {"id": "b", "name": "two"},
        {"id": "c", "name": "three"}, {"id": "over", "type": "end"}],
        "edges": [{"from": "a", "to": "b", "condition": "outputs.a.x == 1"},
        {"from": "a", "to": "c"}, {"from": "b", "to": "over"}, {"from": "c", "to": "over"}]}"""
    told = StepAnswer(status="done", summary="x: 2")
    backend = FakeBackend(on_plan=lambda: PlanAnswer(workflow=plan), on_step=lambda _: told)
    (held,) = backend.hold("three")
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await backend.wait_until_started("three")
        await world.tasks.send_message(task, "in French", by=BOSS, source="m1")
        held.set()
        view = await world.until(task)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["one", "three", "💬 in French"]


async def test_a_new_plan_is_made_when_ordered_and_once(tmp_path: Path) -> None:
    plans = iter([make_plan("one", "two", "three"), make_plan("better", "best")])
    backend = held_backend(on_plan=lambda: next(plans))
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await backend.wait_until_started("one")
        await world.tasks.replan(task, "cheaper please", by=BOSS, source="m1")
        backend.release()
        view = await world.until(task)

    assert backend.started_steps == ["one", "better", "best"]
    assert view.task.replans == 0
    assert "cheaper please" in backend.requests[2].prompt


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_new_plan_keeps_the_steps_that_people_put_in(tmp_path: Path, when: str) -> None:
    plans = iter([make_plan("one", "two"), make_plan("better")])
    backend = held_backend(on_plan=lambda: next(plans))
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await backend.wait_until_started("one")
        if when == "after":
            await world.tasks.replan(task, "cheaper", by=BOSS, source="m1")
        await world.tasks.inject(task, ["ask Ann", "ask Bob"], by=BOSS, source="m2")
        if when == "before":
            await world.tasks.replan(task, "cheaper", by=BOSS, source="m1")
        backend.release()
        view = await world.until(task)

    assert backend.started_steps == ["one", "ask Ann", "ask Bob", "better"]
    assert [step.title for step in view.steps] == backend.started_steps
    assert "do not repeat them:\n- ask Ann\n- ask Bob" in backend.requests[2].prompt


async def test_a_step_that_a_new_plan_puts_aside_was_never_begun(tmp_path: Path) -> None:
    plans = iter([make_plan("one", "two"), make_plan("better")])
    backend = held_backend(on_plan=lambda: next(plans))
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await backend.wait_until_started("one")
        await world.tasks.replan(task, "cheaper", by=BOSS, source="m1")
        backend.release()
        await world.until(task)
        aside = (await world.store.graphs.list_runs(task.id))["s2"]

    assert (aside.status, aside.started_at, aside.ended_at) == (NodeStatus.PENDING, None, None)


async def test_a_new_plan_that_nobody_can_make_leaves_the_old_one(tmp_path: Path) -> None:
    plans = iter([make_plan("one", "two"), InvalidAnswer("hm")])
    backend = held_backend(on_plan=lambda: next(plans))
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await backend.wait_until_started("one")
        await world.tasks.replan(task, "", by=BOSS, source="m1")
        backend.release()
        await world.until(task)

    assert backend.started_steps == ["one", "two"]


async def test_three_failures_in_a_row_ask_for_a_new_plan_and_three_more_for_a_person(
    tmp_path: Path,
) -> None:
    plans = iter([make_plan("one", "two"), make_plan("other way")])
    backend = FakeBackend(
        on_plan=lambda: next(plans),
        on_step=lambda t: None if t == "one" else StepAnswer(status="error", summary="no luck"),
    )
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task(), TaskStatus.BLOCKED)

    assert backend.started_steps == ["one", *["two"] * 3, *["other way"] * 3]
    assert view.steps[0].status is NodeStatus.DONE
    assert "no luck" in view.task.status_reason


async def test_the_fifth_error_under_one_plan_asks_a_person(tmp_path: Path) -> None:
    failing = iter([True, True, False, True, True, False, True])

    def on_step(_title: str) -> StepAnswer | None:
        return StepAnswer(status="error", summary="again") if next(failing) else None

    backend = FakeBackend(on_step=on_step)
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task(), TaskStatus.BLOCKED)
        assert view.task.errors == 5
        await world.tasks.resume(view.task, by=BOSS, source="go")
        backend.on_step = lambda _title: None
        await world.until(view.task, TaskStatus.COMPLETED)


def risky_backend() -> FakeBackend:
    return FakeBackend(steps=("build", "deploy it", "tidy"))


async def test_a_risky_step_waits_and_one_yes_is_for_that_step_alone(tmp_path: Path) -> None:
    backend = risky_backend()
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        approval = await wait_for_approval(world, task)
        assert backend.started_steps == ["build"]
        assert approval.kind is ApprovalKind.RISK
        await decide(world, approval, approve=True)
        await world.until(task)

    assert backend.started_steps == ["build", "deploy it", "tidy"]


async def test_a_no_leaves_it_to_the_boss_who_is_asked_anew_on_resuming(tmp_path: Path) -> None:
    backend = risky_backend()
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        first = await wait_for_approval(world, task)
        await decide(world, first, approve=False, reason="not on a Friday")
        view = await world.until(task, TaskStatus.BLOCKED)
        assert "not on a Friday" in view.task.status_reason

        await world.tasks.resume(view.task, by=BOSS, source="go")
        second = await wait_for_approval(world, task)
        assert second.id != first.id
        await decide(world, second, approve=True)
        await world.until(task)

    assert backend.started_steps == ["build", "deploy it", "tidy"]


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
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        approval = await wait_for_approval(world, task)
        assert approval.kind is ApprovalKind.HUMAN
        await decide(world, approval, approve=True, reason="signed in blue")
        view = await world.until(task)

    assert backend.started_steps == ["draft", "file it"]
    assert view.percent == 100
    assert "signed in blue" in backend.requests[-1].prompt


async def run_to_cap(
    tmp_path: Path, on: Callable[[FakeBackend], None], *, approve: bool
) -> tuple[FakeBackend, TaskView]:
    backend = FakeBackend(steps=("one", "two"))
    on(backend)
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        approval = await wait_for_approval(world, task)
        assert approval.kind is ApprovalKind.BUDGET
        await decide(world, approval, approve=approve)
        view = await world.until(task, TaskStatus.COMPLETED, TaskStatus.CANCELLED)
    return backend, view


@pytest.mark.parametrize("where", ["plan", "step"])
async def test_a_cap_is_asked_about_and_the_work_goes_on_where_it_was(
    tmp_path: Path, where: str
) -> None:
    hits = iter([BudgetExceeded(HIT)])

    def on(backend: FakeBackend) -> None:
        if where == "plan":
            backend.on_plan = lambda: next(hits, None)
        else:
            backend.on_step = lambda title: next(hits, None) if title == "two" else None

    backend, view = await run_to_cap(tmp_path, on, approve=True)

    assert view.task.status is TaskStatus.COMPLETED
    assert view.task.errors == 0
    assert backend.started_steps[0] == "one"


async def test_no_more_money_stops_the_task(tmp_path: Path) -> None:
    def on(backend: FakeBackend) -> None:
        backend.on_step = lambda _title: BudgetExceeded(HIT)

    _, view = await run_to_cap(tmp_path, on, approve=False)

    assert view.task.status is TaskStatus.CANCELLED


async def test_the_work_is_written_down_and_a_task_keeps_few_notes(tmp_path: Path) -> None:
    def on_step(title: str) -> StepAnswer:
        return StepAnswer(
            status="done",
            summary=f"did {title}",
            findings=[f"{title} found {n}" for n in range(4)],
            decisions=["x" * 300],
        )

    async with run_engine(tmp_path, FakeBackend(on_step=on_step)) as world:
        task = await world.create_task()
        await world.until(task)
        logs = await world.store.logs.list_latest(task.id, 100)

    kinds = [log.kind for log in logs]
    assert kinds.count(LogKind.FINDING) == 5
    assert kinds.count(LogKind.DECISION) == 3
    assert kinds.count(LogKind.PLAN) == 1
    assert kinds.count(LogKind.PROGRESS) == 3
    assert kinds[-1] is LogKind.MILESTONE
    assert max(len(log.text) for log in logs if log.kind is LogKind.DECISION) == 100


async def test_a_shared_session_is_not_told_again_what_it_holds(tmp_path: Path) -> None:
    backend = FakeBackend()
    async with run_engine(tmp_path, backend) as world:
        await world.until(await world.create_task("Compare the three offers " + "in detail " * 50))

    plan, first, _, last = (request.prompt for request in backend.requests)
    assert "Compare the three offers" in last
    assert "did two" not in last
    assert max(len(first), len(last)) < len(plan)


async def test_a_session_grown_too_long_is_left_behind_and_the_next_is_told_everything(
    tmp_path: Path,
) -> None:
    backend = FakeBackend(context=200_000)
    async with run_engine(tmp_path, backend) as world:
        await world.until(await world.create_task())

    *_, last = backend.requests
    assert last.history == ()
    assert "did two" in last.prompt


async def test_a_word_on_the_way_that_is_risky_is_asked_about_before_a_step_hears_it(
    tmp_path: Path,
) -> None:
    backend = held_backend(steps=("one", "two", "three"))
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await backend.wait_until_started("one")
        await world.tasks.send_message(task, "and deploy it to production", by=BOSS, source="m1")
        backend.release()
        approval = await wait_for_approval(world, task)

        assert backend.started_steps == ["one"], "who is at work does not hear it"
        assert (approval.kind, approval.title) == (ApprovalKind.RISK, "two")
        assert "and deploy it to production" in approval.detail

        await decide(world, approval, approve=True)
        await world.until(task, TaskStatus.COMPLETED)

        assert backend.started_steps == ["one", "two", "three"], (
            "the step after it does not ask again"
        )
        assert await approvals_of(world).list_waiting(by=BOSS, chat=CHAT.id) == ()


async def test_more_said_while_one_word_waits_for_leave_is_asked_about_as_well(
    tmp_path: Path,
) -> None:
    backend = held_backend(steps=("one", "two"))
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await backend.wait_until_started("one")
        await world.tasks.send_message(task, "deploy the draft", by=BOSS, source="m1")
        backend.release()
        first = await wait_for_approval(world, task)
        await world.tasks.send_message(task, "no, deploy everything", by=MATE_IN_CHAT, source="m2")
        await decide(world, first, approve=True)
        async with asyncio.timeout(WAIT_SECONDS):
            while (second := await wait_for_approval(world, task)).id == first.id:
                await asyncio.sleep(0.005)

        assert backend.started_steps == ["one"]
        assert "deploy everything" in second.detail


@pytest.mark.parametrize(("by", "is_asked"), [(BOSS, False), (MATE_IN_CHAT, True)])
async def test_the_answer_of_who_may_allow_it_to_the_steps_own_question_is_leave_enough(
    tmp_path: Path, by: Person, is_asked: bool
) -> None:
    questions = [StepAnswer(status="blocked", summary="How shall it get there?")]
    backend = FakeBackend(steps=("one",), on_step=lambda _: questions.pop() if questions else None)
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await world.until(task, TaskStatus.BLOCKED)
        await world.tasks.resume(task, by=by, source="m1", answer="deploy it by hand")

        if is_asked:
            assert "deploy it by hand" in (await wait_for_approval(world, task)).detail
        else:
            await world.until(task, TaskStatus.COMPLETED)
            assert "deploy it by hand" in backend.requests[-1].prompt


async def test_an_answer_to_a_pause_is_no_leave(tmp_path: Path) -> None:
    backend = held_backend(steps=("one", "two"))
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await backend.wait_until_started("one")
        await world.tasks.pause(task, by=BOSS, source="m1")
        backend.release()
        await world.until(task, TaskStatus.PAUSED)
        await world.tasks.resume(task, by=BOSS, source="m2", answer="deploy it")

        assert "deploy it" in (await wait_for_approval(world, task)).detail


async def test_a_long_task_is_told_whole_once_a_session(tmp_path: Path) -> None:
    """Planning and all steps share one; whoever goes on after a pause is told anew."""
    whole = "Make the handbook. " * 40 + "And mind the gap."
    backend = held_backend(steps=("one", "two", "three"))
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task(whole)
        await backend.wait_until_started("one")
        await world.tasks.pause(task, by=BOSS, source="m1")
        backend.release()
        await world.until(task, TaskStatus.PAUSED)
        await world.tasks.resume(task, by=BOSS, source="m2")
        await world.until(task)

    told = ["And mind the gap." in request.prompt for request in backend.requests]
    assert told == [True, False, True, False]
    assert all("Make the handbook." in request.prompt for request in backend.requests)
