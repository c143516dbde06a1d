"""Whoever lost a task cannot write to it, whoever died loses nothing, and no clock matters."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.workflow.store import LEASE
from storage.errors import LostLease
from storage.records.tasks import Lease, Priority, TaskStatus
from tests.contracts.lives import Life, Named, add, all_done, status
from tests.engine_world import BOSS, Clock


async def test_the_late_result_of_one_who_lost_the_task_is_refused(
    life: Life, tmp_path: Path
) -> None:
    backend, clock = Named(), Clock()
    backend.hold("a 1")
    async with life(tmp_path, backend, clock=clock) as world:
        task = await add(world, "a")
        await backend.begun("a 1")
        held = await world.store.tasks.get(task.id)
        lost = Lease(task_id=held.id, epoch=held.epoch)
        await world.foreman.stop(task, by=BOSS, source="s")
        await world.foreman.retry(task, by=BOSS, source="r")
        backend.let_go()
        await all_done(world, task)
        for _ in range(100):
            with pytest.raises(LostLease):
                async with world.db.write() as tx:
                    await world.store.queue.fence(tx, lost, until=clock())

    assert backend.cut == ["a 1"]


async def test_a_death_loses_no_task_and_repeats_no_finished_step(
    life: Life, tmp_path: Path
) -> None:
    backend, clock = Named(steps=3), Clock()
    names = ("a", "b", "c")
    for number in (1, 2, 3):
        backend.hold(*(f"{name} {number}" for name in names))
    for number in (1, 2, 3):
        async with life(tmp_path, backend, slots=3, clock=clock) as world:
            for name in names:
                await add(world, name)
            for name in names:
                await backend.begun(f"{name} {number}")
        # Killed in the middle of a step of each; from now on that one goes through.
        backend.let_go(*(f"{name} {number}" for name in names))
        clock.pass_by(minutes=1)
    async with life(tmp_path, backend, slots=3, clock=clock) as world:
        await all_done(world, *[await add(world, name) for name in names])

    assert sorted(backend.ended) == [f"{name} {number}" for name in names for number in (1, 2, 3)]


@pytest.mark.parametrize("jump", [timedelta(days=-1), timedelta(days=365)])
async def test_a_clock_that_jumps_while_work_runs_changes_nothing(
    life: Life, tmp_path: Path, jump: timedelta
) -> None:
    backend, clock = Named(), Clock()
    backend.hold("a 1")
    async with life(tmp_path, backend, clock=clock) as world:
        first, second = await add(world, "a"), await add(world, "b")
        await backend.begun("a 1")
        clock.time += jump
        backend.let_go()
        third = await add(world, "c", priority=Priority.NORMAL)
        await all_done(world, first, second, third)

    assert sorted(backend.ended) == ["a 1", "a 2", "b 1", "b 2", "c 1", "c 2"]


async def test_a_clock_set_back_before_a_restart_is_no_reason_to_ask(
    life: Life, tmp_path: Path
) -> None:
    backend, clock = Named(), Clock()
    backend.hold("a 1")
    async with life(tmp_path, backend, clock=clock) as world:
        task = await add(world, "a")
        await backend.begun("a 1")
    backend.gates.clear()
    clock.pass_by(days=-1)
    async with life(tmp_path, backend, clock=clock) as world:
        await all_done(world, task)


async def test_who_was_queued_by_a_clock_a_year_ahead_still_waits_no_longer_than_others(
    life: Life, tmp_path: Path
) -> None:
    clock = Clock()
    async with life(tmp_path, Named(), clock=clock, running=False) as world:

        async def claim() -> str:
            async with world.db.write() as tx:
                queue = world.store.queue
                task = await queue.claim(
                    tx, owner="x", now=clock(), lease=LEASE, patience=timedelta(hours=12)
                )
            assert task is not None
            return task.title

        clock.pass_by(days=365)
        await add(world, "ahead", priority=Priority.NORMAL)
        clock.pass_by(days=-365)
        started = []
        for hour in range(16):
            await add(world, f"urgent {hour}", priority=Priority.URGENT)
            await add(world, f"urgent too {hour}", priority=Priority.URGENT)
            started.append(await claim())
            clock.pass_by(hours=1)

    assert "ahead" in started[12:15]


async def test_long_waiting_is_over_with_an_order_of_the_boss(life: Life, tmp_path: Path) -> None:
    clock = Clock()
    async with life(tmp_path, Named(), clock=clock, running=False) as world:
        task = await add(world, "a", priority=Priority.NORMAL)
        other = await add(world, "b", priority=Priority.NORMAL)
        clock.pass_by(hours=13)
        async with world.db.write() as tx:
            await world.store.queue.claim(
                tx, owner="x", now=clock(), lease=LEASE, patience=timedelta(hours=12)
            )
        assert (await world.store.tasks.get(other.id)).rank == 1
        await world.foreman.set_priority(other, Priority.IMPORTANT, by=BOSS, source="p")
        async with world.db.write() as tx:
            await world.store.queue.claim(
                tx, owner="x", now=clock(), lease=LEASE, patience=timedelta(hours=12)
            )

        assert await status(world, task) is TaskStatus.RUNNING
        assert (await world.store.tasks.get(other.id)).rank == Priority.IMPORTANT.rank
