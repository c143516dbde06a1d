"""Urgent work cuts in at a step boundary; what it interrupted goes on by itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bot.engine.llm.backend import RunPurpose
from bot.engine.tasks.preemption import plan_preemptions
from storage.records.tasks import EventKind, Task, TaskControl, TaskId, TaskPriority, TaskStatus
from tests.bot.engine.tasks.test_commands import NOW, TASK
from tests.bot.engine.workspaces.git_project import GitProject
from tests.contracts.dispatcher_lives import NamedStepsBackend
from tests.engine_harness import BOSS, EngineHarness, run_engine
from tests.waiting import WAIT_SECONDS

SLOTS = 3


def running_task(
    name: str,
    priority: TaskPriority,
    *,
    project: str = "",
    git: bool = False,
    control: TaskControl = TaskControl.RUN,
    minutes: int = 0,
) -> Task:
    return replace(
        waiting_task(name, priority, project, git=git),
        status=TaskStatus.RUNNING,
        holds_dir=bool(project and not git),
        control=control,
        started_at=NOW + timedelta(minutes=minutes),
    )


def waiting_task(
    name: str, priority: TaskPriority, project: str = "", *, git: bool = False, let_in: bool = False
) -> Task:
    return replace(
        TASK,
        id=TaskId(name),
        priority=priority,
        rank=priority.rank,
        project_dir=project,
        branch=f"shiftboss/{name}" if git else "",
        let_in=let_in,
    )


def preemptions(
    running_tasks: list[Task], waiting_tasks: list[Task], slots: int = SLOTS
) -> list[tuple[str, str]]:
    return [
        (each.victim.id, each.preemptor.id)
        for each in plan_preemptions(running_tasks, waiting_tasks, slots)
    ]


def test_urgent_work_takes_the_slot_of_the_least_important_started_last() -> None:
    run = [
        running_task("a", TaskPriority.IMPORTANT),
        running_task("b", TaskPriority.NORMAL, minutes=1),
        running_task("c", TaskPriority.NORMAL, minutes=2),
    ]

    assert preemptions(run, [waiting_task("u", TaskPriority.URGENT)]) == [("c", "u")]


def test_equals_wait() -> None:
    run = [running_task(name, TaskPriority.IMPORTANT) for name in "abc"]

    assert (
        preemptions(
            run, [waiting_task("w", TaskPriority.IMPORTANT), waiting_task("n", TaskPriority.NORMAL)]
        )
        == []
    )


def test_nobody_yields_while_a_slot_is_free_or_on_its_way() -> None:
    busy = [running_task("a", TaskPriority.NORMAL), running_task("b", TaskPriority.NORMAL)]
    pausing = [*busy, running_task("c", TaskPriority.NORMAL, control=TaskControl.PAUSE)]

    assert preemptions(busy, [waiting_task("u", TaskPriority.URGENT)]) == []
    assert preemptions(pausing, [waiting_task("u", TaskPriority.URGENT)]) == []


def test_a_git_project_is_taken_from_its_holder_although_slots_are_free() -> None:
    run = [running_task("a", TaskPriority.NORMAL, project="/p", git=True)]

    assert preemptions(run, [waiting_task("u", TaskPriority.URGENT, "/p", git=True)]) == [
        ("a", "u")
    ]


def test_a_plain_folder_is_kept_however_urgent_the_other_is() -> None:
    run = [running_task("a", TaskPriority.NORMAL, project="/p")]

    assert preemptions(run, [waiting_task("u", TaskPriority.URGENT, "/p")], slots=1) == []
    assert preemptions(run, [waiting_task("u", TaskPriority.URGENT, "/p", git=True)], slots=1) == []


def test_a_plain_folder_is_handed_over_to_who_was_let_in_if_it_is_more_urgent() -> None:
    run = [running_task("a", TaskPriority.IMPORTANT, project="/p")]

    for priority, expected in (
        (TaskPriority.URGENT, [("a", "u")]),
        (TaskPriority.IMPORTANT, []),
        (TaskPriority.NORMAL, []),
    ):
        assert preemptions(run, [waiting_task("u", priority, "/p", let_in=True)]) == expected


def test_who_waits_for_a_plain_folder_does_not_keep_others_from_cutting_in() -> None:
    run = [running_task("a", TaskPriority.NORMAL, project="/p")]
    wait = [waiting_task("u", TaskPriority.URGENT, "/p"), waiting_task("v", TaskPriority.IMPORTANT)]

    assert preemptions(run, wait, slots=1) == [("a", "v")]


def test_two_that_wait_for_one_project_make_one_yield() -> None:
    run = [
        running_task("a", TaskPriority.NORMAL, project="/p", git=True),
        running_task("b", TaskPriority.NORMAL),
    ]
    wait = [waiting_task(name, TaskPriority.URGENT, "/p", git=True) for name in "uv"]

    assert preemptions(run, wait, slots=2) == [("a", "u")]


def test_a_project_on_its_way_asks_nobody_else() -> None:
    run = [
        running_task("a", TaskPriority.NORMAL, project="/p", git=True, control=TaskControl.YIELD),
        running_task("b", TaskPriority.NORMAL),
    ]

    assert preemptions(run, [waiting_task("u", TaskPriority.URGENT, "/p", git=True)], slots=2) == []


def test_two_urgent_tasks_make_two_yield() -> None:
    run = [running_task(name, TaskPriority.NORMAL) for name in "abc"]
    wait = [waiting_task("u", TaskPriority.URGENT), waiting_task("v", TaskPriority.URGENT)]

    assert len(preemptions(run, wait)) == 2


folders = st.sampled_from(["", "/p", "/q"])
tasks_running = st.builds(
    running_task,
    st.uuids().map(str),
    st.sampled_from(TaskPriority),
    project=folders,
    git=st.booleans(),
    control=st.sampled_from([TaskControl.RUN, TaskControl.PAUSE, TaskControl.YIELD]),
    minutes=st.integers(0, 100),
)
tasks_waiting = st.builds(
    waiting_task,
    st.uuids().map(str),
    st.sampled_from(TaskPriority),
    folders,
    git=st.booleans(),
    let_in=st.booleans(),
)


def _place(task: Task) -> str:
    """One task runs in a directory at a time."""
    return task.project_dir or task.id


@given(
    st.lists(tasks_running, max_size=SLOTS, unique_by=_place),
    st.lists(tasks_waiting, max_size=6, unique_by=lambda task: task.id),
)
def test_only_the_strictly_better_cut_in_each_once_and_never_more_than_needed(
    run: list[Task], wait: list[Task]
) -> None:
    wait = sorted(wait, key=lambda task: task.priority.rank)

    made = plan_preemptions(run, wait, SLOTS)

    victims = [each.victim.id for each in made]
    assert len(victims) == len(set(victims))
    assert all(each.victim.priority.rank > each.preemptor.priority.rank for each in made)
    assert all(each.victim.control is TaskControl.RUN for each in made)
    assert all(
        each.preemptor.let_in or (each.victim.branch and each.preemptor.branch)
        for each in made
        if each.preemptor.project_dir and each.victim.project_dir == each.preemptor.project_dir
    )
    leaving = sum(task.control is not TaskControl.RUN for task in run)
    for_slots = [
        each
        for each in made
        if not each.preemptor.project_dir or each.victim.project_dir != each.preemptor.project_dir
    ]
    coming = leaving + SLOTS - len(run)
    assert len(for_slots) + coming <= max(len(wait), coming)


@given(
    st.lists(tasks_running, max_size=SLOTS, unique_by=_place), st.lists(tasks_waiting, max_size=6)
)
def test_asking_again_after_they_were_told_asks_nobody_else(
    run: list[Task], wait: list[Task]
) -> None:
    wait = sorted(wait, key=lambda task: task.priority.rank)
    victims = {each.victim.id for each in plan_preemptions(run, wait, SLOTS)}
    after = [
        replace(task, control=TaskControl.YIELD) if task.id in victims else task for task in run
    ]

    assert plan_preemptions(after, wait, SLOTS) == ()


def test_a_folder_inside_another_is_the_same_project() -> None:
    inner = [running_task("a", TaskPriority.NORMAL, project="/p/inner", git=True)]
    outer = [running_task("a", TaskPriority.NORMAL, project="/p", git=True)]

    assert preemptions(inner, [waiting_task("u", TaskPriority.URGENT, "/p", git=True)]) == [
        ("a", "u")
    ]
    assert preemptions(outer, [waiting_task("u", TaskPriority.URGENT, "/p/inner", git=True)]) == [
        ("a", "u")
    ]
    assert preemptions(inner, [waiting_task("u", TaskPriority.URGENT, "/p")], slots=1) == []
    assert preemptions(inner, [waiting_task("u", TaskPriority.URGENT, "/p/inner2", git=True)]) == []


def test_all_who_work_inside_make_room_or_nobody_does() -> None:
    below = [
        running_task(name, TaskPriority.NORMAL, project=f"/p/{name}", git=True) for name in "ab"
    ]
    mixed = [below[0], running_task("b", TaskPriority.URGENT, project="/p/b", git=True)]
    urgent = waiting_task("u", TaskPriority.URGENT, "/p", git=True)

    assert preemptions(below, [urgent]) == [("a", "u"), ("b", "u")]
    assert preemptions(mixed, [urgent]) == []
    assert preemptions(
        [running_task(name, TaskPriority.NORMAL) for name in "abc"], [urgent, urgent]
    ) == [("a", "u")]


async def all_done(world: EngineHarness, *tasks: Task) -> None:
    for task in tasks:
        assert (await world.until(task)).task.status is TaskStatus.COMPLETED


async def test_urgent_work_cuts_in_and_the_other_goes_on_where_it_was(tmp_path: Path) -> None:
    backend = NamedStepsBackend()
    (gate,) = backend.hold("slow 1")
    async with run_engine(tmp_path, backend) as world:
        slow = await world.create_task("slow", priority=TaskPriority.NORMAL)
        await backend.wait_until_started("slow 1")
        urgent = await world.create_task("urgent", priority=TaskPriority.URGENT)
        await _wait_until_preempted(world, slow)
        later = await world.create_task("later", priority=TaskPriority.NORMAL)
        gate.set()
        await all_done(world, slow, urgent, later)

    assert backend.started_steps == [
        "slow 1",
        "urgent 1",
        "urgent 2",
        "slow 2",
        "later 1",
        "later 2",
    ]


async def test_a_chain_unwinds_in_order(tmp_path: Path) -> None:
    backend = NamedStepsBackend()
    first, second = backend.hold("normal 1", "important 1")
    async with run_engine(tmp_path, backend) as world:
        normal = await world.create_task("normal", priority=TaskPriority.NORMAL)
        await backend.wait_until_started("normal 1")
        important = await world.create_task("important", priority=TaskPriority.IMPORTANT)
        await _wait_until_preempted(world, normal)
        first.set()
        await backend.wait_until_started("important 1")
        urgent = await world.create_task("urgent", priority=TaskPriority.URGENT)
        await _wait_until_preempted(world, important)
        second.set()
        await all_done(world, normal, important, urgent)

    assert backend.started_steps == [
        "normal 1",
        "important 1",
        "urgent 1",
        "urgent 2",
        "important 2",
        "normal 2",
    ]


async def test_equals_do_not_cut_in(tmp_path: Path) -> None:
    backend = NamedStepsBackend()
    (gate,) = backend.hold("first 1")
    async with run_engine(tmp_path, backend) as world:
        first = await world.create_task("first")
        await backend.wait_until_started("first 1")
        second = await world.create_task("second")
        gate.set()
        await all_done(world, first, second)

    assert backend.started_steps == ["first 1", "first 2", "second 1", "second 2"]


async def test_a_raised_priority_cuts_in_live(tmp_path: Path) -> None:
    backend = NamedStepsBackend()
    (gate,) = backend.hold("first 1")
    async with run_engine(tmp_path, backend) as world:
        first = await world.create_task("first", priority=TaskPriority.NORMAL)
        await backend.wait_until_started("first 1")
        second = await world.create_task("second", priority=TaskPriority.NORMAL)
        await world.tasks.set_priority(second, TaskPriority.URGENT, by=BOSS, source="raise")
        await _wait_until_preempted(world, first)
        gate.set()
        await all_done(world, first, second)

    assert backend.started_steps == ["first 1", "second 1", "second 2", "first 2"]


async def test_both_cards_tell_the_story_and_nothing_of_it_is_left_at_the_end(
    tmp_path: Path,
) -> None:
    backend = NamedStepsBackend()
    gate, urgent_gate = backend.hold("slow 1", "urgent 1")
    async with run_engine(tmp_path, backend) as world:
        slow = await world.create_task("slow", priority=TaskPriority.NORMAL)
        await backend.wait_until_started("slow 1")
        urgent = await world.create_task("urgent", priority=TaskPriority.URGENT)
        await _wait_until_preempted(world, slow)
        assert "slow" in (await world.views.view(urgent.id)).task.status_reason
        gate.set()
        await backend.wait_until_started("urgent 1")
        waiting = (await world.views.view(slow.id)).task
        assert (waiting.status, "urgent" in waiting.status_reason) == (TaskStatus.PENDING, True)
        assert not (await world.views.view(urgent.id)).task.status_reason
        urgent_gate.set()
        await all_done(world, slow, urgent)
        kinds = [event.kind for event in await world.store.events.list_latest(slow.id, 50)]

    assert kinds.count(EventKind.PAUSED) == 1
    assert kinds.count(EventKind.COMPLETED) == 1


async def test_a_git_project_is_handed_over_although_slots_are_free(tmp_path: Path) -> None:
    backend = NamedStepsBackend()
    (gate,) = backend.hold("slow 1")
    project = GitProject(tmp_path / "project").path
    async with run_engine(tmp_path, backend, slots=3) as world:
        slow = await _in_git(world, project, "slow", TaskPriority.NORMAL)
        await backend.wait_until_started("slow 1")
        urgent = await _in_git(world, project, "urgent", TaskPriority.URGENT)
        await _wait_until_preempted(world, slow)
        gate.set()
        await all_done(world, slow, urgent)

    assert backend.started_steps == ["slow 1", "urgent 1", "urgent 2", "slow 2"]


async def test_who_cuts_in_works_on_a_clean_tree(tmp_path: Path) -> None:
    backend = NamedStepsBackend()
    (gate,) = backend.hold("slow 1")
    project = GitProject(tmp_path / "project").path
    async with run_engine(tmp_path, backend) as world:
        slow = await _in_git(world, project, "slow", TaskPriority.NORMAL)
        await backend.wait_until_started("slow 1")
        half_done = _workspace(backend, "slow 1") / "half-done.txt"
        half_done.write_text("half")
        urgent = await _in_git(world, project, "urgent", TaskPriority.URGENT)
        await _wait_until_preempted(world, slow)
        gate.set()
        await all_done(world, slow, urgent)

    assert _workspace(backend, "urgent 1") != half_done.parent
    assert _workspace(backend, "slow 2") == half_done.parent


async def test_a_plain_folder_is_kept_until_its_task_ends_whoever_waits(tmp_path: Path) -> None:
    backend = NamedStepsBackend()
    gate, second = backend.hold("slow 1", "slow 2")
    project = str(tmp_path / "project")
    async with run_engine(tmp_path, backend, slots=3) as world:
        slow = await world.create_task("slow", priority=TaskPriority.NORMAL, project_dir=project)
        await backend.wait_until_started("slow 1")
        urgent = await world.create_task(
            "urgent", priority=TaskPriority.URGENT, project_dir=project
        )
        gate.set()
        await backend.wait_until_started("slow 2")
        view = await world.views.view(urgent.id)
        second.set()
        await all_done(world, slow, urgent)

    assert (view.task.status, view.directory_holder and view.directory_holder.id) == (
        TaskStatus.PENDING,
        slow.id,
    )
    assert backend.started_steps == ["slow 1", "slow 2", "urgent 1", "urgent 2"]


async def test_who_is_let_into_a_plain_folder_gets_it_at_the_next_boundary(
    tmp_path: Path,
) -> None:
    backend = NamedStepsBackend()
    (gate,) = backend.hold("slow 1")
    project = str(tmp_path / "project")
    async with run_engine(tmp_path, backend, slots=3) as world:
        slow = await world.create_task("slow", priority=TaskPriority.NORMAL, project_dir=project)
        await backend.wait_until_started("slow 1")
        urgent = await world.create_task(
            "urgent", priority=TaskPriority.URGENT, project_dir=project
        )
        await world.tasks.start_anyway(urgent, by=BOSS, source="press")
        await _wait_until_preempted(world, slow)
        await _wait_until_preempted(world, urgent)
        gate.set()
        await all_done(world, slow, urgent)

    assert backend.started_steps == ["slow 1", "urgent 1", "urgent 2", "slow 2"]


async def test_a_paused_task_keeps_its_plain_folder_until_another_is_let_in(
    tmp_path: Path,
) -> None:
    backend = NamedStepsBackend()
    (gate,) = backend.hold("slow 1")
    project = str(tmp_path / "project")
    async with run_engine(tmp_path, backend) as world:
        slow = await world.create_task("slow", priority=TaskPriority.URGENT, project_dir=project)
        await backend.wait_until_started("slow 1")
        await world.tasks.pause(slow, by=BOSS, source="pause")
        gate.set()
        await world.until(slow, TaskStatus.PAUSED)
        held = await world.create_task("held", priority=TaskPriority.NORMAL, project_dir=project)
        other = await world.create_task("other", priority=TaskPriority.NORMAL)
        await all_done(world, other)
        view = await world.views.view(held.id)
        await world.tasks.start_anyway(held, by=BOSS, source="press")
        await all_done(world, held)
        await world.tasks.resume(slow, by=BOSS, source="resume")
        await all_done(world, slow)

    assert view.directory_holder is not None
    assert view.directory_holder.id == slow.id
    assert backend.started_steps == ["slow 1", "other 1", "other 2", "held 1", "held 2", "slow 2"]


async def _in_git(world: EngineHarness, project: Path, name: str, priority: TaskPriority) -> Task:
    return await world.create_task(name, priority=priority, project_dir=str(project), in_git=True)


def _workspace(backend: NamedStepsBackend, step: str) -> Path:
    """Where the step was done."""
    (asked,) = (
        one
        for one in backend.requests
        if one.purpose is RunPurpose.STEP and one.facts["step"]["title"] == step
    )
    assert asked.workspace is not None
    return asked.workspace


async def _wait_until_preempted(world: EngineHarness, task: Task) -> None:
    """Wait until the task has been asked to make room."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not (await world.views.view(task.id)).task.status_reason:
            await asyncio.sleep(0.005)
