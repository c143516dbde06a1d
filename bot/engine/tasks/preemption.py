"""Which running tasks make room for more urgent ones. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.records.tasks import Task, TaskControl
from storage.task_queue import folders_overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPreemption:
    """`victim` pauses after its current step so that `preemptor` can start."""

    victim: Task
    preemptor: Task


def plan_preemptions(
    running: Sequence[Task], waiting: Sequence[Task], slots: int
) -> tuple[TaskPreemption, ...]:
    """Running tasks that must be preempted now.

    `waiting` is in queue order. Only a strictly higher priority preempts. For a slot, if all are
    taken, the victim is the least important running task, the last started among equals. For a
    project directory, it is the task working in, above or below it, provided that neither leaves
    unfinished changes to the other (both have worktrees) or sharing was allowed. A task that is
    already giving its slot back counts as a free slot. No task is preempted twice, and a directory
    is freed for one task only.
    """
    staying = [task for task in running if task.control is TaskControl.RUN]
    free = slots - len(staying)
    promised: list[str] = []
    made: list[TaskPreemption] = []
    for preemptor in waiting:
        holders = [
            each for each in running if folders_overlap(each.project_dir, preemptor.project_dir)
        ]
        taken = any(folders_overlap(place, preemptor.project_dir) for place in promised)
        if taken or not all(
            preemptor.let_in or (each.branch and preemptor.branch) for each in holders
        ):
            continue
        victims = [each for each in holders if each in staying]
        if not victims and free <= 0:
            victims = _lowest_ranked(staying)
            if not victims:
                continue
        if any(preemptor.priority.rank >= each.priority.rank for each in victims):
            continue
        free += len(victims) - 1
        for victim in victims:
            staying.remove(victim)
            made.append(TaskPreemption(victim=victim, preemptor=preemptor))
        promised.append(preemptor.project_dir)
    return tuple(made)


def _lowest_ranked(staying: Sequence[Task]) -> list[Task]:
    def standing(task: Task) -> tuple[int, float]:
        return task.priority.rank, task.started_at.timestamp() if task.started_at else 0.0

    return [max(staying, key=standing)] if staying else []
