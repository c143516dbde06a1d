"""Spans on disk. Only calls of models are written; all else that a trace shows is in the rows that
the work leaves anyway, and is read from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Table, bindparam, delete, insert, select, update

from storage import schema
from storage.agents.tables import helpers, spans, tool_calls
from storage.db import Database, Transaction
from storage.dialect import FixedWrite
from storage.records.tasks import TaskId
from storage.records.workers.spans import (
    Attribute,
    HelperWork,
    ModelCall,
    NodeAttempt,
    ToolUse,
)

_S = spans.c
_T = schema.tasks.c
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
