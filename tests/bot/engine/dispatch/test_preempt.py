"""Who makes room for whom, as a law over any mix of running and waiting tasks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from bot.engine.dispatch.preempt import yieldings
from storage.records.tasks import Control, Priority, Task, TaskId, TaskStatus
from tests.bot.engine.dispatch.test_orders import NOW, TASK

SLOTS = 3


def running(
    name: str,
    priority: Priority,
    *,
    project: str = "",
    git: bool = False,
    control: Control = Control.RUN,
    minutes: int = 0,
) -> Task:
    return replace(
        waiting(name, priority, project, git=git),
        status=TaskStatus.RUNNING,
        holds_dir=bool(project and not git),
        control=control,
        started_at=NOW + timedelta(minutes=minutes),
    )


def waiting(
    name: str, priority: Priority, project: str = "", *, git: bool = False, let_in: bool = False
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


def told(run: list[Task], wait: list[Task], slots: int = SLOTS) -> list[tuple[str, str]]:
    return [(each.victim.id, each.better.id) for each in yieldings(run, wait, slots)]


def test_urgent_work_takes_the_slot_of_the_least_important_started_last() -> None:
    run = [
        running("a", Priority.IMPORTANT),
        running("b", Priority.NORMAL, minutes=1),
        running("c", Priority.NORMAL, minutes=2),
    ]

    assert told(run, [waiting("u", Priority.URGENT)]) == [("c", "u")]


def test_equals_wait() -> None:
    run = [running(name, Priority.IMPORTANT) for name in "abc"]

    assert told(run, [waiting("w", Priority.IMPORTANT), waiting("n", Priority.NORMAL)]) == []


def test_nobody_yields_while_a_slot_is_free_or_on_its_way() -> None:
    busy = [running("a", Priority.NORMAL), running("b", Priority.NORMAL)]
    pausing = [*busy, running("c", Priority.NORMAL, control=Control.PAUSE)]

    assert told(busy, [waiting("u", Priority.URGENT)]) == []
    assert told(pausing, [waiting("u", Priority.URGENT)]) == []


def test_a_git_project_is_taken_from_its_holder_although_slots_are_free() -> None:
    run = [running("a", Priority.NORMAL, project="/p", git=True)]

    assert told(run, [waiting("u", Priority.URGENT, "/p", git=True)]) == [("a", "u")]


def test_a_plain_folder_is_kept_however_urgent_the_other_is() -> None:
    run = [running("a", Priority.NORMAL, project="/p")]

    assert told(run, [waiting("u", Priority.URGENT, "/p")], slots=1) == []
    assert told(run, [waiting("u", Priority.URGENT, "/p", git=True)], slots=1) == []


def test_a_plain_folder_is_handed_over_to_who_was_let_in_if_it_is_more_urgent() -> None:
    run = [running("a", Priority.IMPORTANT, project="/p")]

    for priority, expected in (
        (Priority.URGENT, [("a", "u")]),
        (Priority.IMPORTANT, []),
        (Priority.NORMAL, []),
    ):
        assert told(run, [waiting("u", priority, "/p", let_in=True)]) == expected


def test_who_waits_for_a_plain_folder_does_not_keep_others_from_cutting_in() -> None:
    run = [running("a", Priority.NORMAL, project="/p")]
    wait = [waiting("u", Priority.URGENT, "/p"), waiting("v", Priority.IMPORTANT)]

    assert told(run, wait, slots=1) == [("a", "v")]


def test_two_that_wait_for_one_project_make_one_yield() -> None:
    run = [running("a", Priority.NORMAL, project="/p", git=True), running("b", Priority.NORMAL)]
    wait = [waiting(name, Priority.URGENT, "/p", git=True) for name in "uv"]

    assert told(run, wait, slots=2) == [("a", "u")]


def test_a_project_on_its_way_asks_nobody_else() -> None:
    run = [
        running("a", Priority.NORMAL, project="/p", git=True, control=Control.YIELD),
        running("b", Priority.NORMAL),
    ]

    assert told(run, [waiting("u", Priority.URGENT, "/p", git=True)], slots=2) == []


def test_two_urgent_tasks_make_two_yield() -> None:
    run = [running(name, Priority.NORMAL) for name in "abc"]
    wait = [waiting("u", Priority.URGENT), waiting("v", Priority.URGENT)]

    assert len(told(run, wait)) == 2


folders = st.sampled_from(["", "/p", "/q"])
tasks_running = st.builds(
    running,
    st.uuids().map(str),
    st.sampled_from(Priority),
    project=folders,
    git=st.booleans(),
    control=st.sampled_from([Control.RUN, Control.PAUSE, Control.YIELD]),
    minutes=st.integers(0, 100),
)
tasks_waiting = st.builds(
    waiting,
    st.uuids().map(str),
    st.sampled_from(Priority),
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

    made = yieldings(run, wait, SLOTS)

    victims = [each.victim.id for each in made]
    assert len(victims) == len(set(victims))
    assert all(each.victim.priority.rank > each.better.priority.rank for each in made)
    assert all(each.victim.control is Control.RUN for each in made)
    assert all(
        each.better.let_in or (each.victim.branch and each.better.branch)
        for each in made
        if each.better.project_dir and each.victim.project_dir == each.better.project_dir
    )
    leaving = sum(task.control is not Control.RUN for task in run)
    for_slots = [
        each
        for each in made
        if not each.better.project_dir or each.victim.project_dir != each.better.project_dir
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
    victims = {each.victim.id for each in yieldings(run, wait, SLOTS)}
    after = [replace(task, control=Control.YIELD) if task.id in victims else task for task in run]

    assert yieldings(after, wait, SLOTS) == ()


def test_a_folder_inside_another_is_the_same_project() -> None:
    inner = [running("a", Priority.NORMAL, project="/p/inner", git=True)]
    outer = [running("a", Priority.NORMAL, project="/p", git=True)]

    assert told(inner, [waiting("u", Priority.URGENT, "/p", git=True)]) == [("a", "u")]
    assert told(outer, [waiting("u", Priority.URGENT, "/p/inner", git=True)]) == [("a", "u")]
    assert told(inner, [waiting("u", Priority.URGENT, "/p")], slots=1) == []
    assert told(inner, [waiting("u", Priority.URGENT, "/p/inner2", git=True)]) == []


def test_all_who_work_inside_make_room_or_nobody_does() -> None:
    below = [running(name, Priority.NORMAL, project=f"/p/{name}", git=True) for name in "ab"]
    mixed = [below[0], running("b", Priority.URGENT, project="/p/b", git=True)]
    urgent = waiting("u", Priority.URGENT, "/p", git=True)

    assert told(below, [urgent]) == [("a", "u"), ("b", "u")]
    assert told(mixed, [urgent]) == []
    assert told([running(name, Priority.NORMAL) for name in "abc"], [urgent, urgent]) == [
        ("a", "u")
    ]
