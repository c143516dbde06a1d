"""Rests of a workflow: kept in the store, they cost no slot and end when the clock says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from bot.engine.workflow.nodes.delay import DelayConfig
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.nodes.schedule import ScheduleConfig
from storage.records.tasks import TaskStatus
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    for_each,
    make_graph,
    make_node,
    task_node,
    workflow_world,
)
from tests.engine_harness import BOSS, START, ManualClock

DAY = 86_400.0
DELAYED_PLAN = make_graph(
    task_node("before"),
    make_node("rest", NodeType.DELAY, DelayConfig(seconds=2 * DAY)),
    task_node("after"),
    "before>rest>after",
)


async def test_a_rest_gives_its_slot_back_and_says_until_when(tmp_path: Path) -> None:
    backend = PacedBackend()
    async with workflow_world(tmp_path, backend, slots=1) as here:
        made = await here.engine.run_workflow(DELAYED_PLAN)
        view = await here.engine.until(made, TaskStatus.WAITING)
        assert view.task.wake_at is not None
        assert view.task.wake_at - START > timedelta(days=2) - timedelta(minutes=1)
        assert view.task.status_reason.startswith("Waiting until")
        other = await here.engine.run_workflow(make_graph(task_node("other")))
        assert (await here.engine.until(other)).task.status is TaskStatus.COMPLETED
        assert (await here.reload(made)).status is TaskStatus.WAITING
        await here.advance_clock(days=2, minutes=1)
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["before", "other", "after"]


async def test_a_rest_goes_on_by_itself_at_the_next_start(tmp_path: Path) -> None:
    clock, backend = ManualClock(), PacedBackend()
    async with workflow_world(tmp_path, backend, clock=clock) as here:
        made = await here.engine.run_workflow(DELAYED_PLAN)
        before = await here.engine.until(made, TaskStatus.WAITING)
    async with workflow_world(tmp_path, backend, clock=clock) as here:
        await here.advance_clock(days=1)
        view = await here.engine.views.view(made.id)
        assert view.task.status is TaskStatus.WAITING
        assert view.task.wake_at == before.task.wake_at
    clock.advance(days=3)
    async with workflow_world(tmp_path, backend, clock=clock) as here:
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["before", "after"]


async def test_a_time_of_the_clock_is_waited_for_over_a_restart(tmp_path: Path) -> None:
    clock, backend = ManualClock(), PacedBackend()
    plan = make_graph(
        make_node(
            "nine", NodeType.SCHEDULE, ScheduleConfig(cron="0 9 * * *", timezone="Asia/Shanghai")
        ),
        task_node("after"),
        "nine>after",
    )
    async with workflow_world(tmp_path, backend, clock=clock) as here:
        made = await here.engine.run_workflow(plan)
        view = await here.engine.until(made, TaskStatus.WAITING)
        # START is 17:00 in Shanghai.
        assert view.task.wake_at == datetime(2026, 1, 6, 1, 0, tzinfo=UTC)
    clock.advance_to(datetime(2026, 1, 6, 1, 1, tzinfo=UTC))
    async with workflow_world(tmp_path, backend, clock=clock) as here:
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["after"]


async def test_a_rest_beside_a_step_ends_in_time(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("work")
    plan = make_graph(
        make_node("fork", NodeType.PARALLEL),
        task_node("work"),
        make_node("rest", NodeType.DELAY, DelayConfig(seconds=DAY)),
        task_node("after"),
        "fork>work",
        "fork>rest>after",
        parallel=2,
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await backend.wait_until_started("work")
        await here.advance_clock(days=1, minutes=1)
        await backend.wait_until_started("after")
        backend.release("work")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["work", "after"]


async def test_a_rest_in_each_round_is_its_own(tmp_path: Path) -> None:
    backend = PacedBackend()
    plan = for_each(
        "ab",
        task_node("call", "call {{item}}"),
        make_node("rest", NodeType.DELAY, DelayConfig(seconds=DAY)),
        "call>rest",
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await here.wait_for_run(made, "each[0]/rest", "waiting")
        await here.engine.until(made, TaskStatus.WAITING)
        assert backend.started_steps == ["call a"]
        await here.advance_clock(days=1, minutes=1)
        await here.wait_for_run(made, "each[1]/rest", "waiting")
        await here.engine.until(made, TaskStatus.WAITING)
        await here.advance_clock(days=1, minutes=1)
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["call a", "call b", "last"]


async def test_a_pause_outlasts_a_rest(tmp_path: Path) -> None:
    backend = PacedBackend()
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(DELAYED_PLAN)
        view = await here.engine.until(made, TaskStatus.WAITING)
        await here.engine.tasks.pause(view.task, by=BOSS, source="p:1")
        await here.advance_clock(days=3)
        view = await here.engine.views.view(made.id)
        assert view.task.status is TaskStatus.PAUSED
        await here.engine.tasks.resume(view.task, by=BOSS, source="r:1")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["before", "after"]


async def test_resumed_too_early_it_rests_on(tmp_path: Path) -> None:
    backend = PacedBackend()
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(DELAYED_PLAN)
        before = await here.engine.until(made, TaskStatus.WAITING)
        await here.engine.tasks.pause(before.task, by=BOSS, source="p:1")
        await here.engine.tasks.resume(before.task, by=BOSS, source="r:1")
        view = await here.engine.until(made, TaskStatus.WAITING)

    assert view.task.wake_at == before.task.wake_at
    assert backend.started_steps == ["before"]


async def test_the_time_of_a_whole_workflow_runs_out_while_it_rests(tmp_path: Path) -> None:
    plan = make_graph(make_node("ask", NodeType.HUMAN, HumanConfig()), timeout=3600.0)
    late = make_graph(
        make_node("rest", NodeType.DELAY, DelayConfig(seconds=DAY)),
        task_node("after"),
        "rest>after",
        timeout=3600.0,
    )
    async with workflow_world(tmp_path) as here:
        made = await here.engine.run_workflow(late)
        await here.engine.until(made, TaskStatus.WAITING)
        await here.advance_clock(hours=2)
        view = await here.engine.until(made)
        assert view.task.status is TaskStatus.FAILED
        asked = await here.engine.run_workflow(plan)
        await here.engine.until(asked, TaskStatus.WAITING)
        await here.advance_clock(hours=2)
        view = await here.engine.until(asked)

    assert view.task.status is TaskStatus.FAILED
    assert view.task.status_reason == "The workflow ran out of time."
