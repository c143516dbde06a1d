"""Reads how long the steps of the tasks took that were completed last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, bindparam, func, select

from storage import schema
from storage.db import Database
from storage.records.tasks import EventKind, NodeStatus, TaskStatus

_T = schema.tasks.c
_G = schema.task_graphs.c
_R = schema.node_runs.c
_E = schema.events.c

_MAX_EVENTS = 3_000
_MAX_TASKS = 30
_MAX_STEPS = 600


@dataclass(frozen=True, slots=True)
class TaskStepDurations:
    """A finished task's last plan and the seconds its finished steps took, by path."""

    graph_body: Mapping[str, Any]
    step_seconds: tuple[tuple[str, float], ...]


class StepDurationRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def list_recent(self, before: datetime | None = None) -> tuple[TaskStepDurations, ...]:
        """Durations from the tasks completed last, or last before a time; limits on tasks, steps
        and events bound the cost of the query."""
        async with self._db.read() as view:
            tasks = (await view.execute(_last_completed(before))).all()
            versions = {row.id: row.graph_version for row in tasks}
            plans = await view.execute(_PLANS, {"ids": list(versions)})
            bodies = {
                row.task_id: row.body for row in plans if row.version == versions[row.task_id]
            }
            runs = (await view.execute(_FINISHED_RUNS, {"ids": list(bodies)})).all()
        took: dict[str, list[tuple[str, float]]] = {task: [] for task in bodies}
        for row in runs:
            if row.started_at and row.ended_at:
                seconds = (row.ended_at - row.started_at).total_seconds()
                took[row.task_id].append((row.path, max(0.0, seconds)))
        return tuple(TaskStepDurations(bodies[task], tuple(each)) for task, each in took.items())


def _last_completed(before: datetime | None) -> Select[Any]:
    newest = select(_E.task_id, _E.kind).order_by(_E.id.desc()).limit(_MAX_EVENTS)
    if before is not None:
        newest = newest.where(_E.at < before)
    events = newest.subquery()
    found = select(_T.id, _T.graph_version).where(
        _T.id.in_(select(events.c.task_id).where(events.c.kind == EventKind.COMPLETED.value)),
        _T.status == TaskStatus.COMPLETED.value,
        _T.outside.is_(False),
    )
    if before is not None:
        found = found.where(_T.ended_at < before)
    return found.order_by(_T.ended_at.desc(), _T.id).limit(_MAX_TASKS)


_PLANS = select(_G.task_id, _G.version, _G.body).where(
    _G.task_id.in_(bindparam("ids", expanding=True))
)
_FINISHED_RUNS = (
    select(_R.task_id, _R.path, _R.started_at, _R.ended_at)
    .where(
        _R.task_id.in_(bindparam("ids", expanding=True)),
        _R.status == NodeStatus.DONE.value,
        func.substr(_R.path, 1, 1) != "@",
    )
    .order_by(_R.task_id, _R.path)
    .limit(_MAX_STEPS)
)
