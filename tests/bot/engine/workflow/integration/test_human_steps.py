"""People in the middle of a workflow: several asked at once, in time or not, about exactly what
would be done."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.llm.backend import BudgetExceeded
from bot.engine.workflow.definition import OnError, Workflow
from bot.engine.workflow.nodes.contract import OnLimit
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.nodes.loop import LoopConfig
from bot.engine.workflow.nodes.registry import NodeType
from storage.records.approvals import ApprovalState
from storage.records.tasks import EventKind, NodeStatus, TaskStatus
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    WorkflowWorld,
    for_each,
    make_graph,
    make_node,
    reached_cap,
    task_node,
    workflow_world,
)
from tests.engine_harness import BOSS, ManualClock

HOUR = 3600.0


def two_asked(left: HumanConfig | None = None, **facts: OnError) -> Workflow:
    return make_graph(
        make_node("fork", NodeType.PARALLEL),
        make_node("left", NodeType.HUMAN, left, **facts),
        make_node("right", NodeType.HUMAN),
        task_node("l2"),
        task_node("r2"),
        make_node("both", NodeType.JOIN),
        task_node("last"),
        "fork>left>l2>both>last",
        "fork>right>r2>both",
        parallel=2,
    )


@pytest.mark.parametrize("first", ["left", "right"])
async def test_two_people_may_decide_in_either_order(tmp_path: Path, first: str) -> None:
    backend = PacedBackend()
    second = "right" if first == "left" else "left"
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_asked())
        asked = {name: await here.wait_for_request(made, name) for name in ("left", "right")}
        await here.engine.until(made, TaskStatus.WAITING)
        await here.decide(asked[first])
        await backend.wait_until_started(f"{first[0]}2")
        await here.engine.until(made, TaskStatus.WAITING)
        assert backend.started_steps == [f"{first[0]}2"]
        assert (await here.wait_for_request(made, second)).id == asked[second].id
        await here.decide(asked[second])
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == [f"{first[0]}2", f"{second[0]}2", "last"]


async def test_a_decision_is_heard_while_another_branch_runs(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("work")
    plan = make_graph(
        make_node("fork", NodeType.PARALLEL),
        task_node("work"),
        make_node("ask", NodeType.HUMAN),
        task_node("after"),
        "fork>work",
        "fork>ask>after",
        parallel=2,
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await backend.wait_until_started("work")
        await here.decide(await here.wait_for_request(made, "ask"))
        await backend.wait_until_started("after")
        backend.release("work")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED


async def test_a_person_is_asked_though_all_hands_are_busy(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("work")
    plan = make_graph(
        make_node("fork", NodeType.PARALLEL),
        task_node("work"),
        make_node("ask", NodeType.HUMAN),
        task_node("after"),
        "fork>work",
        "fork>ask>after",
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await backend.wait_until_started("work")
        await here.decide(await here.wait_for_request(made, "ask"))
        await here.wait_for_run(made, "ask", "done")
        assert backend.started_steps == ["work"]
        backend.release("work")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["work", "after"]


async def test_a_no_while_another_branch_runs_ends_it_when_that_has_ended(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("work")
    plan = make_graph(
        make_node("fork", NodeType.PARALLEL),
        task_node("work"),
        make_node("ask", NodeType.HUMAN),
        "fork>work",
        "fork>ask",
        parallel=2,
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await backend.wait_until_started("work")
        await here.decide(
            await here.wait_for_request(made, "ask"), approve=False, reason="too early"
        )
        await here.wait_for_run(made, "ask", "failed")
        backend.release("work")
        view = await here.engine.until(made, TaskStatus.BLOCKED)
        assert "too early" in view.task.status_reason
        await here.engine.tasks.resume(view.task, by=BOSS, source="r:1")
        await here.decide(await here.wait_for_request(made, "ask"))
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["work"]


@pytest.mark.parametrize("busy", [False, True])
async def test_a_workflow_may_go_on_behind_a_no(tmp_path: Path, busy: bool) -> None:
    backend = PacedBackend()
    plan = make_graph(
        make_node("fork", NodeType.PARALLEL),
        task_node("work"),
        make_node("ask", NodeType.HUMAN, on_error=OnError.CONTINUE),
        task_node("yes"),
        task_node("no"),
        "fork>work",
        "fork>ask",
        "ask>yes ? outputs.ask.approved",
        "ask>no",
        parallel=2,
    )
    if busy:
        backend.hold("work")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        asked = await here.wait_for_request(made, "ask")
        if not busy:
            await here.engine.until(made, TaskStatus.WAITING)
        await here.decide(asked, approve=False, reason="not now")
        await backend.wait_until_started("no")
        if busy:
            backend.release("work")
        view = await here.engine.until(made)
        run = (await here.runs(made))["ask"]

    assert view.task.status is TaskStatus.COMPLETED
    assert "yes" not in backend.started_steps
    assert "not now" in run.output["error"]


@pytest.mark.parametrize("auto", [True, False])
async def test_who_does_not_decide_in_time_over_a_restart(tmp_path: Path, auto: bool) -> None:
    clock, backend = ManualClock(), PacedBackend()
    plan = make_graph(
        make_node("ask", NodeType.HUMAN, HumanConfig(timeout=HOUR, auto_approve=auto)),
        task_node("after"),
        "ask>after",
    )
    async with workflow_world(tmp_path, backend, clock=clock) as here:
        made = await here.engine.run_workflow(plan)
        await here.engine.until(made, TaskStatus.WAITING)
        asked = await here.wait_for_request(made, "ask")
    clock.advance(hours=2)
    async with workflow_world(tmp_path, backend, clock=clock) as here:
        view = await here.engine.until(made)
        (left,) = await here.approvals.list_by_task(made.id)

    assert left.id == asked.id
    assert left.state is ApprovalState.EXPIRED
    assert left.payload["closes"] < left.expires_at.isoformat()
    if auto:
        assert left.reason == "approval.counted"
        assert view.task.status is TaskStatus.COMPLETED
        assert backend.started_steps == ["after"]
    else:
        assert view.task.status is TaskStatus.FAILED
        assert view.task.status_reason == "“ask” expired without a decision."
        assert backend.started_steps == []


async def test_who_decides_in_time_is_heard_and_the_time_is_forgotten(tmp_path: Path) -> None:
    backend = PacedBackend()
    plan = make_graph(
        make_node("ask", NodeType.HUMAN, HumanConfig(timeout=HOUR)),
        task_node("after"),
        "ask>after",
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await here.engine.until(made, TaskStatus.WAITING)
        await here.decide(await here.wait_for_request(made, "ask"), reason="take the blue one")
        view = await here.engine.until(made)
        run = (await here.runs(made))["ask"]

    assert view.task.status is TaskStatus.COMPLETED
    assert run.output["summary"] == "take the blue one"
    assert "take the blue one" in backend.last_prompt("after")


async def test_a_request_lives_as_long_as_its_step_waits(tmp_path: Path) -> None:
    plan = make_graph(make_node("ask", NodeType.HUMAN, HumanConfig(timeout=30 * 24 * HOUR)))
    async with workflow_world(tmp_path) as here:
        made = await here.engine.run_workflow(plan)
        view = await here.engine.until(made, TaskStatus.WAITING)
        asked = await here.wait_for_request(made, "ask")

    assert view.task.wake_at is not None
    assert asked.expires_at >= view.task.wake_at.replace(microsecond=0)


async def test_a_risky_step_of_a_foreach_is_asked_about_for_each_item(tmp_path: Path) -> None:
    backend = PacedBackend()
    plan = for_each(("blue", "green"), task_node("ship", "Deploy {{item}}", detail="as {{index}}"))
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        blue = await here.wait_for_request(made, "Deploy blue")
        assert blue.detail == "Deploy blue\nas 0"
        await here.engine.until(made, TaskStatus.WAITING)
        await here.decide(blue)
        green = await here.wait_for_request(made, "Deploy green")
        assert green.detail == "Deploy green\nas 1"
        assert green.command_hash != blue.command_hash
        await here.engine.until(made, TaskStatus.WAITING)
        assert backend.started_steps == ["Deploy blue"]
        await here.decide(green)
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["Deploy blue", "Deploy green", "last"]


async def test_a_step_that_wants_leave_whatever_its_words(tmp_path: Path) -> None:
    backend = PacedBackend()
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(make_graph(task_node("harmless", auto_wait=True)))
        await here.engine.until(made, TaskStatus.WAITING)
        assert backend.started_steps == []
        await here.decide(await here.wait_for_request(made, "harmless"))
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED


async def test_a_loop_at_its_limit_asks_whether_to_go_on(tmp_path: Path) -> None:
    backend = PacedBackend()
    limits = LoopConfig(
        mode="while", condition="true", body=("dig",), max_iterations=2, on_limit=OnLimit.ASK
    )
    plan = make_graph(
        make_node("deep", NodeType.LOOP, limits), task_node("dig"), task_node("last"), "deep>last"
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        title = "“deep” reached its limit of 2 rounds. Continue with the next step?"
        await here.engine.until(made, TaskStatus.WAITING)
        await here.decide(await here.wait_for_request(made, title))
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["dig", "dig", "last"]


async def test_what_nobody_waited_for_is_not_asked_any_more(tmp_path: Path) -> None:
    """A branch that was faster has reached the end: an old card moves nothing."""
    plan = make_graph(
        make_node("fork", NodeType.PARALLEL),
        make_node("slow", NodeType.HUMAN),
        task_node("fast"),
        make_node("end", NodeType.END),
        "fork>slow",
        "fork>fast>end",
        parallel=2,
    )
    async with workflow_world(tmp_path) as here:
        made = await here.engine.run_workflow(plan)
        view = await here.engine.until(made)
        states = [each.state for each in await here.approvals.list_by_task(made.id)]

    assert view.task.status is TaskStatus.COMPLETED
    assert states == [ApprovalState.EXPIRED]


async def _run_to_cap(here: WorkflowWorld, backend: PacedBackend, approve: bool) -> TaskStatus:
    """One branch runs, the other has hit the task's cap: what is decided then."""
    plan = make_graph(
        make_node("fork", NodeType.PARALLEL),
        task_node("work"),
        task_node("buy"),
        "fork>work",
        "fork>buy",
        parallel=2,
    )
    backend.hold("work", "buy")
    made = await here.engine.run_workflow(plan)
    await backend.wait_until_started("work", "buy")
    backend.fails["buy"] = BudgetExceeded(reached_cap(made.id))
    backend.release("buy")
    (approval,) = await here.open_requests(made, 1)
    backend.fails.clear()
    await here.decide(approval, approve=approve)
    if approve:
        await here.wait_for_run(made, "buy", "done")
    backend.release("work")
    return (await here.engine.until(made)).task.status


async def test_money_that_is_granted_while_a_branch_runs_is_spent_at_once(tmp_path: Path) -> None:
    backend = PacedBackend()
    async with workflow_world(tmp_path, backend) as here:
        assert await _run_to_cap(here, backend, approve=True) is TaskStatus.COMPLETED

    assert sorted(backend.started_steps) == ["buy", "buy", "work"]


async def test_money_that_is_refused_while_a_branch_runs_ends_the_task(tmp_path: Path) -> None:
    backend = PacedBackend()
    async with workflow_world(tmp_path, backend) as here:
        assert await _run_to_cap(here, backend, approve=False) is TaskStatus.CANCELLED

    assert sorted(backend.started_steps) == ["buy", "work"]


async def test_a_refused_step_is_no_result_of_its_own(tmp_path: Path) -> None:
    backend = PacedBackend()
    plan = two_asked(None, on_error=OnError.SKIP)
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await here.engine.until(made, TaskStatus.WAITING)
        await here.decide(await here.wait_for_request(made, "left"), approve=False)
        await here.wait_for_run(made, "l2", "done")
        await here.decide(await here.wait_for_request(made, "right"))
        view = await here.engine.until(made)
        runs = await here.runs(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert runs["left"].status is NodeStatus.SKIPPED


async def test_each_request_is_told_once_while_others_run(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("work")
    plan = make_graph(
        make_node("fork", NodeType.PARALLEL),
        task_node("work"),
        make_node("ask", NodeType.HUMAN),
        "fork>work",
        "fork>ask",
        parallel=2,
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        asked = await here.wait_for_request(made, "ask")
        await here.advance_clock(seconds=1)
        told = await here.event_texts(made, EventKind.WAITING)
        assert list(told) == [asked.id]
        backend.release("work")
        await here.engine.until(made, TaskStatus.WAITING)
