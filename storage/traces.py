"""Stores the spans of model calls and reads all other parts of a trace from existing rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Table, bindparam, delete, func, insert, select, update

from storage import schema
from storage.db import Database, Transaction, records_from, row_from
from storage.dialect import PreparedWrite
from storage.records.tasks import TaskId, TaskStatus
from storage.records.traces import ModelCall, NodeAttempt, SpanAttribute, SubagentUse, ToolUse
from storage.schema import helpers, spans, tool_calls

_S = spans.c
_T = schema.tasks.c
_E = schema.events.c
_PRUNE_BATCH = 1000
_EVENT_BATCH = 1000
"""Events read at a time."""
_AFTER_HEX_DIGITS = "g"
"""Sorts after every hexadecimal digit in any collation."""
_MODEL_CALL_KIND = "llm"
_CALL_COLUMNS = tuple(each.name for each in fields(ModelCall))

_INSERT_CALL = PreparedWrite(lambda _: insert(spans), *_CALL_COLUMNS, "kind")
_FINISH_CALL = PreparedWrite(
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

_Span = TypeVar("_Span", NodeAttempt, SubagentUse)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceParts:
    """A task's trace data besides its plan and runs, oldest first."""

    calls: Sequence[ModelCall]
    attempts: Sequence[NodeAttempt]
    tools: Sequence[ToolUse]
    helpers: Sequence[SubagentUse]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveTasks:
    """Running tasks and those with new events. `last_event_id` is the last event read."""

    tasks: Sequence[TaskId]
    running: Collection[TaskId]
    last_event_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTrace:
    """The trace data of an answer outside tasks: at least one call, oldest first."""

    calls: Sequence[ModelCall]
    tools: Sequence[ToolUse]
    helpers: Sequence[SubagentUse]


class SpanRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def start_model_call(self, tx: Transaction, call: ModelCall) -> None:
        await _INSERT_CALL.send(tx, row_from(call) | {"kind": _MODEL_CALL_KIND})

    async def finish_model_call(
        self,
        tx: Transaction,
        span_id: str,
        *,
        status: str,
        name: str,
        attributes: dict[str, SpanAttribute],
        now: datetime,
    ) -> None:
        """Does nothing if the row is gone."""
        told = {"which": span_id, "how": status, "called": name, "facts": attributes, "at": now}
        await _FINISH_CALL.send(tx, told)

    async def get_task_parts(self, task_id: TaskId, *, tx: Transaction) -> TraceParts:
        attempts = schema.node_attempts
        return TraceParts(
            calls=await _select_calls(tx, _S.task_id == task_id),
            attempts=await _select_spans(
                tx, attempts, NodeAttempt, attempts.c.task_id == task_id, "started_at"
            ),
            tools=await _select_tool_calls(tx, tool_calls.c.task_id == task_id),
            helpers=await _select_spans(
                tx, helpers, SubagentUse, helpers.c.task_id == task_id, "created_at"
            ),
        )

    async def get_last_answer(self, prefix: str, *, tx: Transaction) -> AnswerTrace | None:
        """The newest answer among traces with this id prefix."""
        mine = (
            (_S.trace_id >= prefix)
            & (_S.trace_id < f"{prefix}{_AFTER_HEX_DIGITS}")
            & _S.task_id.is_(None)
        )
        query = select(_S.trace_id).where(mine).group_by(_S.trace_id)
        newest = query.order_by(func.min(_S.started_at).desc()).limit(1)
        last = (await tx.execute(newest)).one_or_none()
        if last is None:
            return None
        calls = await _select_calls(tx, _S.trace_id == last.trace_id)
        sessions = {str(each.attributes.get("gen_ai.conversation.id")) for each in calls}
        begun, used, sent = calls[0].started_at, tool_calls.c, helpers.c
        during = func.coalesce(used.started_at, used.asked_at) >= begun
        sent_off = sent.parent_session.in_(sessions) & (sent.created_at >= begun)
        return AnswerTrace(
            calls=calls,
            tools=await _select_tool_calls(tx, used.session_id.in_(sessions) & during),
            helpers=await _select_spans(tx, helpers, SubagentUse, sent_off, "created_at"),
        )

    async def list_model_calls(
        self, trace_ids: Collection[str], *, tx: Transaction
    ) -> Sequence[ModelCall]:
        """Oldest first."""
        if not trace_ids:
            return ()
        return await _select_calls(tx, _S.trace_id.in_(trace_ids))

    async def last_event_id(self) -> int:
        return await self._db.fetch_value(select(func.max(_E.id))) or 0

    async def list_active_tasks(self, *, after: int) -> ActiveTasks:
        running = select(_T.id).where(_T.status == TaskStatus.RUNNING.value)
        since = select(_E.id, _E.task_id).where(_E.id > after).order_by(_E.id).limit(_EVENT_BATCH)
        async with self._db.read() as view:
            now = [TaskId(each) for each in (await view.scalars(running)).all()]
            rows = (await view.execute(since)).all()
        stirred = [TaskId(row.task_id) for row in rows]
        return ActiveTasks(
            tasks=tuple(dict.fromkeys([*stirred, *now])),
            running=frozenset(now),
            last_event_id=rows[-1].id if rows else after,
        )

    async def prune(self, *, before: datetime) -> int:
        """Delete calls of tasks that ended before, and calls outside tasks from before; returns how
        many."""
        ended = select(_T.id).where(_T.ended_at < before)
        old = (_S.started_at < before) & (_S.task_id.in_(ended) | _S.task_id.is_(None))
        batch = select(_S.span_id).where(old).limit(_PRUNE_BATCH).scalar_subquery()
        total = 0
        while True:
            async with self._db.write() as tx:
                gone = (await tx.execute(delete(spans).where(_S.span_id.in_(batch)))).rowcount
            total += gone
            if gone < _PRUNE_BATCH:
                return total


async def _select_calls(tx: Transaction, wanted: ColumnElement[bool]) -> Sequence[ModelCall]:
    query = select(spans).where(wanted).order_by(_S.started_at, _S.span_id)
    return records_from(ModelCall, await tx.execute(query))


async def _select_spans(
    tx: Transaction, table: Table, kind: type[_Span], wanted: ColumnElement[bool], order: str
) -> Sequence[_Span]:
    columns = [table.c[each.name] for each in fields(kind)]
    query = select(*columns).where(wanted).order_by(table.c[order])
    return records_from(kind, await tx.execute(query))


async def _select_tool_calls(tx: Transaction, wanted: ColumnElement[bool]) -> Sequence[ToolUse]:
    table = tool_calls.c
    asked = table.approval_id.is_not(None).label("asked")
    columns: list[Any] = [table[each.name] for each in fields(ToolUse) if each.name != "asked"]
    query = select(*columns, asked).where(wanted).order_by(table.id)
    return records_from(ToolUse, await tx.execute(query))
