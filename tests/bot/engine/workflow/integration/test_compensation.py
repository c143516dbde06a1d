"""What a run has done is undone, latest first and once each, when it fails, is stopped, or a join
ends its branch."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import BackendError
from bot.engine.workflow.definition import WorkflowEdge
from bot.engine.workflow.nodes.assign import AssignConfig
from bot.engine.workflow.nodes.join import JoinConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.nodes.shared_settings import VariableAssignment
from storage.records.approvals import ApprovalState
from storage.records.tasks import NodeStatus, TaskStatus, TaskView
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    WorkflowWorld,
    make_graph,
    make_node,
    task_node,
    workflow_world,
)
from tests.engine_harness import BOSS, ManualClock
from tests.thoroughness import sampled
from tests.waiting import WAIT_SECONDS

MAX_COMMITS = 14
COUNTS_UP = VariableAssignment(variable="n", value="variables.n + 1", is_expression=True)
UNDONE = ["drop flight", "drop hotel"]
TRIP = make_graph(
    task_node("hotel", on_cancel="no_hotel"),
    task_node("flight", on_cancel="no_flight"),
    task_node("pay"),
    task_node("no_hotel", "drop hotel"),
    task_node("no_flight", "drop flight"),
    "hotel>flight>pay",
)
RACE = make_graph(
    make_node("fork", NodeType.PARALLEL),
    task_node("fast", on_cancel="no_fast"),
    task_node("first", on_cancel="no_first"),
    task_node("slow", on_cancel="no_slow"),
    task_node("later", on_cancel="no_later"),
    make_node("meet", NodeType.JOIN, JoinConfig(mode="any", cancel_others=True)),
    task_node("last"),
    *(task_node(f"no_{name}", f"drop {name}") for name in ("fast", "first", "slow", "later")),
    "fork>fast>meet>last",
    "fork>first>slow>later>meet",
    parallel=2,
)


def backend_that_cannot_pay() -> PacedBackend:
    backend = PacedBackend()
    backend.fails["pay"] = BackendError("no money")
    return backend


async def until_over(here: WorkflowWorld, source: str = "test:once") -> TaskView:
    made = await here.engine.run_workflow(TRIP, source=source)
    async with asyncio.timeout(WAIT_SECONDS):
        return await here.engine.until(made)


def steps(backend: PacedBackend) -> list[str]:
    return [title for title in backend.started_steps if title.startswith("drop")]


async def test_a_run_that_fails_undoes_what_is_done_latest_first(tmp_path: Path) -> None:
    backend = backend_that_cannot_pay()
    async with workflow_world(tmp_path, backend) as here:
        view = await until_over(here)

    assert view.task.status is TaskStatus.FAILED
    assert steps(backend) == UNDONE
    assert "Undone: drop flight, drop hotel" in view.task.status_reason
    shown = {step.title: step.status for step in view.steps}
    assert shown["↩️ drop flight"] is NodeStatus.DONE
    assert shown["↩️ drop hotel"] is NodeStatus.DONE


async def test_what_cannot_be_undone_is_told_and_hinders_no_other(tmp_path: Path) -> None:
    backend = backend_that_cannot_pay()
    backend.fails["drop flight"] = BackendError("the desk is closed")
    async with workflow_world(tmp_path, backend) as here:
        view = await until_over(here)

    assert steps(backend)[-1] == "drop hotel"
    assert "Undone: drop hotel" in view.task.status_reason
    assert "Not undone: drop flight" in view.task.status_reason


async def test_a_stop_cuts_off_the_running_step_and_undoes_it_too(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("flight", "drop hotel")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(TRIP, source="test:once")
        await here.wait_for_run(made, "flight", NodeStatus.RUNNING)
        stopped = await here.engine.tasks.stop(made, by=BOSS, source="s:1")
        assert not stopped.status.is_final
        await here.wait_for_run(made, "@undo:hotel", NodeStatus.RUNNING)
        told = await here.reload(made)
        backend.release("drop hotel")
        view = (await here.engine.until(made)).task

    assert "Undoing" in told.status_reason
    assert view.status is TaskStatus.CANCELLED
    assert steps(backend) == UNDONE
    assert "pay" not in backend.started_steps


async def test_a_second_stop_ends_it_at_once(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("flight", "drop flight")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(TRIP, source="test:once")
        await here.wait_for_run(made, "flight", NodeStatus.RUNNING)
        await here.engine.tasks.stop(made, by=BOSS, source="s:1")
        await here.wait_for_run(made, "@undo:flight", NodeStatus.RUNNING)
        stopped = await here.engine.tasks.stop(made, by=BOSS, source="s:2")
        view = await here.engine.views.view(made.id)

    assert stopped.status is TaskStatus.CANCELLED
    open_ = {step.title for step in view.steps if step.status is NodeStatus.PENDING}
    assert open_ >= {"↩️ drop flight", "↩️ drop hotel"}


async def test_a_join_undoes_the_branch_that_it_ends_and_the_rest_goes_on(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("fast", "slow")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(RACE, source="test:once")
        await here.wait_for_run(made, "slow", NodeStatus.RUNNING)
        backend.release("fast")
        view = (await here.engine.until(made)).task

    assert view.status is TaskStatus.COMPLETED
    assert steps(backend) == ["drop slow", "drop first"]
    assert "last" in backend.started_steps


async def test_compensations_ask_like_every_step_and_their_time_is_limited(tmp_path: Path) -> None:
    backend, clock = backend_that_cannot_pay(), ManualClock()
    plan = make_graph(
        task_node("hotel", on_cancel="no_hotel"),
        task_node("pay"),
        task_node("no_hotel", "drop hotel", auto_wait=True),
        "hotel>pay",
        compensation_timeout=60.0,
    )
    async with workflow_world(tmp_path, backend, clock=clock) as here:
        made = await here.engine.run_workflow(plan, source="test:once")
        asked = await here.wait_for_request(made, "drop hotel")
        await here.advance_clock(seconds=61)
        view = (await here.engine.until(made)).task
        after = [each.state for each in await here.approvals.list_by_task(made.id)]

    assert asked.path == "@undo:hotel"
    assert view.status is TaskStatus.FAILED
    assert "Not undone: drop hotel" in view.status_reason
    assert ApprovalState.WAITING not in after
    assert not steps(backend)


async def test_a_retry_does_again_what_was_undone(tmp_path: Path) -> None:
    backend = backend_that_cannot_pay()
    async with workflow_world(tmp_path, backend) as here:
        view = await until_over(here)
        backend.fails.clear()
        await here.engine.tasks.retry(view.task, by=BOSS, source="r:1")
        ended = (await here.engine.until(view.task)).task
        runs = await here.runs(view.task)

    assert ended.status is TaskStatus.COMPLETED
    assert backend.started_steps[-3:] == ["hotel", "flight", "pay"]
    assert not [path for path in runs if path.startswith(("@undo", "@ending"))]


@pytest.mark.parametrize("nth", range(3, MAX_COMMITS + 1, sampled(1, 4)))
async def test_whenever_death_comes_each_is_undone_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    clock, death = ManualClock(), CrashAfterCommit(nth)
    first, second = backend_that_cannot_pay(), backend_that_cannot_pay()
    async with workflow_world(tmp_path, first, clock=clock) as here:
        with monkeypatch.context() as patched:
            death.install(patched)
            await death.run_until_crash(until_over(here))
        stored = await here.engine.store.tasks.list_recent(1)
        before = [
            run.path
            for task in stored
            for run in (await here.runs(task)).values()
            if run.path.startswith("@undo") and run.status is NodeStatus.DONE
        ]
    async with workflow_world(tmp_path, second, clock=clock) as here:
        view = await until_over(here)
        runs = await here.runs(view.task)

    assert view.task.status is TaskStatus.FAILED
    assert {path for path, run in runs.items() if run.path.startswith("@undo")} == {
        "@undo:hotel",
        "@undo:flight",
    }
    again = {"@undo:hotel": "drop hotel", "@undo:flight": "drop flight"}
    assert not {again[path] for path in before} & {*steps(second)}
    assert {*steps(first), *steps(second)} == {*UNDONE}


async def test_what_must_not_be_undone_twice_asks_after_a_crash(tmp_path: Path) -> None:
    plan = make_graph(
        task_node("hotel", on_cancel="no_hotel"),
        task_node("pay"),
        task_node("no_hotel", "drop hotel", repeatable=False),
        "hotel>pay",
    )
    clock, first, second = ManualClock(), backend_that_cannot_pay(), backend_that_cannot_pay()
    first.hold("drop hotel")
    async with workflow_world(tmp_path, first, clock=clock) as here:
        made = await here.engine.run_workflow(plan, source="test:once")
        await here.wait_for_run(made, "@undo:hotel", NodeStatus.RUNNING)
        await first.wait_until_started("drop hotel")

    async with workflow_world(tmp_path, second, clock=clock) as here:
        asking = await here.engine.until(made, TaskStatus.BLOCKED)
        before = steps(second)
        await here.engine.tasks.resume(asking.task, by=BOSS, source="r:1")
        ended = await here.engine.until(made)

    assert "drop hotel" in asking.task.status_reason
    assert (before, steps(second)) == ([], ["drop hotel"])
    assert ended.task.status is TaskStatus.FAILED


async def test_a_compensation_that_people_refuse_hinders_no_other(tmp_path: Path) -> None:
    plan = make_graph(
        task_node("hotel", on_cancel="no_hotel"),
        task_node("flight", on_cancel="no_flight"),
        task_node("pay"),
        task_node("no_hotel", "drop hotel"),
        task_node("no_flight", "drop flight", auto_wait=True),
        "hotel>flight>pay",
    )
    backend = backend_that_cannot_pay()
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan, source="test:once")
        asked = await here.wait_for_request(made, "drop flight")
        await here.engine.until(made, TaskStatus.WAITING)
        await here.decide(asked, approve=False, reason="no")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.FAILED
    assert steps(backend) == ["drop hotel"]


async def test_each_round_is_undone_with_its_own_output(tmp_path: Path) -> None:
    backend = backend_that_cannot_pay()
    refs = iter(("R1", "R2", "R3", "R4"))
    backend.on_step = lambda title: (
        StepAnswer(status="done", summary=f"ref: {next(refs)}") if title == "book" else None
    )
    plan = make_graph(
        task_node("book", on_cancel="no_book"),
        make_node("count", NodeType.ASSIGN, AssignConfig(assignments=(COUNTS_UP,))),
        task_node("pay"),
        task_node("no_book", "drop {{outputs.book.result}} of {{variables.n}}"),
        "book>count>pay",
        WorkflowEdge(source="count", target="book", condition="variables.n < 2", max_loops=3),
        variables={"n": 0},
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan, source="test:once")
        view = await here.engine.until(made)

    assert steps(backend) == ["drop ref: R2 of 1", "drop ref: R1 of 0"]
    assert "Undone: drop ref: R2 of 1, drop ref: R1 of 0" in view.task.status_reason
