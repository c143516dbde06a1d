"""How long the steps of finished tasks took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, func, select

from storage import schema
from storage.db import Database
from storage.records.tasks import EventKind, NodeStatus, TaskStatus

_T = schema.tasks.c
_R = schema.node_runs.c
_G = schema.task_graphs.c
_E = schema.events.c

_EVENTS = 3_000
_TASKS = 30
_STEPS = 600


@dataclass(frozen=True, slots=True)
class Durations:
    """The last plan of a finished task, and the paths of what was done with the seconds it took."""

    body: Mapping[str, Any]
    took: tuple[tuple[str, float], ...]


class DurationRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def recent(self) -> tuple[Durations, ...]:
        """Of the tasks that were completed last: so few of them and of their steps, found among so
        few of the newest events, that it costs little however much there is."""
        async with self._db.read() as view:
            tasks = (await view.execute(_LAST)).all()
            versions = {row.id: row.graph_version for row in tasks}
            plans = await view.execute(_PLANS, {"ids": list(versions)})
            bodies = {
                row.task_id: row.body for row in plans if row.version == versions[row.task_id]
            }
            runs = (await view.execute(_RUNS, {"ids": list(bodies)})).all()
        took: dict[str, list[tuple[str, float]]] = {task: [] for task in bodies}
        for row in runs:
            if row.started_at and row.ended_at:
                seconds = (row.ended_at - row.started_at).total_seconds()
                took[row.task_id].append((row.path, max(0.0, seconds)))
        return tuple(Durations(bodies[task], tuple(each)) for task, each in took.items())


_NEWEST = select(_E.task_id, _E.kind).order_by(_E.id.desc()).limit(_EVENTS).subquery()
_LAST = (
    select(_T.id, _T.graph_version)
    .where(
        _T.id.in_(select(_NEWEST.c.task_id).where(_NEWEST.c.kind == EventKind.COMPLETED.value)),
        _T.status == TaskStatus.COMPLETED.value,
        _T.outside.is_(False),
    )
    .order_by(_T.ended_at.desc())
    .limit(_TASKS)
)
_PLANS = select(_G.task_id, _G.version, _G.body).where(
    _G.task_id.in_(bindparam("ids", expanding=True))
)
_RUNS = (
    select(_R.task_id, _R.path, _R.started_at, _R.ended_at)
    .where(
        _R.task_id.in_(bindparam("ids", expanding=True)),
        _R.status == NodeStatus.DONE.value,
        func.substr(_R.path, 1, 1) != "@",
    )
    .limit(_STEPS)
)
