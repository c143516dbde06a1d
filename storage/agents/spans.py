"""Spans on disk. Only calls of models are written; all else that a trace shows is in the rows that
the work leaves anyway, and is read from there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Table, bindparam, delete, func, insert, select, update

from storage import schema
from storage.agents.tables import helpers, spans, tool_calls
from storage.db import Database, Transaction
from storage.dialect import FixedWrite
from storage.records.tasks import TaskId, TaskStatus
from storage.records.workers.spans import (
    Attribute,
    HelperWork,
    ModelCall,
    NodeAttempt,
    ToolUse,
)

_S = spans.c
_T = schema.tasks.c
_E = schema.events.c
_LOOK = 1000
"""Events at a time."""
_KIND = "llm"
_CALL = tuple(each.name for each in fields(ModelCall))

_BEGIN = FixedWrite(lambda _: insert(spans), *_CALL, "kind")
_END = FixedWrite(
    lambda _: (
        update(spans)
        .where(_S.span_id == bindparam("which"))
        .values(
            status=bindparam("how"),
            name=bindparam("called"),
            attributes=bindparam("facts"),
            ended_at=bindparam("at"),
        )
    )
)

_Row = TypeVar("_Row", NodeAttempt, ToolUse, HelperWork)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """What a task's trace is made of besides its plan and runs, oldest first."""

    calls: Sequence[ModelCall]
    attempts: Sequence[NodeAttempt]
    tools: Sequence[ToolUse]
    helpers: Sequence[HelperWork]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stirred:
    """Tasks of which there may be something new: all that run, and those with events since.
    `event` is the last that was looked at."""

    tasks: Sequence[TaskId]
    running: Collection[TaskId]
    event: int


class SpanRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def begin(self, tx: Transaction, call: ModelCall) -> None:
        values = {name: getattr(call, name) for name in _CALL}
        await _BEGIN.send(tx, {**values, "attributes": dict(call.attributes), "kind": _KIND})

    async def end(
        self,
        tx: Transaction,
        span_id: str,
        *,
        status: str,
        name: str,
        attributes: dict[str, Attribute],
        now: datetime,
    ) -> None:
        """Nothing where the row is gone."""
        told = {"which": span_id, "how": status, "called": name, "facts": attributes, "at": now}
        await _END.send(tx, told)

    async def pieces(self, task_id: TaskId, *, tx: Transaction) -> Pieces:
        calls = select(*(_S[name] for name in _CALL)).where(_S.task_id == task_id)
        rows = (await tx.execute(calls.order_by(_S.started_at, _S.span_id))).all()
        made = [ModelCall(**{**row._asdict(), "task_id": TaskId(row.task_id)}) for row in rows]
        attempts = schema.node_attempts
        return Pieces(
            calls=made,
            attempts=await _rows(tx, attempts, NodeAttempt, task_id, "started_at"),
            tools=await _tools(tx, task_id),
            helpers=await _rows(tx, helpers, HelperWork, task_id, "created_at"),
        )

    async def last_event(self) -> int:
        async with self._db.read() as view:
            return int(await view.scalar(select(func.max(_E.id))) or 0)

    async def stirred(self, *, after: int) -> Stirred:
        running = select(_T.id).where(_T.status == TaskStatus.RUNNING.value)
        since = select(_E.id, _E.task_id).where(_E.id > after).order_by(_E.id).limit(_LOOK)
        async with self._db.read() as view:
            now = [TaskId(each) for each in (await view.scalars(running)).all()]
            rows = (await view.execute(since)).all()
        stirred = [TaskId(row.task_id) for row in rows]
        return Stirred(
            tasks=tuple(dict.fromkeys([*stirred, *now])),
            running=frozenset(now),
            event=rows[-1].id if rows else after,
        )

    async def prune(self, *, before: datetime) -> int:
        """Forget the calls of tasks that have ended before; how many."""
        ended = select(_T.id).where(_T.ended_at < before)
        old = (_S.started_at < before) & _S.task_id.in_(ended)
        async with self._db.write() as tx:
            return (await tx.execute(delete(spans).where(old))).rowcount


async def _rows(
    tx: Transaction, table: Table, kind: type[_Row], task_id: TaskId, order: str
) -> Sequence[_Row]:
    columns = [table.c[each.name] for each in fields(kind)]
    query = select(*columns).where(table.c.task_id == task_id).order_by(table.c[order])
    return [kind(**row._asdict()) for row in (await tx.execute(query)).all()]


async def _tools(tx: Transaction, task_id: TaskId) -> Sequence[ToolUse]:
    table = tool_calls.c
    asked = table.approval_id.is_not(None).label("asked")
    columns: list[Any] = [table[each.name] for each in fields(ToolUse) if each.name != "asked"]
    query = select(*columns, asked).where(table.task_id == task_id).order_by(table.id)
    rows = (await tx.execute(query)).all()
    return [ToolUse(**{**row._asdict(), "asked": bool(row.asked)}) for row in rows]
