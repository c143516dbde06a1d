"""A task's plans, one version after the other, and what became of each node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Row, bindparam, insert, select, update

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import FixedWrite, upsert
from storage.records.tasks import Graph, NodeRun, NodeStatus, TaskId

_G = schema.task_graphs.c
_R = schema.node_runs.c
_A = schema.node_attempts.c

_RUN = (
    "task_id",
    "path",
    "status",
    "attempt",
    "output",
    "error",
    "started_at",
    "ended_at",
    "wake_at",
)
_ATTEMPT = ("task_id", "path", "attempt", "session_id", "started_at")
_PUT = FixedWrite(
    lambda dialect: upsert(dialect, schema.node_runs, _RUN, ("task_id", "path")), *_RUN
)
_BEGIN = FixedWrite(lambda _: insert(schema.node_attempts), *_ATTEMPT)
_END = FixedWrite(
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


class GraphRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, graph: Graph, *, now: datetime) -> None:
        """Versions only ever come to; none is changed."""
        await tx.execute(
            insert(schema.task_graphs).values(
                task_id=graph.task_id,
                version=graph.version,
                body=dict(graph.body),
                reason=graph.reason,
                author=graph.author,
                at=now,
            )
        )

    async def latest(
        self, task_id: TaskId, *, before: int | None = None, tx: Transaction | None = None
    ) -> Graph | None:
        """The newest, or the one that came before that version."""
        wanted = _G.task_id == task_id
        if before is not None:
            wanted = wanted & (_G.version < before)
        query = select(schema.task_graphs).where(wanted).order_by(_G.version.desc()).limit(1)
        async with self._db.read(tx) as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else _graph(row)

    async def runs(
        self, task_id: TaskId, *, tx: Transaction | None = None
    ) -> Mapping[str, NodeRun]:
        """What became of the nodes, by path. Nodes not reached have no entry."""
        query = select(schema.node_runs).where(_R.task_id == task_id)
        async with self._db.read(tx) as connection:
            rows = (await connection.execute(query)).all()
        return {row.path: _run(row) for row in rows}

    async def start(
        self,
        tx: Transaction,
        task_id: TaskId,
        path: str,
        *,
        attempt: int,
        session_id: str,
        now: datetime,
    ) -> NodeRun:
        """Mark a node running under this attempt, with the session it will pay for."""
        run = NodeRun(
            task_id=task_id,
            path=path,
            status=NodeStatus.RUNNING,
            attempt=attempt,
            output={},
            error="",
            started_at=now,
            ended_at=None,
        )
        await self.put(tx, run)
        attempted = (task_id, path, attempt, session_id, now)
        await _BEGIN.send(tx, dict(zip(_ATTEMPT, attempted, strict=True)))
        return run

    async def finish(self, tx: Transaction, run: NodeRun) -> None:
        """Store how an attempt ended, and where that leaves its node."""
        await self.put(tx, run)
        ended = {"task": run.task_id, "which": run.path, "nth": run.attempt}
        await _END.send(tx, {**ended, "at": run.ended_at, "why": run.error})

    async def release(self, tx: Transaction, run: NodeRun, *, why: str, now: datetime) -> None:
        """Close the attempt with its reason and let the step run again."""
        free = replace(run, status=NodeStatus.PENDING, ended_at=now)
        await self.finish(tx, replace(free, error=why))
        await self.put(tx, free)

    async def put(self, tx: Transaction, run: NodeRun) -> None:
        values = {
            "task_id": run.task_id,
            "path": run.path,
            "status": run.status,
            "attempt": run.attempt,
            "output": dict(run.output),
            "error": run.error,
            "started_at": run.started_at,
            "ended_at": run.ended_at,
            "wake_at": run.wake_at,
        }
        await _PUT.send(tx, values)


def _graph(row: Row[Any]) -> Graph:
    return Graph(
        task_id=TaskId(row.task_id),
        version=row.version,
        body=row.body,
        reason=row.reason,
        author=row.author,
    )


def _run(row: Row[Any]) -> NodeRun:
    return NodeRun(
        task_id=TaskId(row.task_id),
        path=row.path,
        status=NodeStatus(row.status),
        attempt=row.attempt,
        output=row.output,
        error=row.error,
        started_at=row.started_at,
        ended_at=row.ended_at,
        wake_at=row.wake_at,
    )
