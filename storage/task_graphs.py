"""Stores versions of task plans, the runs of their nodes, and step durations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, func, insert, select, update

from storage import schema
from storage.db import Database, Transaction, record_from, records_from, row_from
from storage.dialect import PreparedWrite, upsert
from storage.records.tasks import EventKind, NodeRun, NodeStatus, TaskGraph, TaskId, TaskStatus

_G = schema.task_graphs.c
_R = schema.node_runs.c
_A = schema.node_attempts.c

_RUN_COLUMNS = tuple(each.name for each in fields(NodeRun))
_ATTEMPT_COLUMNS = ("task_id", "path", "attempt", "session_id", "started_at")
_SAVE_RUN = PreparedWrite(
    lambda dialect: upsert(dialect, schema.node_runs, _RUN_COLUMNS, ("task_id", "path")),
    *_RUN_COLUMNS,
)
_START_ATTEMPT = PreparedWrite(lambda _: insert(schema.node_attempts), *_ATTEMPT_COLUMNS)
_END_ATTEMPT = PreparedWrite(
    lambda _: (
        update(schema.node_attempts)
        .where(
            _A.task_id == bindparam("task"),
            _A.path == bindparam("which"),
            _A.attempt == bindparam("nth"),
        )
        .values(ended_at=bindparam("at"), error=bindparam("why"))
    )
)


class TaskGraphRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, graph: TaskGraph, *, now: datetime) -> None:
        """Versions are only added, never changed."""
        await tx.execute(insert(schema.task_graphs).values(row_from(graph) | {"at": now}))

    async def find_latest(
        self, task_id: TaskId, *, before: int | None = None, tx: Transaction | None = None
    ) -> TaskGraph | None:
        """The newest version, or the newest before `before`."""
        wanted = _G.task_id == task_id
        if before is not None:
            wanted = wanted & (_G.version < before)
        query = select(schema.task_graphs).where(wanted).order_by(_G.version.desc()).limit(1)
        return record_from(TaskGraph, await self._db.fetch_one(query, tx=tx))

    async def list_runs(
        self, task_id: TaskId, *, tx: Transaction | None = None
    ) -> Mapping[str, NodeRun]:
        """Node runs by path. Nodes not reached have no entry."""
        query = select(schema.node_runs).where(_R.task_id == task_id)
        runs = records_from(NodeRun, await self._db.fetch_all(query, tx=tx))
        return {run.path: run for run in runs}

    async def start_attempt(self, tx: Transaction, run: NodeRun, *, session_id: str) -> None:
        """Store the start of an attempt, with the session it will pay for, but not its node's
        state."""
        attempted = (run.task_id, run.path, run.attempt, session_id, run.started_at)
        await _START_ATTEMPT.send(tx, dict(zip(_ATTEMPT_COLUMNS, attempted, strict=True)))

    async def finish_attempt(self, tx: Transaction, run: NodeRun) -> None:
        """Store how an attempt ended; not where that leaves its node."""
        ended = {"task": run.task_id, "which": run.path, "nth": run.attempt}
        await _END_ATTEMPT.send(tx, {**ended, "at": run.ended_at, "why": run.error})

    async def release_attempt(
        self, tx: Transaction, run: NodeRun, *, reason: str, now: datetime
    ) -> None:
        """Close the attempt with a reason and reset its step to run again."""
        free = replace(run, status=NodeStatus.PENDING, ended_at=now)
        await self.save_run(tx, free)
        await self.finish_attempt(tx, replace(free, error=reason))

    async def save_run(self, tx: Transaction, run: NodeRun) -> None:
        await _SAVE_RUN.send(tx, row_from(run))


_T = schema.tasks.c
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

    async def list_recent(self) -> tuple[TaskStepDurations, ...]:
        """Durations from the tasks completed last; limits on tasks, steps and events bound the cost
        of the query."""
        async with self._db.read() as view:
            tasks = (await view.execute(_LAST_COMPLETED)).all()
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


_NEWEST_EVENTS = select(_E.task_id, _E.kind).order_by(_E.id.desc()).limit(_MAX_EVENTS).subquery()
_LAST_COMPLETED = (
    select(_T.id, _T.graph_version)
    .where(
        _T.id.in_(
            select(_NEWEST_EVENTS.c.task_id).where(
                _NEWEST_EVENTS.c.kind == EventKind.COMPLETED.value
            )
        ),
        _T.status == TaskStatus.COMPLETED.value,
        _T.outside.is_(False),
    )
    .order_by(_T.ended_at.desc())
    .limit(_MAX_TASKS)
)
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
    .limit(_MAX_STEPS)
)
