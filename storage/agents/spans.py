"""Spans on disk. Only calls of models are written; all else that a trace shows is in the rows that
the work leaves anyway, and is read from there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Table, bindparam, delete, func, insert, select, update

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
_BEHIND = "g"
"""Comes after every hexadecimal digit, however a database orders letters."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What an answer outside tasks is made of: at least one call, oldest first."""

    calls: Sequence[ModelCall]
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
            attempts=await _rows(
                tx, attempts, NodeAttempt, attempts.c.task_id == task_id, "started_at"
            ),
            tools=await _tools(tx, tool_calls.c.task_id == task_id),
            helpers=await _rows(
                tx, helpers, HelperWork, helpers.c.task_id == task_id, "created_at"
            ),
        )

    async def last_turn(self, prefix: str, *, tx: Transaction) -> Turn | None:
        """Of the traces whose ids begin so, the one that began last."""
        mine = (_S.trace_id >= prefix) & (_S.trace_id < f"{prefix}{_BEHIND}") & _S.task_id.is_(None)
        query = select(_S.trace_id).where(mine).group_by(_S.trace_id)
        newest = query.order_by(func.min(_S.started_at).desc()).limit(1)
        last = (await tx.execute(newest)).one_or_none()
        if last is None:
            return None
        calls = await self.calls_in([last.trace_id], tx=tx)
        sessions = {str(each.attributes.get("gen_ai.conversation.id")) for each in calls}
        begun, used, sent = calls[0].started_at, tool_calls.c, helpers.c
        during = func.coalesce(used.started_at, used.asked_at) >= begun
        sent_off = sent.parent_session.in_(sessions) & (sent.created_at >= begun)
        return Turn(
            calls=calls,
            tools=await _tools(tx, used.session_id.in_(sessions) & during),
            helpers=await _rows(tx, helpers, HelperWork, sent_off, "created_at"),
        )

    async def calls_in(self, traces: Collection[str], *, tx: Transaction) -> Sequence[ModelCall]:
        """Oldest first."""
        if not traces:
            return ()
        calls = select(*(_S[name] for name in _CALL)).where(_S.trace_id.in_(traces))
        rows = (await tx.execute(calls.order_by(_S.started_at, _S.span_id))).all()
        return [ModelCall(**row._asdict()) for row in rows]

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
        """Forget the calls of tasks that have ended before, and of talk from before; how many."""
        ended = select(_T.id).where(_T.ended_at < before)
        old = (_S.started_at < before) & (_S.task_id.in_(ended) | _S.task_id.is_(None))
        async with self._db.write() as tx:
            return (await tx.execute(delete(spans).where(old))).rowcount


async def _rows(
    tx: Transaction, table: Table, kind: type[_Row], wanted: ColumnElement[bool], order: str
) -> Sequence[_Row]:
    columns = [table.c[each.name] for each in fields(kind)]
    query = select(*columns).where(wanted).order_by(table.c[order])
    return [kind(**row._asdict()) for row in (await tx.execute(query)).all()]


async def _tools(tx: Transaction, wanted: ColumnElement[bool]) -> Sequence[ToolUse]:
    table = tool_calls.c
    asked = table.approval_id.is_not(None).label("asked")
    columns: list[Any] = [table[each.name] for each in fields(ToolUse) if each.name != "asked"]
    query = select(*columns, asked).where(wanted).order_by(table.id)
    rows = (await tx.execute(query)).all()
    return [ToolUse(**{**row._asdict(), "asked": bool(row.asked)}) for row in rows]
