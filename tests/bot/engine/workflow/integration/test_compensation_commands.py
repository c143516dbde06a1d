"""Undoing beside what people order meanwhile, and beside restarts, joins and new plans."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.answer_schemas import PlanAnswer, PlanStep, StepAnswer
from bot.engine.llm.backend import (
    BackendError,
    BudgetExceeded,
    RunPurpose,
    RunRequest,
    RunResult,
)
from bot.engine.workflow.definition import Workflow
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.nodes.join import JoinConfig
from bot.engine.workflow.nodes.registry import NodeType
from storage.records.tasks import EventKind, NodeStatus, Task, TaskStatus, TaskView
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    WorkflowWorld,
    make_graph,
    make_node,
    reached_cap,
    task_node,
    workflow_world,
)
from tests.engine_harness import BOSS, ManualClock
from tests.thoroughness import sampled


def trip(**facts: Any) -> Workflow:
    return make_graph(
        task_node("hotel", on_cancel="no_hotel"),
        task_node("flight", on_cancel="no_flight"),
        task_node("pay", **facts),
        task_node("no_hotel", "drop hotel"),
        task_node("no_flight", "drop flight"),
        "hotel>flight>pay",
    )


def race(*, slow: Any = None, **settings: Any) -> Workflow:
    """`fast` against `first` and then `slow`; `last` and `pay` behind the one that wins."""
    return make_graph(
        make_node("fork", NodeType.PARALLEL),
        task_node("fast", on_cancel="no_fast"),
        task_node("first", on_cancel="no_first"),
        slow or task_node("slow", on_cancel="no_slow"),
        task_node("later"),
        make_node("meet", NodeType.JOIN, JoinConfig(mode="any", cancel_others=True)),
        task_node("last"),
        task_node("pay"),
        *(task_node(f"no_{name}", f"drop {name}") for name in ("fast", "first", "slow")),
        "fork>fast>meet>last>pay",
        "fork>first>slow>later>meet",
        parallel=2,
        **settings,
    )


def undone(backend: PacedBackend) -> list[str]:
    return [title for title in backend.started_steps if title.startswith("drop")]


def cannot_pay() -> PacedBackend:
    backend = PacedBackend()
    backend.fails["pay"] = BackendError("no money")
    return backend


class SlowlyEndingBackend(PacedBackend):
    """Its step `flight` takes until `may_end` to end once it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = asyncio.Event()
        self.cut_off = asyncio.Event()
        self.log: list[str] = []

    async def respond(self, request: RunRequest) -> RunResult:
        title = request.facts["step"]["title"] if request.purpose is RunPurpose.STEP else ""
        self.log.append(title)
        try:
            return await super().respond(request)
        except asyncio.CancelledError:
            if title == "flight":
                self.cut_off.set()
                await self.may_end.wait()
                self.log.append("flight ended")
            raise


async def test_the_cut_off_step_ends_before_it_is_undone_also_with_two_slots(
    tmp_path: Path,
) -> None:
    backend = SlowlyEndingBackend()
    backend.hold("flight")
    async with workflow_world(tmp_path, backend, slots=2) as here:
        made = await here.engine.run_workflow(trip())
        await backend.wait_until_started("flight")
        await here.engine.tasks.stop(made, by=BOSS, source="s:1")
        await backend.cut_off.wait()
        other = await here.engine.create_task("another")
        await here.engine.until(other)
        before = undone(backend)
        backend.may_end.set()
        view = await here.engine.until(made)

    assert before == []
    assert backend.log.index("flight ended") < backend.log.index("drop flight")
    assert view.task.status is TaskStatus.CANCELLED
    assert undone(backend) == ["drop flight", "drop hotel"]


async def test_a_cap_that_is_refused_while_the_task_waits_undoes_what_was_done(
    tmp_path: Path,
) -> None:
    backend = PacedBackend()
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(trip())
        backend.fails["pay"] = BudgetExceeded(reached_cap(made.id))
        await here.engine.until(made, TaskStatus.WAITING)
        (asked,) = await here.open_requests(made, 1)
        await here.decide(asked, approve=False, reason="too dear")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.CANCELLED
    assert undone(backend) == ["drop flight", "drop hotel"]
    assert "too dear" in view.task.status_reason
    assert "Undone: drop flight, drop hotel" in view.task.status_reason


async def test_a_stop_does_not_undo_a_step_that_failed(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.answers["flight"] = StepAnswer(status="blocked", summary="which seat?")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(trip())
        await here.engine.until(made, TaskStatus.BLOCKED)
        await here.engine.tasks.stop(made, by=BOSS, source="s:1")
        await here.engine.until(made)

    assert undone(backend) == ["drop hotel"]


async def test_a_retried_step_that_did_not_begin_again_is_not_undone(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.answers["flight"] = StepAnswer(status="blocked", summary="which seat?")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(trip())
        blocked = await here.engine.until(made, TaskStatus.BLOCKED)
        backend.hold("other")
        other = await here.engine.create_task("other", priority=blocked.task.priority)
        await here.engine.until(other, TaskStatus.RUNNING)
        await here.engine.tasks.retry(made, by=BOSS, source="r:1")
        await here.engine.tasks.stop(made, by=BOSS, source="s:1")
        await here.engine.tasks.stop(other, by=BOSS, source="s:2")
        await here.engine.until(made)

    assert undone(backend) == ["drop hotel"]


async def test_a_person_who_did_not_answer_has_nothing_to_undo(tmp_path: Path) -> None:
    backend = cannot_pay()
    backend.hold("fast")
    asks = make_node("slow", NodeType.HUMAN, HumanConfig(timeout=3600.0), on_cancel="no_slow")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(race(slow=asks))
        await here.wait_for_request(made, "slow")
        backend.release("fast")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.FAILED
    assert undone(backend) == ["drop first", "drop fast"]


async def test_a_retry_leaves_what_a_join_has_undone_and_what_came_after_it(
    tmp_path: Path,
) -> None:
    backend = cannot_pay()
    backend.hold("fast", "slow")
    plan = race()
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await here.wait_for_run(made, "slow", NodeStatus.RUNNING)
        backend.release("fast")
        view = await here.engine.until(made)
        before = list(backend.started_steps)
        backend.fails.clear()
        await here.engine.tasks.retry(view.task, by=BOSS, source="r:1")
        ended = await here.engine.until(made)

    assert undone(backend) == ["drop slow", "drop first", "drop fast"]
    assert ended.task.status is TaskStatus.COMPLETED
    assert backend.started_steps[len(before) :] == ["fast", "last", "pay"]


async def test_a_retry_asks_before_it_repeats_what_must_not_be_repeated(tmp_path: Path) -> None:
    backend = cannot_pay()
    plan = make_graph(
        task_node("hotel", on_cancel="no_hotel"),
        task_node("mail", repeatable=False),
        task_node("pay"),
        task_node("no_hotel", "drop hotel"),
        "hotel>mail>pay",
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        view = await here.engine.until(made)
        backend.fails.clear()
        await here.engine.tasks.retry(view.task, by=BOSS, source="r:1")
        asked = await here.wait_for_request(made, "mail")
        await here.engine.until(made, TaskStatus.WAITING)
        before = backend.started_steps.count("mail")
        await here.decide(asked)
        ended = await here.engine.until(made)

    assert before == 1
    assert ended.task.status is TaskStatus.COMPLETED


async def test_a_new_plan_waits_until_a_lost_branch_is_undone(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("fast", "slow", "drop slow")
    backend.on_plan = lambda: PlanAnswer(plan="Anew.", steps=[PlanStep(title="anew")])
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(race())
        await here.wait_for_run(made, "slow", NodeStatus.RUNNING)
        backend.hold("last")
        backend.release("fast")
        await backend.wait_until_started("drop slow", "last")
        await here.engine.tasks.replan(made, "otherwise", by=BOSS, source="p:1")
        backend.release("last")
        await here.wait_for_run(made, "last", NodeStatus.DONE)
        backend.release("drop slow")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert undone(backend) == ["drop slow", "drop first"]
    assert "anew" in backend.started_steps
    assert {step.title for step in view.steps} >= {"↩️ drop slow", "↩️ drop first"}


async def test_a_second_stop_says_what_is_left(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("pay", "drop hotel")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(trip())
        await backend.wait_until_started("pay")
        await here.engine.tasks.stop(made, by=BOSS, source="s:1")
        await here.wait_for_run(made, "@undo:hotel", NodeStatus.RUNNING)
        stopped = await here.engine.tasks.stop(made, by=BOSS, source="s:2")
        told = await here.event_texts(made, EventKind.CANCELLED)

    assert stopped.status is TaskStatus.CANCELLED
    assert "Undone: drop flight" in stopped.status_reason
    assert "Not undone: drop hotel" in stopped.status_reason
    assert told == [stopped.status_reason]


async def test_the_first_stop_of_a_failing_run_lets_it_be_undone(tmp_path: Path) -> None:
    backend = cannot_pay()
    backend.hold("drop flight")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(trip())
        await backend.wait_until_started("drop flight")
        stopped = await here.engine.tasks.stop(made, by=BOSS, source="s:1")
        again = await here.engine.tasks.stop(made, by=BOSS, source="s:1")
        backend.release("drop flight")
        view = await here.engine.until(made)

    assert not stopped.status.is_final
    assert not again.status.is_final
    assert view.task.status is TaskStatus.FAILED
    assert undone(backend) == ["drop flight", "drop hotel"]


async def test_the_second_stop_of_a_failing_run_ends_it(tmp_path: Path) -> None:
    backend = cannot_pay()
    backend.hold("drop flight")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(trip())
        await backend.wait_until_started("drop flight")
        await here.engine.tasks.stop(made, by=BOSS, source="s:1")
        stopped = await here.engine.tasks.stop(made, by=BOSS, source="s:2")

    assert stopped.status is TaskStatus.CANCELLED
    assert "couldn't complete this" in stopped.status_reason
    assert "Not undone: drop flight, drop hotel" in stopped.status_reason


async def test_time_without_a_running_program_does_not_count_for_undoing(tmp_path: Path) -> None:
    clock, first, second = ManualClock(), cannot_pay(), cannot_pay()
    first.hold("drop flight")
    async with workflow_world(tmp_path, first, clock=clock) as here:
        made = await here.engine.run_workflow(trip())
        await first.wait_until_started("drop flight")
    clock.advance(hours=5)
    async with workflow_world(tmp_path, second, clock=clock) as here:
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.FAILED
    assert undone(second) == ["drop flight", "drop hotel"]
    assert "Not undone" not in view.task.status_reason


@pytest.mark.parametrize("nth", range(1, 13, sampled(1, 3)))
async def test_a_stop_undoes_each_step_once_whenever_death_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    clock, death = ManualClock(), CrashAfterCommit(nth)
    first, second = PacedBackend(), PacedBackend()
    first.hold("pay")
    second.hold("pay")

    async def stop(here: WorkflowWorld, made: Task) -> TaskView:
        await here.engine.tasks.stop(made, by=BOSS, source="s:1")
        return await here.engine.until(made)

    async with workflow_world(tmp_path, first, clock=clock) as here:
        made = await here.engine.run_workflow(trip())
        await first.wait_until_started("pay")
        with monkeypatch.context() as patched:
            death.install(patched)
            await death.run_until_crash(stop(here, made))
        before = {
            run.path for run in (await here.runs(made)).values() if run.status is NodeStatus.DONE
        }
    async with workflow_world(tmp_path, second, clock=clock) as here:
        # The message is handled again.
        view = await stop(here, made)

    assert view.task.status is TaskStatus.CANCELLED
    assert "Undone: drop flight, drop hotel" in view.task.status_reason
    assert not {path.replace("@undo:", "drop ") for path in before} & {*undone(second)}
    assert {*undone(first), *undone(second)} == {"drop flight", "drop hotel"}
