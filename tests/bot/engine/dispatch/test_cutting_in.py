"""Urgent work cuts in at a step boundary; what it interrupted goes on by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bot.engine.llm.base import Purpose
from storage.records.tasks import EventKind, Priority, Task, TaskStatus
from tests.bot.engine.workflow.places.git_world import Project
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
        async with asyncio.timeout(60):
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
        await _told(world, slow)
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
        await _told(world, normal)
        first.set()
        await backend.begun("important 1")
        urgent = await world.add("urgent", priority=Priority.URGENT)
        await _told(world, important)
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


async def test_a_git_project_is_handed_over_although_slots_are_free(tmp_path: Path) -> None:
    backend = Paced()
    gate = backend.hold("slow 1")
    project = Project(tmp_path / "project").path
    async with engine(tmp_path, backend, slots=3) as world:
        slow = await _in_git(world, project, "slow", Priority.NORMAL)
        await backend.begun("slow 1")
        urgent = await _in_git(world, project, "urgent", Priority.URGENT)
        await _told(world, slow)
        gate.set()
        await all_done(world, slow, urgent)

    assert backend.done == ["slow 1", "urgent 1", "urgent 2", "slow 2"]


async def test_who_cuts_in_works_on_a_clean_tree(tmp_path: Path) -> None:
    backend = Paced()
    gate = backend.hold("slow 1")
    project = Project(tmp_path / "project").path
    async with engine(tmp_path, backend) as world:
        slow = await _in_git(world, project, "slow", Priority.NORMAL)
        await backend.begun("slow 1")
        half_done = _workspace(backend, "slow 1") / "half-done.txt"
        half_done.write_text("half")
        urgent = await _in_git(world, project, "urgent", Priority.URGENT)
        await _told(world, slow)
        gate.set()
        await all_done(world, slow, urgent)

    assert _workspace(backend, "urgent 1") != half_done.parent
    assert _workspace(backend, "slow 2") == half_done.parent


async def test_a_plain_folder_is_kept_until_its_task_ends_whoever_waits(tmp_path: Path) -> None:
    backend = Paced()
    gate, second = backend.hold("slow 1"), backend.hold("slow 2")
    project = str(tmp_path / "project")
    async with engine(tmp_path, backend, slots=3) as world:
        slow = await world.add("slow", priority=Priority.NORMAL, project_dir=project)
        await backend.begun("slow 1")
        urgent = await world.add("urgent", priority=Priority.URGENT, project_dir=project)
        gate.set()
        await backend.begun("slow 2")
        view = await world.views.view(urgent.id)
        second.set()
        await all_done(world, slow, urgent)

    assert (view.task.status, view.holder and view.holder.id) == (TaskStatus.PENDING, slow.id)
    assert backend.done == ["slow 1", "slow 2", "urgent 1", "urgent 2"]


async def test_who_is_let_into_a_plain_folder_gets_it_at_the_next_boundary(
    tmp_path: Path,
) -> None:
    backend = Paced()
    gate = backend.hold("slow 1")
    project = str(tmp_path / "project")
    async with engine(tmp_path, backend, slots=3) as world:
        slow = await world.add("slow", priority=Priority.NORMAL, project_dir=project)
        await backend.begun("slow 1")
        urgent = await world.add("urgent", priority=Priority.URGENT, project_dir=project)
        await world.foreman.let_in(urgent, by=BOSS, source="press")
        await _told(world, slow)
        await _told(world, urgent)
        gate.set()
        await all_done(world, slow, urgent)

    assert backend.done == ["slow 1", "urgent 1", "urgent 2", "slow 2"]


async def test_a_paused_task_keeps_its_plain_folder_until_another_is_let_in(
    tmp_path: Path,
) -> None:
    backend = Paced()
    gate = backend.hold("slow 1")
    project = str(tmp_path / "project")
    async with engine(tmp_path, backend) as world:
        slow = await world.add("slow", priority=Priority.URGENT, project_dir=project)
        await backend.begun("slow 1")
        await world.foreman.pause(slow, by=BOSS, source="pause")
        gate.set()
        await world.until(slow, TaskStatus.PAUSED)
        held = await world.add("held", priority=Priority.NORMAL, project_dir=project)
        other = await world.add("other", priority=Priority.NORMAL)
        await all_done(world, other)
        view = await world.views.view(held.id)
        await world.foreman.let_in(held, by=BOSS, source="press")
        await all_done(world, held)
        await world.foreman.resume(slow, by=BOSS, source="resume")
        await all_done(world, slow)

    assert view.holder is not None
    assert view.holder.id == slow.id
    assert backend.done == ["slow 1", "other 1", "other 2", "held 1", "held 2", "slow 2"]


async def _in_git(world: Engine, project: Path, name: str, priority: Priority) -> Task:
    return await world.add(name, priority=priority, project_dir=str(project), in_git=True)


def _workspace(backend: Paced, step: str) -> Path:
    """Where the step was done."""
    (asked,) = (
        one
        for one in backend.asked
        if one.purpose is Purpose.STEP and one.facts["step"]["title"] == step
    )
    assert asked.workspace is not None
    return asked.workspace


async def _told(world: Engine, task: Task) -> None:
    """Wait until the task has been asked to make room."""
    async with asyncio.timeout(60):
        while not (await world.views.view(task.id)).task.status_reason:
            await asyncio.sleep(0.005)
