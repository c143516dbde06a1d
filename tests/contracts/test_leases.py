"""Whoever lost a task cannot write to it, whoever died loses nothing, and no clock matters."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.workflow.task_store import LEASE_DURATION
from storage.errors import LostLease
from storage.records.tasks import TaskLease, TaskPriority, TaskStatus
from tests.contracts.dispatcher_lives import (
    DispatcherLife,
    NamedStepsBackend,
    add_task,
    task_status,
    wait_until_done,
)
from tests.engine_harness import BOSS, ManualClock


async def test_a_late_result_from_a_worker_that_lost_its_lease_is_refused(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend, clock = NamedStepsBackend(), ManualClock()
    backend.hold("a 1")
    async with life(tmp_path, backend, clock=clock) as world:
        task = await add_task(world, "a")
        await backend.wait_until_started("a 1")
        held = await world.store.tasks.get(task.id)
        lost = TaskLease(task_id=held.id, epoch=held.epoch)
        await world.tasks.stop(task, by=BOSS, source="s")
        await world.tasks.retry(task, by=BOSS, source="r")
        backend.release()
        await wait_until_done(world, task)
        for _ in range(100):
            with pytest.raises(LostLease):
                async with world.db.write() as tx:
                    await world.store.queue.fence(tx, lost, until=clock())

    assert backend.cancelled == ["a 1"]


async def test_finished_steps_are_not_repeated_after_a_crash(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend, clock = NamedStepsBackend(steps=3), ManualClock()
    names = ("a", "b", "c")
    for number in (1, 2, 3):
        backend.hold(*(f"{name} {number}" for name in names))
    for number in (1, 2, 3):
        async with life(tmp_path, backend, slots=3, clock=clock) as world:
            for name in names:
                await add_task(world, name)
            for name in names:
                await backend.wait_until_started(f"{name} {number}")
        # Killed in the middle of a step of each; from now on that one goes through.
        backend.release(*(f"{name} {number}" for name in names))
        clock.advance(minutes=1)
    async with life(tmp_path, backend, slots=3, clock=clock) as world:
        await wait_until_done(world, *[await add_task(world, name) for name in names])

    assert sorted(backend.ended) == [f"{name} {number}" for name in names for number in (1, 2, 3)]


@pytest.mark.parametrize("jump", [timedelta(days=-1), timedelta(days=365)])
async def test_a_clock_jump_during_work_changes_nothing(
    life: DispatcherLife, tmp_path: Path, jump: timedelta
) -> None:
    backend, clock = NamedStepsBackend(), ManualClock()
    backend.hold("a 1")
    async with life(tmp_path, backend, clock=clock) as world:
        first, second = await add_task(world, "a"), await add_task(world, "b")
        await backend.wait_until_started("a 1")
        clock.time += jump
        backend.release()
        third = await add_task(world, "c", priority=TaskPriority.NORMAL)
        await wait_until_done(world, first, second, third)

    assert sorted(backend.ended) == ["a 1", "a 2", "b 1", "b 2", "c 1", "c 2"]


async def test_a_clock_set_back_before_a_restart_does_not_ask_for_confirmation(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend, clock = NamedStepsBackend(), ManualClock()
    backend.hold("a 1")
    async with life(tmp_path, backend, clock=clock) as world:
        task = await add_task(world, "a")
        await backend.wait_until_started("a 1")
    backend.gates.clear()
    clock.advance(days=-1)
    async with life(tmp_path, backend, clock=clock) as world:
        await wait_until_done(world, task)


async def test_a_task_queued_by_a_clock_a_year_ahead_waits_no_longer_than_others(
    life: DispatcherLife, tmp_path: Path
) -> None:
    clock = ManualClock()
    async with life(tmp_path, NamedStepsBackend(), clock=clock, start_dispatcher=False) as world:

        async def claim() -> str:
            async with world.db.write() as tx:
                queue = world.store.queue
                task = await queue.claim(
                    tx,
                    owner="x",
                    now=clock(),
                    lease=LEASE_DURATION,
                    aging_after=timedelta(hours=12),
                )
            assert task is not None
            return task.title

        clock.advance(days=365)
        await add_task(world, "ahead", priority=TaskPriority.NORMAL)
        clock.advance(days=-365)
        started = []
        for hour in range(16):
            await add_task(world, f"urgent {hour}", priority=TaskPriority.URGENT)
            await add_task(world, f"urgent too {hour}", priority=TaskPriority.URGENT)
            started.append(await claim())
            clock.advance(hours=1)

    assert "ahead" in started[12:15]


async def test_a_command_for_a_long_waiting_task_ends_its_wait(
    life: DispatcherLife, tmp_path: Path
) -> None:
    clock = ManualClock()
    async with life(tmp_path, NamedStepsBackend(), clock=clock, start_dispatcher=False) as world:
        task = await add_task(world, "a", priority=TaskPriority.NORMAL)
        other = await add_task(world, "b", priority=TaskPriority.NORMAL)
        clock.advance(hours=13)
        async with world.db.write() as tx:
            await world.store.queue.claim(
                tx, owner="x", now=clock(), lease=LEASE_DURATION, aging_after=timedelta(hours=12)
            )
        assert (await world.store.tasks.get(other.id)).rank == 1
        await world.tasks.set_priority(other, TaskPriority.IMPORTANT, by=BOSS, source="p")
        async with world.db.write() as tx:
            await world.store.queue.claim(
                tx, owner="x", now=clock(), lease=LEASE_DURATION, aging_after=timedelta(hours=12)
            )

        assert await task_status(world, task) is TaskStatus.RUNNING
        assert (await world.store.tasks.get(other.id)).rank == TaskPriority.IMPORTANT.rank
