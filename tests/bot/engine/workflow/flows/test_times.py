"""Rests of a workflow: kept in the store, they cost no slot and end when the clock says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from bot.engine.workflow.model.nodes import Delay, Human, NodeType, Schedule
from storage.records.tasks import TaskStatus
from tests.bot.engine.workflow.flows.world import Paced, flows, for_each, graph, node, task
from tests.engine_world import BOSS, START, Clock

DAY = 86_400.0
RESTED = graph(
    task("before"),
    node("rest", NodeType.DELAY, Delay(seconds=2 * DAY)),
    task("after"),
    "before>rest>after",
)


async def test_a_rest_gives_its_slot_back_and_says_until_when(tmp_path: Path) -> None:
    backend = Paced()
    async with flows(tmp_path, backend, slots=1) as here:
        made = await here.world.run_workflow(RESTED)
        view = await here.world.until(made, TaskStatus.WAITING)
        assert view.task.wake_at is not None
        assert view.task.wake_at - START > timedelta(days=2) - timedelta(minutes=1)
        assert view.task.status_reason.startswith("Waits until")
        other = await here.world.run_workflow(graph(task("other")))
        assert (await here.world.until(other)).task.status is TaskStatus.COMPLETED
        assert (await here.again(made)).status is TaskStatus.WAITING
        await here.later(days=2, minutes=1)
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["before", "other", "after"]


async def test_a_rest_goes_on_by_itself_at_the_next_start(tmp_path: Path) -> None:
    clock, backend = Clock(), Paced()
    async with flows(tmp_path, backend, clock=clock) as here:
        made = await here.world.run_workflow(RESTED)
        before = await here.world.until(made, TaskStatus.WAITING)
    async with flows(tmp_path, backend, clock=clock) as here:
        await here.later(days=1)
        view = await here.world.views.view(made.id)
        assert view.task.status is TaskStatus.WAITING
        assert view.task.wake_at == before.task.wake_at
    clock.pass_by(days=3)
    async with flows(tmp_path, backend, clock=clock) as here:
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["before", "after"]


async def test_a_time_of_the_clock_is_waited_for_over_a_restart(tmp_path: Path) -> None:
    clock, backend = Clock(), Paced()
    plan = graph(
        node("nine", NodeType.SCHEDULE, Schedule(cron="0 9 * * *", timezone="Asia/Shanghai")),
        task("after"),
        "nine>after",
    )
    async with flows(tmp_path, backend, clock=clock) as here:
        made = await here.world.run_workflow(plan)
        view = await here.world.until(made, TaskStatus.WAITING)
        # START is 17:00 in Shanghai.
        assert view.task.wake_at == datetime(2026, 1, 6, 1, 0, tzinfo=UTC)
    clock.pass_until(datetime(2026, 1, 6, 1, 1, tzinfo=UTC))
    async with flows(tmp_path, backend, clock=clock) as here:
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["after"]


async def test_a_rest_beside_a_step_ends_in_time(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("work")
    plan = graph(
        node("fork", NodeType.PARALLEL),
        task("work"),
        node("rest", NodeType.DELAY, Delay(seconds=DAY)),
        task("after"),
        "fork>work",
        "fork>rest>after",
        parallel=2,
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        await backend.begun("work")
        await here.later(days=1, minutes=1)
        await backend.begun("after")
        backend.let_go("work")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["work", "after"]


async def test_a_rest_in_each_round_is_its_own(tmp_path: Path) -> None:
    backend = Paced()
    plan = for_each(
        "ab",
        task("call", "call {{item}}"),
        node("rest", NodeType.DELAY, Delay(seconds=DAY)),
        "call>rest",
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        await here.until_run(made, "each[0]/rest", "waiting")
        await here.world.until(made, TaskStatus.WAITING)
        assert backend.done == ["call a"]
        await here.later(days=1, minutes=1)
        await here.until_run(made, "each[1]/rest", "waiting")
        await here.world.until(made, TaskStatus.WAITING)
        await here.later(days=1, minutes=1)
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["call a", "call b", "last"]


async def test_a_pause_outlasts_a_rest(tmp_path: Path) -> None:
    backend = Paced()
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(RESTED)
        view = await here.world.until(made, TaskStatus.WAITING)
        await here.world.foreman.pause(view.task, by=BOSS, source="p:1")
        await here.later(days=3)
        view = await here.world.views.view(made.id)
        assert view.task.status is TaskStatus.PAUSED
        await here.world.foreman.resume(view.task, by=BOSS, source="r:1")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["before", "after"]


async def test_resumed_too_early_it_rests_on(tmp_path: Path) -> None:
    backend = Paced()
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(RESTED)
        before = await here.world.until(made, TaskStatus.WAITING)
        await here.world.foreman.pause(before.task, by=BOSS, source="p:1")
        await here.world.foreman.resume(before.task, by=BOSS, source="r:1")
        view = await here.world.until(made, TaskStatus.WAITING)

    assert view.task.wake_at == before.task.wake_at
    assert backend.done == ["before"]


async def test_the_time_of_a_whole_workflow_runs_out_while_it_rests(tmp_path: Path) -> None:
    plan = graph(node("ask", NodeType.HUMAN, Human()), timeout=3600.0)
    late = graph(
        node("rest", NodeType.DELAY, Delay(seconds=DAY)),
        task("after"),
        "rest>after",
        timeout=3600.0,
    )
    async with flows(tmp_path) as here:
        made = await here.world.run_workflow(late)
        await here.world.until(made, TaskStatus.WAITING)
        await here.later(hours=2)
        view = await here.world.until(made)
        assert view.task.status is TaskStatus.FAILED
        asked = await here.world.run_workflow(plan)
        await here.world.until(asked, TaskStatus.WAITING)
        await here.later(hours=2)
        view = await here.world.until(asked)

    assert view.task.status is TaskStatus.FAILED
    assert view.task.status_reason == "The whole workflow has used up its time."
