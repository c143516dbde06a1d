"""What every dispatcher promises: who runs next, who makes room, who is alone, and who is cut."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from storage.records.tasks import Priority, TaskStatus
from tests.contracts.lives import Life, Named, add, all_done, reasoned, status
from tests.engine_world import BOSS, Clock
from tests.thorough import sampled

MANY = sampled(100, 25)


async def test_the_more_important_runs_first_and_of_equals_the_older(
    life: Life, tmp_path: Path
) -> None:
    backend = Named(steps=1)
    async with life(tmp_path, backend, running=False) as world:
        tasks = [
            await add(world, "a", priority=Priority.NORMAL),
            await add(world, "b", priority=Priority.IMPORTANT),
            await add(world, "c", priority=Priority.URGENT),
            await add(world, "d", priority=Priority.URGENT),
        ]
    async with life(tmp_path, backend) as world:
        await all_done(world, *tasks)

    assert backend.done == ["c 1", "d 1", "b 1", "a 1"]


async def test_interrupted_work_goes_before_new_work_of_its_priority(
    life: Life, tmp_path: Path
) -> None:
    backend = Named()
    backend.hold("old 1")
    async with life(tmp_path, backend) as world:
        older = await add(world, "older", priority=Priority.NORMAL)
        await all_done(world, older)
        old = await add(world, "old")
        await backend.begun("old 1")
        await world.foreman.pause(old, by=BOSS, source="p")
        new = await add(world, "new")
        backend.hold("new 1")
        backend.let_go("old 1")
        await world.until(old, TaskStatus.PAUSED)
        await backend.begun("new 1")
        newer = await add(world, "newer")
        await world.foreman.resume(old, by=BOSS, source="r")
        backend.let_go()
        await all_done(world, old, new, newer)

    assert backend.done[2:] == ["old 1", "new 1", "new 2", "old 2", "newer 1", "newer 2"]


async def test_paused_tasks_resume_before_what_waits_at_their_priority(
    life: Life, tmp_path: Path
) -> None:
    backend, clock = Named(), Clock()
    paused = [f"p{n}" for n in range(MANY)]
    backend.hold(*(f"{name} 1" for name in paused))
    async with life(tmp_path, backend, slots=MANY, clock=clock) as world:
        tasks = [await add(world, name) for name in paused]
        for task in tasks:
            await backend.begun(f"{task.title} 1")
            await world.foreman.pause(task, by=BOSS, source=f"pause {task.id}")
        backend.let_go()
        for task in tasks:
            await world.until(task, TaskStatus.PAUSED)
    begun = len(backend.done)
    clock.pass_by(minutes=1)
    async with life(tmp_path, backend, running=False, clock=clock) as world:
        others = [await add(world, f"new{n}*1") for n in range(10)]
        for task in tasks:
            await world.foreman.resume(task, by=BOSS, source=f"resume {task.id}")
    clock.pass_by(minutes=1)
    async with life(tmp_path, backend, slots=1, clock=clock) as world:
        await all_done(world, *tasks, *others)

    order = backend.done[begun:]
    assert order[:MANY] == [f"{name} 2" for name in paused]
    assert all(name.startswith("new") for name in order[MANY:])


async def test_only_the_strictly_more_important_cuts_in(life: Life, tmp_path: Path) -> None:
    backend = Named()
    backend.hold("first 1")
    async with life(tmp_path, backend) as world:
        first = await add(world, "first", priority=Priority.IMPORTANT)
        await backend.begun("first 1")
        equal = await add(world, "equal", priority=Priority.IMPORTANT)
        less = await add(world, "less", priority=Priority.NORMAL)
        backend.let_go()
        await all_done(world, first, equal, less)

    assert backend.done == ["first 1", "first 2", "equal 1", "equal 2", "less 1", "less 2"]


async def test_a_chain_of_those_who_cut_in_unwinds_in_order(life: Life, tmp_path: Path) -> None:
    backend = Named()
    backend.hold("normal 1", "important 1")
    async with life(tmp_path, backend) as world:
        normal = await add(world, "normal", priority=Priority.NORMAL)
        await backend.begun("normal 1")
        important = await add(world, "important", priority=Priority.IMPORTANT)
        assert "important" in await reasoned(world, normal)
        backend.let_go("normal 1")
        await backend.begun("important 1")
        urgent = await add(world, "urgent", priority=Priority.URGENT)
        assert "urgent" in await reasoned(world, important)
        late = await add(world, "late", priority=Priority.IMPORTANT)
        backend.let_go()
        await all_done(world, normal, important, urgent, late)

    firsts = ["normal 1", "important 1", "urgent 1", "urgent 2", "important 2"]
    assert backend.done == [*firsts, "late 1", "late 2", "normal 2"]


async def test_no_more_run_at_once_than_there_are_slots_and_all_slots_are_used(
    life: Life, tmp_path: Path
) -> None:
    backend = Named(steps=1)
    names = ["a", "b", "c", "d", "e"]
    backend.hold(*(f"{name} 1" for name in names))
    async with life(tmp_path, backend, slots=3) as world:
        tasks = [await add(world, name) for name in names]
        await backend.begun("c 1")
        assert [await status(world, task) for task in tasks] == [
            *[TaskStatus.RUNNING] * 3,
            *[TaskStatus.PENDING] * 2,
        ]
        backend.let_go("b 1")
        await backend.begun("d 1")
        assert "e 1" not in backend.done
        backend.let_go()
        await all_done(world, *tasks)


async def test_one_project_is_worked_on_by_one_task_at_a_time(life: Life, tmp_path: Path) -> None:
    backend = Named(steps=1)
    backend.hold("a 1", "c 1")
    project = str(tmp_path / "project")
    async with life(tmp_path, backend, slots=3) as world:
        first = await add(world, "a", project_dir=project)
        second = await add(world, "b", project_dir=project)
        other = await add(world, "c", project_dir=str(tmp_path / "other"))
        await backend.begun("a 1")
        await backend.begun("c 1")
        assert await status(world, second) is TaskStatus.PENDING
        backend.let_go()
        await all_done(world, first, second, other)

    assert backend.done.index("a 1") < backend.done.index("b 1")


async def test_waking_it_again_and_again_is_harmless(life: Life, tmp_path: Path) -> None:
    backend = Named()
    async with life(tmp_path, backend, slots=3) as world:
        tasks = [await add(world, name) for name in ("a", "b")]
        for _ in range(50):
            world.dispatcher.wake()
            await asyncio.sleep(0)
        await all_done(world, *tasks)

    assert sorted(backend.done) == ["a 1", "a 2", "b 1", "b 2"]


async def test_an_aborted_task_is_really_cancelled_and_its_slot_is_free(
    life: Life, tmp_path: Path
) -> None:
    backend = Named()
    backend.hold("a 1")
    async with life(tmp_path, backend) as world:
        task = await add(world, "a")
        await backend.begun("a 1")
        await world.foreman.stop(task, by=BOSS, source="s")
        await all_done(world, await add(world, "b"))

        assert await status(world, task) is TaskStatus.CANCELLED
    assert backend.cut == ["a 1"]
    assert backend.done == ["a 1", "b 1", "b 2"]


async def test_what_waits_for_its_time_goes_on_when_it_has_come_and_not_before(
    life: Life, tmp_path: Path
) -> None:
    backend = Named()
    async with life(tmp_path, backend, running=False) as world:
        task = await add(world, "a")
        due = world.clock.time.replace(hour=23)
        async with world.db.write() as tx:
            await world.store.tasks.move(tx, task, status=TaskStatus.WAITING, wake_at=due)
        clock = world.clock
    async with life(tmp_path, backend, clock=clock) as world:
        await all_done(world, await add(world, "b"))
        assert await status(world, task) is TaskStatus.WAITING
        clock.time = due
        world.dispatcher.wake()
        await all_done(world, task)


async def test_an_idle_dispatcher_asks_the_store_nothing(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Named()
    async with life(tmp_path, backend) as world:
        await all_done(world, await add(world, "a"))
        loop = asyncio.get_running_loop()
        for _ in range(200):  # whatever the end of the task still leads to
            await asyncio.sleep(0.001)
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

    assert [each for each in timers if each < 10] == [pytest.approx(0.3, abs=0.25)]
