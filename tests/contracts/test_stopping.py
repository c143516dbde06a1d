"""A stop that drains: steps end where they can, nothing is run twice, nobody is left in doubt."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from storage.records.tasks import NodeStatus, Priority, TaskStatus
from tests.contracts.lives import Life, Named, add, all_done, status
from tests.engine_world import BOSS, Clock, Engine

RESTARTS = "while Shiftboss restarts"


async def drained(world: Engine) -> None:
    async with asyncio.timeout(60):
        await world.dispatcher.drain()


async def test_a_step_that_ends_in_time_is_kept_and_its_task_goes_on_first(
    life: Life, tmp_path: Path
) -> None:
    backend, clock = Named(), Clock()
    backend.hold("a 1")
    async with life(tmp_path, backend, clock=clock, grace=10.0) as world:
        waiting_first = await add(world, "old", priority=Priority.NORMAL)
        await all_done(world, waiting_first)
        task, other = await add(world, "a"), await add(world, "b")
        await backend.begun("a 1")
        stopping = asyncio.create_task(drained(world))
        await asyncio.sleep(0)
        backend.let_go()
        await stopping
        view = await world.views.view(task.id)

        assert view.task.status is TaskStatus.PENDING
        assert RESTARTS in view.task.status_reason
        assert [step.status for step in view.steps] == [NodeStatus.DONE, NodeStatus.PENDING]
        assert await status(world, other) is TaskStatus.PENDING
    clock.pass_by(minutes=1)
    async with life(tmp_path, backend, clock=clock) as world:
        await all_done(world, task, other)
        assert not (await world.store.tasks.get(task.id)).status_reason

    assert backend.done[2:] == ["a 1", "a 2", "b 1", "b 2"]
    assert backend.cut == []


async def test_a_step_that_does_not_end_in_time_is_cancelled_and_run_again_at_the_next_start(
    life: Life, tmp_path: Path
) -> None:
    backend, clock = Named(), Clock()
    backend.hold("a 2")
    async with life(tmp_path, backend, clock=clock, grace=0.05) as world:
        task = await add(world, "a")
        await backend.begun("a 2")
        await drained(world)
        view = await world.views.view(task.id)

        assert backend.cut == ["a 2"], "the call itself is over when the stop is"
        assert view.task.status is TaskStatus.PENDING
        assert RESTARTS in view.task.status_reason
    backend.gates.clear()
    clock.pass_by(minutes=1)
    async with life(tmp_path, backend, clock=clock) as world:
        await all_done(world, task)

    assert backend.done == ["a 1", "a 2", "a 2"]
    assert backend.ended == ["a 1", "a 2"]


async def test_a_cancelled_step_that_must_not_be_repeated_is_asked_about(
    life: Life, tmp_path: Path
) -> None:
    backend = Named()
    backend.repeatable = False
    backend.hold("a 1")
    async with life(tmp_path, backend, grace=0.05) as world:
        task = await add(world, "a")
        await backend.begun("a 1")
        await drained(world)
        view = await world.views.view(task.id)

    assert view.task.status is TaskStatus.BLOCKED
    assert "a 1" in view.task.status_reason


async def test_nothing_is_started_once_the_stop_has_begun(life: Life, tmp_path: Path) -> None:
    backend = Named()
    async with life(tmp_path, backend, slots=3) as world:
        await drained(world)
        task = await add(world, "a")
        for _ in range(20):
            world.dispatcher.wake()
            await asyncio.sleep(0.001)

        assert await status(world, task) is TaskStatus.PENDING
    assert backend.asked == []


async def test_a_pause_ordered_before_the_stop_stays_a_pause(life: Life, tmp_path: Path) -> None:
    backend, clock = Named(), Clock()
    backend.hold("a 1")
    async with life(tmp_path, backend, clock=clock) as world:
        task = await add(world, "a")
        await backend.begun("a 1")
        await world.foreman.pause(task, by=BOSS, source="p", reason="lunch")
        stopping = asyncio.create_task(drained(world))
        await asyncio.sleep(0)
        backend.let_go()
        await stopping
    async with life(tmp_path, backend, clock=clock) as world:
        view = await world.until(task, TaskStatus.PAUSED)

    assert view.task.status_reason == "lunch"


@pytest.mark.parametrize(("hours", "goes_on"), [(1, True), (13, False)])
@pytest.mark.parametrize("in_time", [True, False])
async def test_what_a_stop_parked_is_only_offered_if_the_next_start_comes_too_late(
    life: Life, tmp_path: Path, hours: int, goes_on: bool, in_time: bool
) -> None:
    backend, clock = Named(), Clock()
    backend.hold("a 1")
    async with life(tmp_path, backend, clock=clock, grace=5.0 if in_time else 0.01) as world:
        task, fresh = await add(world, "a"), await add(world, "b")
        await backend.begun("a 1")
        stopping = asyncio.create_task(drained(world))
        if in_time:
            await asyncio.sleep(0)
            backend.let_go()
        await stopping
    backend.gates.clear()
    clock.pass_by(hours=hours)
    async with life(tmp_path, backend, clock=clock) as world:
        await all_done(world, fresh)
        if goes_on:
            await all_done(world, task)
        else:
            view = await world.until(task, TaskStatus.PAUSED)
            assert view.task.status_reason
            await world.foreman.resume(task, by=BOSS, source="r")
            await all_done(world, task)


async def test_a_stop_without_running_steps_does_not_sit_out_its_grace(
    life: Life, tmp_path: Path
) -> None:
    async with life(tmp_path, Named(), grace=600.0) as world:
        async with asyncio.timeout(60):
            await world.dispatcher.drain()
