"""A stop that drains: steps end where they can, nothing is run twice, nobody is left in doubt."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from storage.records.tasks import NodeStatus, TaskPriority, TaskStatus
from tests.contracts.dispatcher_lives import (
    DispatcherLife,
    NamedStepsBackend,
    add_task,
    task_status,
    wait_until_done,
)
from tests.engine_harness import BOSS, EngineHarness, ManualClock
from tests.waiting import WAIT_SECONDS

RESTARTS = "while Shiftboss restarts"


async def shut_down(world: EngineHarness) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        await world.dispatcher.drain()


async def test_a_step_finished_during_draining_is_kept_and_its_task_resumes_first(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend, clock = NamedStepsBackend(), ManualClock()
    backend.hold("a 1")
    async with life(tmp_path, backend, clock=clock, grace=10.0) as world:
        waiting_first = await add_task(world, "old", priority=TaskPriority.NORMAL)
        await wait_until_done(world, waiting_first)
        task, other = await add_task(world, "a"), await add_task(world, "b")
        await backend.wait_until_started("a 1")
        stopping = asyncio.create_task(shut_down(world))
        await asyncio.sleep(0)
        backend.release()
        await stopping
        view = await world.views.view(task.id)

        assert view.task.status is TaskStatus.PENDING
        assert RESTARTS in view.task.status_reason
        assert [step.status for step in view.steps] == [NodeStatus.DONE, NodeStatus.PENDING]
        assert await task_status(world, other) is TaskStatus.PENDING
    clock.advance(minutes=1)
    async with life(tmp_path, backend, clock=clock) as world:
        await wait_until_done(world, task, other)
        assert not (await world.store.tasks.get(task.id)).status_reason

    assert backend.started_steps[2:] == ["a 1", "a 2", "b 1", "b 2"]
    assert backend.cancelled == []


async def test_a_step_that_does_not_end_in_time_is_cancelled_and_run_again_at_the_next_start(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend, clock = NamedStepsBackend(), ManualClock()
    backend.hold("a 2")
    async with life(tmp_path, backend, clock=clock, grace=0.05) as world:
        task = await add_task(world, "a")
        await backend.wait_until_started("a 2")
        await shut_down(world)
        view = await world.views.view(task.id)

        assert backend.cancelled == ["a 2"], "the call itself is over when the stop is"
        assert view.task.status is TaskStatus.PENDING
        assert RESTARTS in view.task.status_reason
    backend.gates.clear()
    clock.advance(minutes=1)
    async with life(tmp_path, backend, clock=clock) as world:
        await wait_until_done(world, task)

    assert backend.started_steps == ["a 1", "a 2", "a 2"]
    assert backend.ended == ["a 1", "a 2"]


async def test_a_cancelled_step_that_must_not_be_repeated_is_asked_about(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend = NamedStepsBackend()
    backend.repeatable = False
    backend.hold("a 1")
    async with life(tmp_path, backend, grace=0.05) as world:
        task = await add_task(world, "a")
        await backend.wait_until_started("a 1")
        await shut_down(world)
        view = await world.views.view(task.id)

    assert view.task.status is TaskStatus.BLOCKED
    assert "a 1" in view.task.status_reason


async def test_no_step_starts_while_draining(life: DispatcherLife, tmp_path: Path) -> None:
    backend = NamedStepsBackend()
    async with life(tmp_path, backend, slots=3) as world:
        await shut_down(world)
        task = await add_task(world, "a")
        for _ in range(20):
            world.dispatcher.wake()
            await asyncio.sleep(0.001)

        assert await task_status(world, task) is TaskStatus.PENDING
    assert backend.requests == []


async def test_a_pause_requested_before_the_stop_stays_a_pause(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend, clock = NamedStepsBackend(), ManualClock()
    backend.hold("a 1")
    async with life(tmp_path, backend, clock=clock) as world:
        task = await add_task(world, "a")
        await backend.wait_until_started("a 1")
        await world.tasks.pause(task, by=BOSS, source="p", reason="lunch")
        stopping = asyncio.create_task(shut_down(world))
        await asyncio.sleep(0)
        backend.release()
        await stopping
    async with life(tmp_path, backend, clock=clock) as world:
        view = await world.until(task, TaskStatus.PAUSED)

    assert view.task.status_reason == "lunch"


@pytest.mark.parametrize(("hours", "goes_on"), [(1, True), (13, False)])
@pytest.mark.parametrize("in_time", [True, False])
async def test_a_stopped_task_is_only_offered_if_the_next_start_comes_too_late(
    life: DispatcherLife, tmp_path: Path, hours: int, goes_on: bool, in_time: bool
) -> None:
    backend, clock = NamedStepsBackend(), ManualClock()
    backend.hold("a 1")
    async with life(tmp_path, backend, clock=clock, grace=5.0 if in_time else 0.01) as world:
        task, fresh = await add_task(world, "a"), await add_task(world, "b")
        await backend.wait_until_started("a 1")
        stopping = asyncio.create_task(shut_down(world))
        if in_time:
            await asyncio.sleep(0)
            backend.release()
        await stopping
    backend.gates.clear()
    clock.advance(hours=hours)
    async with life(tmp_path, backend, clock=clock) as world:
        await wait_until_done(world, fresh)
        if goes_on:
            await wait_until_done(world, task)
        else:
            view = await world.until(task, TaskStatus.PAUSED)
            assert view.task.status_reason
            await world.tasks.resume(task, by=BOSS, source="r")
            await wait_until_done(world, task)


async def test_a_stop_without_running_steps_skips_the_grace_period(
    life: DispatcherLife, tmp_path: Path
) -> None:
    async with life(tmp_path, NamedStepsBackend(), grace=600.0) as world:
        async with asyncio.timeout(WAIT_SECONDS):
            await world.dispatcher.drain()
