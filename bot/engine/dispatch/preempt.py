"""Who must make room for whom: a pure rule over what runs and what waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.records.tasks import Control, Task
from storage.work.folders import one_place


@dataclass(frozen=True, slots=True, kw_only=True)
class Yielding:
    """`victim` pauses at its next step boundary, so that `better` can start."""

    victim: Task
    better: Task


def yieldings(running: Sequence[Task], waiting: Sequence[Task], slots: int) -> tuple[Yielding, ...]:
    """Which running tasks must make room now.

    `waiting` is in queue order. Only a strictly higher priority cuts in: for a slot where all
    are taken, the least important running task yields, of equals the one started last; for a
    project directory, whoever works there, around it or inside it, if they leave nothing half
    done to the other (both have worktrees) or the other was let in. A task that already gives its
    slot back, for whatever reason, counts as a slot on its way, and nobody yields twice. A
    directory goes to one: nobody makes room for the next who needs it.
    """
    staying = [task for task in running if task.control is Control.RUN]
    free = slots - len(staying)
    promised: list[str] = []
    made: list[Yielding] = []
    for better in waiting:
        holders = [each for each in running if one_place(each.project_dir, better.project_dir)]
        taken = any(one_place(place, better.project_dir) for place in promised)
        if taken or not all(_gives_way(holder, better) for holder in holders):
            continue
        victims = [each for each in holders if each in staying]
        if not victims and free <= 0:
            victims = _least(staying)
            if not victims:
                continue
        if any(better.priority.rank >= each.priority.rank for each in victims):
            continue
        free += len(victims) - 1
        for victim in victims:
            staying.remove(victim)
            made.append(Yielding(victim=victim, better=better))
        promised.append(better.project_dir)
    return tuple(made)


def _gives_way(holder: Task, better: Task) -> bool:
    return better.let_in or bool(holder.branch and better.branch)


def _least(staying: Sequence[Task]) -> list[Task]:
    def standing(task: Task) -> tuple[int, float]:
        return task.priority.rank, task.started_at.timestamp() if task.started_at else 0.0

    return [max(staying, key=standing)] if staying else []
