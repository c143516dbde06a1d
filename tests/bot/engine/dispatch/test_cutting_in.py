"""Urgent work cuts in at a step boundary; what it interrupted goes on by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

from storage.records.tasks import EventKind, Priority, Task, TaskStatus
from tests.engine_world import BOSS, Engine, FakeBackend, engine, plan_of


class Paced(FakeBackend):
    """Each task has two steps, named after it; a step waits for its gate if it has one."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[str, asyncio.Event] = {}
        self.on_plan = self._plan
        self.on_step = self.gates.get

    def _plan(self) -> object:
        name = self.asked[-1].facts["text"]
        return plan_of(f"{name} 1", f"{name} 2")

    def hold(self, step: str) -> asyncio.Event:
        self.gates[step] = asyncio.Event()
        return self.gates[step]

    async def begun(self, step: str) -> None:
        async with asyncio.timeout(20):
            while step not in self.done:
                await asyncio.sleep(0.005)


async def all_done(world: Engine, *tasks: Task) -> None:
    for task in tasks:
        assert (await world.until(task)).task.status is TaskStatus.COMPLETED


async def test_urgent_work_cuts_in_and_the_other_goes_on_where_it_was(tmp_path: Path) -> None:
    backend = Paced()
    gate = backend.hold("slow 1")
    async with engine(tmp_path, backend) as world:
        slow = await world.add("slow", priority=Priority.NORMAL)
        await backend.begun("slow 1")
        urgent = await world.add("urgent", priority=Priority.URGENT)
        later = await world.add("later", priority=Priority.NORMAL)
        gate.set()
        await all_done(world, slow, urgent, later)

    assert backend.done == ["slow 1", "urgent 1", "urgent 2", "slow 2", "later 1", "later 2"]


async def test_a_chain_unwinds_in_order(tmp_path: Path) -> None:
    backend = Paced()
    first, second = backend.hold("normal 1"), backend.hold("important 1")
    async with engine(tmp_path, backend) as world:
        normal = await world.add("normal", priority=Priority.NORMAL)
        await backend.begun("normal 1")
        important = await world.add("important", priority=Priority.IMPORTANT)
        first.set()
        await backend.begun("important 1")
        urgent = await world.add("urgent", priority=Priority.URGENT)
        second.set()
        await all_done(world, normal, important, urgent)

    assert backend.done == [
        "normal 1",
        "important 1",
        "urgent 1",
        "urgent 2",
        "important 2",
        "normal 2",
    ]


async def test_equals_do_not_cut_in(tmp_path: Path) -> None:
    backend = Paced()
    gate = backend.hold("first 1")
    async with engine(tmp_path, backend) as world:
        first = await world.add("first")
        await backend.begun("first 1")
        second = await world.add("second")
        gate.set()
        await all_done(world, first, second)

    assert backend.done == ["first 1", "first 2", "second 1", "second 2"]


async def test_a_raised_priority_cuts_in_live(tmp_path: Path) -> None:
    backend = Paced()
    gate = backend.hold("first 1")
    async with engine(tmp_path, backend) as world:
        first = await world.add("first", priority=Priority.NORMAL)
        await backend.begun("first 1")
        second = await world.add("second", priority=Priority.NORMAL)
        await world.foreman.set_priority(second, Priority.URGENT, by=BOSS, source="raise")
        await _told(world, first)
        gate.set()
        await all_done(world, first, second)

    assert backend.done == ["first 1", "second 1", "second 2", "first 2"]


async def test_both_cards_tell_the_story_and_nothing_of_it_is_left_at_the_end(
    tmp_path: Path,
) -> None:
    backend = Paced()
    gate, urgent_gate = backend.hold("slow 1"), backend.hold("urgent 1")
    async with engine(tmp_path, backend) as world:
        slow = await world.add("slow", priority=Priority.NORMAL)
        await backend.begun("slow 1")
        urgent = await world.add("urgent", priority=Priority.URGENT)
        await _told(world, slow)
        assert "slow" in (await world.views.view(urgent.id)).task.status_reason
        gate.set()
        await backend.begun("urgent 1")
        waiting = (await world.views.view(slow.id)).task
        assert (waiting.status, "urgent" in waiting.status_reason) == (TaskStatus.PENDING, True)
        assert not (await world.views.view(urgent.id)).task.status_reason
        urgent_gate.set()
        await all_done(world, slow, urgent)
        kinds = [event.kind for event in await world.store.journal.latest(slow.id, 50)]

    assert kinds.count(EventKind.PAUSED) == 1
    assert kinds.count(EventKind.COMPLETED) == 1


async def test_a_project_is_handed_over_although_slots_are_free(tmp_path: Path) -> None:
    backend = Paced()
    gate = backend.hold("slow 1")
    project = str(tmp_path / "project")
    async with engine(tmp_path, backend, slots=3) as world:
        slow = await world.add("slow", priority=Priority.NORMAL, project_dir=project)
        await backend.begun("slow 1")
        urgent = await world.add("urgent", priority=Priority.URGENT, project_dir=project)
        await _told(world, slow)
        gate.set()
        await all_done(world, slow, urgent)

    assert backend.done == ["slow 1", "urgent 1", "urgent 2", "slow 2"]


async def _told(world: Engine, task: Task) -> None:
    """Wait until the task has been asked to make room."""
    async with asyncio.timeout(20):
        while not (await world.views.view(task.id)).task.status_reason:
            await asyncio.sleep(0.005)
