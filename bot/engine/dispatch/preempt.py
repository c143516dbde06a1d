"""Who must make room for whom: a pure rule over what runs and what waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.records.tasks import Control, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Yielding:
    """`victim` pauses at its next step boundary, so that `better` can start."""

    victim: Task
    better: Task


def yieldings(running: Sequence[Task], waiting: Sequence[Task], slots: int) -> tuple[Yielding, ...]:
    """Which running tasks must make room now.

    `waiting` is in queue order. Only a strictly higher priority cuts in: for a slot where all
    are taken, the least important running task yields, of equals the one started last; for a
    project directory, the task that works there, if it leaves nothing half done to the other
    (both have worktrees) or the other was let in. A task that already gives its slot back, for
    whatever reason, counts as a slot on its way, and nobody yields twice. A directory goes to
    one: nobody makes room for the next who needs it.
    """
    staying = [task for task in running if task.control is Control.RUN]
    free = slots - len(staying)
    promised: set[str] = set()
    made: list[Yielding] = []
    for better in waiting:
        holder = _holder(better, running)
        if better.project_dir in promised or not _gives_way(holder, better):
            continue
        if holder not in staying and free > 0:
            free -= 1
        else:
            victim = holder if holder in staying else _least(staying)
            if victim is None or better.priority.rank >= victim.priority.rank:
                continue
            staying.remove(victim)
            made.append(Yielding(victim=victim, better=better))
        promised |= {better.project_dir} - {""}
    return tuple(made)


def _holder(task: Task, running: Sequence[Task]) -> Task | None:
    """Who works in the directory that `task` needs: one at most."""
    if not task.project_dir:
        return None
    return next((each for each in running if each.project_dir == task.project_dir), None)


def _gives_way(holder: Task | None, better: Task) -> bool:
    return holder is None or better.let_in or bool(holder.branch and better.branch)


def _least(staying: Sequence[Task]) -> Task | None:
    def standing(task: Task) -> tuple[int, float]:
        return task.priority.rank, task.started_at.timestamp() if task.started_at else 0.0

    return max(staying, key=standing, default=None)
