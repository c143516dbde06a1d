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
    control: Control = Control.RUN,
    minutes: int = 0,
) -> Task:
    return replace(
        TASK,
        id=TaskId(name),
        priority=priority,
        status=TaskStatus.RUNNING,
        project_dir=project,
        control=control,
        started_at=NOW + timedelta(minutes=minutes),
    )


def waiting(name: str, priority: Priority, project: str = "") -> Task:
    return replace(TASK, id=TaskId(name), priority=priority, project_dir=project)


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


def test_a_project_is_taken_from_its_holder_although_slots_are_free() -> None:
    run = [running("a", Priority.NORMAL, project="/p")]

    assert told(run, [waiting("u", Priority.URGENT, "/p")]) == [("a", "u")]


def test_two_urgent_tasks_make_two_yield() -> None:
    run = [running(name, Priority.NORMAL) for name in "abc"]
    wait = [waiting("u", Priority.URGENT), waiting("v", Priority.URGENT)]

    assert len(told(run, wait)) == 2


tasks_running = st.builds(
    running,
    st.uuids().map(str),
    st.sampled_from(Priority),
    control=st.sampled_from([Control.RUN, Control.PAUSE, Control.YIELD]),
    minutes=st.integers(0, 100),
)
tasks_waiting = st.builds(waiting, st.uuids().map(str), st.sampled_from(Priority))


@given(
    st.lists(tasks_running, max_size=SLOTS, unique_by=lambda task: task.id),
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
    leaving = sum(task.control is not Control.RUN for task in run)
    assert len(made) + leaving + (SLOTS - len(run)) <= max(len(wait), leaving + SLOTS - len(run))


@given(st.lists(tasks_running, max_size=SLOTS), st.lists(tasks_waiting, max_size=6))
def test_asking_again_after_they_were_told_asks_nobody_else(
    run: list[Task], wait: list[Task]
) -> None:
    wait = sorted(wait, key=lambda task: task.priority.rank)
    victims = {each.victim.id for each in yieldings(run, wait, SLOTS)}
    after = [replace(task, control=Control.YIELD) if task.id in victims else task for task in run]

    assert yieldings(after, wait, SLOTS) == ()
