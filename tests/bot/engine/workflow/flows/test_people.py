"""People in the middle of a workflow: several asked at once, in time or not, about exactly what
would be done."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.llm.base import BudgetReached, CapHit
from bot.engine.workflow.graph import Workflow
from bot.engine.workflow.model.nodes import Human, Loop, NodeType, OnError, OnLimit
from storage.records.approvals import ApprovalState
from storage.records.tasks import EventKind, NodeStatus, TaskStatus
from tests.bot.engine.workflow.flows.world import Flows, Paced, flows, for_each, graph, node, task
from tests.engine_world import BOSS, Clock

HOUR = 3600.0


def two_asked(left: Human | None = None, **facts: OnError) -> Workflow:
    return graph(
        node("fork", NodeType.PARALLEL),
        node("left", NodeType.HUMAN, left, **facts),
        node("right", NodeType.HUMAN),
        task("l2"),
        task("r2"),
        node("both", NodeType.JOIN),
        task("last"),
        "fork>left>l2>both>last",
        "fork>right>r2>both",
        parallel=2,
    )


@pytest.mark.parametrize("first", ["left", "right"])
async def test_two_people_may_decide_in_either_order(tmp_path: Path, first: str) -> None:
    backend = Paced()
    second = "right" if first == "left" else "left"
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_asked())
        asked = {name: await here.asked(made, name) for name in ("left", "right")}
        await here.world.until(made, TaskStatus.WAITING)
        await here.decide(asked[first])
        await backend.begun(f"{first[0]}2")
        await here.world.until(made, TaskStatus.WAITING)
        assert backend.done == [f"{first[0]}2"]
        assert (await here.asked(made, second)).id == asked[second].id
        await here.decide(asked[second])
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == [f"{first[0]}2", f"{second[0]}2", "last"]


async def test_a_decision_is_heard_while_another_branch_runs(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("work")
    plan = graph(
        node("fork", NodeType.PARALLEL),
        task("work"),
        node("ask", NodeType.HUMAN),
        task("after"),
        "fork>work",
        "fork>ask>after",
        parallel=2,
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        await backend.begun("work")
        await here.decide(await here.asked(made, "ask"))
        await backend.begun("after")
        backend.let_go("work")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED


async def test_a_person_is_asked_though_all_hands_are_busy(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("work")
    plan = graph(
        node("fork", NodeType.PARALLEL),
        task("work"),
        node("ask", NodeType.HUMAN),
        task("after"),
        "fork>work",
        "fork>ask>after",
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        await backend.begun("work")
        await here.decide(await here.asked(made, "ask"))
        await here.until_run(made, "ask", "done")
        assert backend.done == ["work"]
        backend.let_go("work")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["work", "after"]


async def test_a_no_while_another_branch_runs_ends_it_when_that_has_ended(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("work")
    plan = graph(
        node("fork", NodeType.PARALLEL),
        task("work"),
        node("ask", NodeType.HUMAN),
        "fork>work",
        "fork>ask",
        parallel=2,
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        await backend.begun("work")
        await here.decide(await here.asked(made, "ask"), approve=False, reason="too early")
        await here.until_run(made, "ask", "failed")
        backend.let_go("work")
        view = await here.world.until(made, TaskStatus.BLOCKED)
        assert "too early" in view.task.status_reason
        await here.world.foreman.resume(view.task, by=BOSS, source="r:1")
        await here.decide(await here.asked(made, "ask"))
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["work"]


@pytest.mark.parametrize("busy", [False, True])
async def test_a_workflow_may_go_on_behind_a_no(tmp_path: Path, busy: bool) -> None:
    backend = Paced()
    plan = graph(
        node("fork", NodeType.PARALLEL),
        task("work"),
        node("ask", NodeType.HUMAN, on_error=OnError.CONTINUE),
        task("yes"),
        task("no"),
        "fork>work",
        "fork>ask",
        "ask>yes ? outputs.ask.approved",
        "ask>no",
        parallel=2,
    )
    if busy:
        backend.hold("work")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        asked = await here.asked(made, "ask")
        if not busy:
            await here.world.until(made, TaskStatus.WAITING)
        await here.decide(asked, approve=False, reason="not now")
        await backend.begun("no")
        if busy:
            backend.let_go("work")
        view = await here.world.until(made)
        run = (await here.runs(made))["ask"]

    assert view.task.status is TaskStatus.COMPLETED
    assert "yes" not in backend.done
    assert "not now" in run.output["error"]


@pytest.mark.parametrize("auto", [True, False])
async def test_who_does_not_decide_in_time_over_a_restart(tmp_path: Path, auto: bool) -> None:
    clock, backend = Clock(), Paced()
    plan = graph(
        node("ask", NodeType.HUMAN, Human(timeout=HOUR, auto_approve=auto)),
        task("after"),
        "ask>after",
    )
    async with flows(tmp_path, backend, clock=clock) as here:
        made = await here.world.run_workflow(plan)
        await here.world.until(made, TaskStatus.WAITING)
        asked = await here.asked(made, "ask")
    clock.pass_by(hours=2)
    async with flows(tmp_path, backend, clock=clock) as here:
        view = await here.world.until(made)
        (left,) = await here.approvals.of_task(made.id)

    assert left.id == asked.id
    assert left.state is ApprovalState.EXPIRED
    assert left.payload["closes"] < left.expires_at.isoformat()
    if auto:
        assert left.reason == "approval.counted"
        assert view.task.status is TaskStatus.COMPLETED
        assert backend.done == ["after"]
    else:
        assert view.task.status is TaskStatus.FAILED
        assert view.task.status_reason == "Nobody decided about “ask” in time."
        assert backend.done == []


async def test_who_decides_in_time_is_heard_and_the_time_is_forgotten(tmp_path: Path) -> None:
    backend = Paced()
    plan = graph(
        node("ask", NodeType.HUMAN, Human(timeout=HOUR)),
        task("after"),
        "ask>after",
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        await here.world.until(made, TaskStatus.WAITING)
        await here.decide(await here.asked(made, "ask"), reason="take the blue one")
        view = await here.world.until(made)
        run = (await here.runs(made))["ask"]

    assert view.task.status is TaskStatus.COMPLETED
    assert run.output["summary"] == "take the blue one"
    assert "take the blue one" in backend.heard("after")


async def test_a_request_lives_as_long_as_its_step_waits(tmp_path: Path) -> None:
    plan = graph(node("ask", NodeType.HUMAN, Human(timeout=30 * 24 * HOUR)))
    async with flows(tmp_path) as here:
        made = await here.world.run_workflow(plan)
        view = await here.world.until(made, TaskStatus.WAITING)
        asked = await here.asked(made, "ask")

    assert view.task.wake_at is not None
    assert asked.expires_at >= view.task.wake_at.replace(microsecond=0)


async def test_a_risky_step_of_a_foreach_is_asked_about_for_each_item(tmp_path: Path) -> None:
    backend = Paced()
    plan = for_each(("blue", "green"), task("ship", "Deploy {{item}}", detail="as {{index}}"))
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        blue = await here.asked(made, "Deploy blue")
        assert blue.detail == "Deploy blue\nas 0"
        await here.world.until(made, TaskStatus.WAITING)
        await here.decide(blue)
        green = await here.asked(made, "Deploy green")
        assert green.detail == "Deploy green\nas 1"
        assert green.command_hash != blue.command_hash
        await here.world.until(made, TaskStatus.WAITING)
        assert backend.done == ["Deploy blue"]
        await here.decide(green)
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["Deploy blue", "Deploy green", "last"]


async def test_a_step_that_wants_leave_whatever_its_words(tmp_path: Path) -> None:
    backend = Paced()
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(graph(task("harmless", auto_wait=True)))
        await here.world.until(made, TaskStatus.WAITING)
        assert backend.done == []
        await here.decide(await here.asked(made, "harmless"))
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED


async def test_a_loop_at_its_limit_asks_whether_to_go_on(tmp_path: Path) -> None:
    backend = Paced()
    limits = Loop(
        mode="while", condition="true", body=("dig",), max_iterations=2, on_limit=OnLimit.ASK
    )
    plan = graph(node("deep", NodeType.LOOP, limits), task("dig"), task("last"), "deep>last")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        title = "“deep” has had its 2 rounds. Go on behind it?"
        await here.world.until(made, TaskStatus.WAITING)
        await here.decide(await here.asked(made, title))
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["dig", "dig", "last"]


async def test_what_nobody_waited_for_is_not_asked_any_more(tmp_path: Path) -> None:
    """A branch that was faster has reached the end: an old card moves nothing."""
    plan = graph(
        node("fork", NodeType.PARALLEL),
        node("slow", NodeType.HUMAN),
        task("fast"),
        node("end", NodeType.END),
        "fork>slow",
        "fork>fast>end",
        parallel=2,
    )
    async with flows(tmp_path) as here:
        made = await here.world.run_workflow(plan)
        view = await here.world.until(made)
        states = [each.state for each in await here.approvals.of_task(made.id)]

    assert view.task.status is TaskStatus.COMPLETED
    assert states == [ApprovalState.EXPIRED]


def _cap(task_id: str) -> CapHit:
    return CapHit(
        scope="task",
        subject=task_id,
        day="",
        cap_micros=1_000_000,
        cap_tokens=0,
        spent_micros=999_999,
        spent_tokens=0,
        until=None,
    )


async def _at_its_cap(here: Flows, backend: Paced, approve: bool) -> TaskStatus:
    """One branch runs, the other has hit the task's cap: what is decided then."""
    plan = graph(
        node("fork", NodeType.PARALLEL),
        task("work"),
        task("buy"),
        "fork>work",
        "fork>buy",
        parallel=2,
    )
    backend.hold("work", "buy")
    made = await here.world.run_workflow(plan)
    await backend.begun("work", "buy")
    backend.fails["buy"] = BudgetReached(_cap(made.id))
    backend.let_go("buy")
    (approval,) = await here.open_requests(made, 1)
    backend.fails.clear()
    await here.decide(approval, approve=approve)
    if approve:
        await here.until_run(made, "buy", "done")
    backend.let_go("work")
    return (await here.world.until(made)).task.status


async def test_money_that_is_granted_while_a_branch_runs_is_spent_at_once(tmp_path: Path) -> None:
    backend = Paced()
    async with flows(tmp_path, backend) as here:
        assert await _at_its_cap(here, backend, approve=True) is TaskStatus.COMPLETED

    assert sorted(backend.done) == ["buy", "buy", "work"]


async def test_money_that_is_refused_while_a_branch_runs_ends_the_task(tmp_path: Path) -> None:
    backend = Paced()
    async with flows(tmp_path, backend) as here:
        assert await _at_its_cap(here, backend, approve=False) is TaskStatus.CANCELLED

    assert sorted(backend.done) == ["buy", "work"]


async def test_a_refused_step_is_no_result_of_its_own(tmp_path: Path) -> None:
    backend = Paced()
    plan = two_asked(None, on_error=OnError.SKIP)
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        await here.world.until(made, TaskStatus.WAITING)
        await here.decide(await here.asked(made, "left"), approve=False)
        await here.until_run(made, "l2", "done")
        await here.decide(await here.asked(made, "right"))
        view = await here.world.until(made)
        runs = await here.runs(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert runs["left"].status is NodeStatus.SKIPPED


async def test_each_request_is_told_once_while_others_run(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("work")
    plan = graph(
        node("fork", NodeType.PARALLEL),
        task("work"),
        node("ask", NodeType.HUMAN),
        "fork>work",
        "fork>ask",
        parallel=2,
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        asked = await here.asked(made, "ask")
        await here.later(seconds=1)
        told = await here.told(made, EventKind.WAITING)
        assert list(told) == [asked.id]
        backend.let_go("work")
        await here.world.until(made, TaskStatus.WAITING)
