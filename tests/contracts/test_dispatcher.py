"""The contract of every dispatcher: the next task, preemption, exclusive folders, and lost
leases."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from storage.records.tasks import TaskPriority, TaskStatus
from tests.contracts.dispatcher_lives import (
    DispatcherLife,
    NamedStepsBackend,
    add_task,
    task_status,
    wait_for_reason,
    wait_until_done,
)
from tests.engine_harness import BOSS, EngineHarness, ManualClock
from tests.thoroughness import sampled

MANY = sampled(100, 25)


async def test_higher_priority_runs_first_and_equal_priority_by_age(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend = NamedStepsBackend(steps=1)
    async with life(tmp_path, backend, start_dispatcher=False) as world:
        tasks = [
            await add_task(world, "a", priority=TaskPriority.NORMAL),
            await add_task(world, "b", priority=TaskPriority.IMPORTANT),
            await add_task(world, "c", priority=TaskPriority.URGENT),
            await add_task(world, "d", priority=TaskPriority.URGENT),
        ]
    async with life(tmp_path, backend) as world:
        await wait_until_done(world, *tasks)

    assert backend.started_steps == ["c 1", "d 1", "b 1", "a 1"]


async def test_interrupted_work_goes_before_new_work_of_its_priority(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend = NamedStepsBackend()
    backend.hold("old 1")
    async with life(tmp_path, backend) as world:
        older = await add_task(world, "older", priority=TaskPriority.NORMAL)
        await wait_until_done(world, older)
        old = await add_task(world, "old")
        await backend.wait_until_started("old 1")
        await world.tasks.pause(old, by=BOSS, source="p")
        new = await add_task(world, "new")
        backend.hold("new 1")
        backend.release("old 1")
        await world.until(old, TaskStatus.PAUSED)
        await backend.wait_until_started("new 1")
        newer = await add_task(world, "newer")
        await world.tasks.resume(old, by=BOSS, source="r")
        backend.release()
        await wait_until_done(world, old, new, newer)

    assert backend.started_steps[2:] == ["old 1", "new 1", "new 2", "old 2", "newer 1", "newer 2"]


async def test_paused_tasks_resume_before_what_waits_at_their_priority(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend, clock = NamedStepsBackend(), ManualClock()
    paused = [f"p{n}" for n in range(MANY)]
    backend.hold(*(f"{name} 1" for name in paused))
    async with life(tmp_path, backend, slots=MANY, clock=clock) as world:
        tasks = [await add_task(world, name) for name in paused]
        for task in tasks:
            await backend.wait_until_started(f"{task.title} 1")
            await world.tasks.pause(task, by=BOSS, source=f"pause {task.id}")
        backend.release()
        for task in tasks:
            await world.until(task, TaskStatus.PAUSED)
    begun = len(backend.started_steps)
    clock.advance(minutes=1)
    async with life(tmp_path, backend, start_dispatcher=False, clock=clock) as world:
        others = [await add_task(world, f"new{n}*1") for n in range(10)]
        for task in tasks:
            await world.tasks.resume(task, by=BOSS, source=f"resume {task.id}")
    clock.advance(minutes=1)
    async with life(tmp_path, backend, slots=1, clock=clock) as world:
        await wait_until_done(world, *tasks, *others)

    order = backend.started_steps[begun:]
    assert order[:MANY] == [f"{name} 2" for name in paused]
    assert all(name.startswith("new") for name in order[MANY:])


async def test_only_strictly_higher_priority_preempts(life: DispatcherLife, tmp_path: Path) -> None:
    backend = NamedStepsBackend()
    backend.hold("first 1")
    async with life(tmp_path, backend) as world:
        first = await add_task(world, "first", priority=TaskPriority.IMPORTANT)
        await backend.wait_until_started("first 1")
        equal = await add_task(world, "equal", priority=TaskPriority.IMPORTANT)
        less = await add_task(world, "less", priority=TaskPriority.NORMAL)
        backend.release()
        await wait_until_done(world, first, equal, less)

    assert backend.started_steps == ["first 1", "first 2", "equal 1", "equal 2", "less 1", "less 2"]


async def test_nested_preemptions_unwind_in_order(life: DispatcherLife, tmp_path: Path) -> None:
    backend = NamedStepsBackend()
    backend.hold("normal 1", "important 1")
    async with life(tmp_path, backend) as world:
        normal = await add_task(world, "normal", priority=TaskPriority.NORMAL)
        await backend.wait_until_started("normal 1")
        important = await add_task(world, "important", priority=TaskPriority.IMPORTANT)
        assert "important" in await wait_for_reason(world, normal)
        backend.release("normal 1")
        await backend.wait_until_started("important 1")
        urgent = await add_task(world, "urgent", priority=TaskPriority.URGENT)
        assert "urgent" in await wait_for_reason(world, important)
        late = await add_task(world, "late", priority=TaskPriority.IMPORTANT)
        backend.release()
        await wait_until_done(world, normal, important, urgent, late)

    firsts = ["normal 1", "important 1", "urgent 1", "urgent 2", "important 2"]
    assert backend.started_steps == [*firsts, "late 1", "late 2", "normal 2"]


async def test_no_more_run_at_once_than_there_are_slots_and_all_slots_are_used(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend = NamedStepsBackend(steps=1)
    names = ["a", "b", "c", "d", "e"]
    backend.hold(*(f"{name} 1" for name in names))
    async with life(tmp_path, backend, slots=3) as world:
        tasks = [await add_task(world, name) for name in names]
        await backend.wait_until_started("c 1")
        assert [await task_status(world, task) for task in tasks] == [
            *[TaskStatus.RUNNING] * 3,
            *[TaskStatus.PENDING] * 2,
        ]
        backend.release("b 1")
        await backend.wait_until_started("d 1")
        assert "e 1" not in backend.started_steps
        backend.release()
        await wait_until_done(world, *tasks)


async def test_one_project_is_worked_on_by_one_task_at_a_time(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend = NamedStepsBackend(steps=1)
    backend.hold("a 1", "c 1")
    project = str(tmp_path / "project")
    async with life(tmp_path, backend, slots=3) as world:
        first = await add_task(world, "a", project_dir=project)
        second = await add_task(world, "b", project_dir=project)
        other = await add_task(world, "c", project_dir=str(tmp_path / "other"))
        await backend.wait_until_started("a 1")
        await backend.wait_until_started("c 1")
        assert await task_status(world, second) is TaskStatus.PENDING
        backend.release()
        await wait_until_done(world, first, second, other)

    assert backend.started_steps.index("a 1") < backend.started_steps.index("b 1")


async def test_repeated_wakes_are_harmless(life: DispatcherLife, tmp_path: Path) -> None:
    backend = NamedStepsBackend()
    async with life(tmp_path, backend, slots=3) as world:
        tasks = [await add_task(world, name) for name in ("a", "b")]
        for _ in range(50):
            world.dispatcher.wake()
            await asyncio.sleep(0)
        await wait_until_done(world, *tasks)

    assert sorted(backend.started_steps) == ["a 1", "a 2", "b 1", "b 2"]


async def test_an_aborted_task_is_cancelled_and_frees_its_slot(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend = NamedStepsBackend()
    backend.hold("a 1")
    async with life(tmp_path, backend) as world:
        task = await add_task(world, "a")
        await backend.wait_until_started("a 1")
        await world.tasks.stop(task, by=BOSS, source="s")
        await wait_until_done(world, await add_task(world, "b"))

        assert await task_status(world, task) is TaskStatus.CANCELLED
    assert backend.cancelled == ["a 1"]
    assert backend.started_steps == ["a 1", "b 1", "b 2"]


async def test_a_timer_resumes_its_task_when_due_and_not_before(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend = NamedStepsBackend()
    async with life(tmp_path, backend, start_dispatcher=False) as world:
        task = await add_task(world, "a")
        due = world.clock.time.replace(hour=23)
        async with world.db.write() as tx:
            await world.store.tasks.update(tx, task, status=TaskStatus.WAITING, wake_at=due)
        clock = world.clock
    async with life(tmp_path, backend, clock=clock) as world:
        await wait_until_done(world, await add_task(world, "b"))
        assert await task_status(world, task) is TaskStatus.WAITING
        clock.time = due
        world.dispatcher.wake()
        await wait_until_done(world, task)


@pytest.mark.skipif(
    os.environ.get("SHIFTBOSS_TEST_DISPATCHER") == "procrastinate",
    reason="its worker reports every two seconds, and hears by looking ten times a second",
)
async def test_an_idle_dispatcher_does_not_query_the_store(
    life: DispatcherLife, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = NamedStepsBackend()
    async with life(tmp_path, backend) as world:
        await wait_until_done(world, await add_task(world, "a"))
        loop = asyncio.get_running_loop()
        with monkeypatch.context() as patched:
            await _until_quiet(world, patched)
        timers: list[float] = []
        real = loop.call_at

        def call_at(when: float, *args: object, **more: object) -> object:
            timers.append(when - loop.time())
            return real(when, *args, **more)  # type: ignore[arg-type] # handed on as it came

        monkeypatch.setattr(loop, "call_at", call_at)
        asked = world.db.write, world.db.read
        monkeypatch.setattr(world.db, "write", None)
        monkeypatch.setattr(world.db, "read", None)
        await asyncio.sleep(0.3)
        monkeypatch.setattr(world.db, "write", asked[0])
        monkeypatch.setattr(world.db, "read", asked[1])

    assert len([each for each in timers if each < 10]) == 1, "the sleep of this test"


async def _until_quiet(world: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the store was in no use for so many rounds of the loop, however long they take."""
    in_use, quiet_rounds = 0, 0

    def watch(use: Callable[..., AbstractAsyncContextManager[Any]]) -> Callable[..., Any]:
        @asynccontextmanager
        async def watched(*args: Any) -> AsyncGenerator[Any]:
            nonlocal in_use, quiet_rounds
            in_use, quiet_rounds = in_use + 1, 0
            try:
                async with use(*args) as transaction:
                    yield transaction
            finally:
                in_use -= 1

        return watched

    for name in ("read", "write"):
        monkeypatch.setattr(world.db, name, watch(getattr(world.db, name)))
    while quiet_rounds < 40:
        await asyncio.sleep(0.005)
        quiet_rounds = 0 if in_use else quiet_rounds + 1
