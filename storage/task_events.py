"""Stores the commands people give for tasks and the events that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from sqlalchemy import ColumnElement, func, insert, select, update

from storage import schema
from storage.db import Database, Transaction, records_from
from storage.dialect import PreparedWrite, insert_or_ignore
from storage.records.people import PersonId
from storage.records.tasks import EventKind, TaskEvent, TaskId

_C = schema.commands.c
_E = schema.events.c

_APPEND_EVENT = PreparedWrite(lambda _: insert(schema.events), "task_id", "kind", "text", "at")


SUBAGENT_COMMAND = "helper"
"""The command kind of a sub-agent's report."""


class SubagentReport(str):
    """A sub-agent's report among the messages to a worker, marked as not from a person. `label` is
    the sub-agent's name; `path` is the step that started it, empty if unknown."""

    __slots__ = ("label", "path")

    label: str
    path: str

    def __new__(cls, text: str, label: str, path: str = "") -> Self:
        made = super().__new__(cls, text)
        made.label = label
        made.path = path
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInput:
    """Input for a task's worker.

    `messages` are people's messages and each SubagentReport, oldest first; `replan_command_id` is
    the last request for a new plan, 0 if none. `answered_steps` maps a message's index to the step
    whose question it answers, if an approver sent it.
    """

    messages: Sequence[str]
    replan_command_id: int
    replan_reason: str
    answered_steps: Mapping[int, str] = field(default_factory=dict)


class TaskEventRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def record_command(
        self,
        tx: Transaction,
        task_id: TaskId,
        kind: str,
        *,
        source: str,
        by: PersonId | None,
        now: datetime,
        payload: Mapping[str, Any] | None = None,
    ) -> bool:
        """Record a command; False if this source gave it before and it must have no effect."""
        noted = await tx.execute(
            insert_or_ignore(self._db.dialect, schema.commands).values(
                source=source,
                task_id=task_id,
                kind=kind,
                payload=dict(payload or {}),
                person_id=by,
                at=now,
            )
        )
        return noted.rowcount == 1

    async def get_worker_input(
        self, task_id: TaskId, *, tx: Transaction | None = None
    ) -> WorkerInput:
        """All commands of the task that concern its worker."""
        query = select(_C.id, _C.kind, _C.payload).where(_C.task_id == task_id).order_by(_C.id)
        said: list[str] = []
        answers: dict[int, str] = {}
        replan, why = 0, ""
        for row in await self._db.fetch_all(query, tx=tx):
            text = str(row.payload.get("said", ""))
            if row.kind == "replan":
                replan, why = row.id, text
            elif row.kind == SUBAGENT_COMMAND:
                known = {name: str(row.payload.get(name, "")) for name in ("label", "path")}
                said.append(SubagentReport(text, **known))
            elif text:
                if asked_by := row.payload.get("answers"):
                    answers[len(said)] = asked_by
                said.append(text)
        return WorkerInput(
            messages=tuple(said),
            replan_command_id=replan,
            replan_reason=why,
            answered_steps=answers,
        )

    async def append_event(
        self, tx: Transaction, task_id: TaskId, kind: EventKind, *, now: datetime, text: str = ""
    ) -> None:
        await _APPEND_EVENT.send(tx, {"task_id": task_id, "kind": kind, "text": text, "at": now})

    async def list_latest(self, task_id: TaskId, limit: int) -> Sequence[TaskEvent]:
        """The newest `limit` events, oldest first."""
        query = (
            select(schema.events).where(_E.task_id == task_id).order_by(_E.id.desc()).limit(limit)
        )
        return records_from(TaskEvent, reversed(await self._db.fetch_all(query)))

    async def list_after(
        self,
        event_id: int,
        of_tasks: ColumnElement[bool],
        *,
        limit: int,
        task_id: TaskId | None = None,
    ) -> Sequence[TaskEvent]:
        """Events after this one, oldest first, of tasks that are not deleted and fulfil the
        condition."""
        query = select(schema.events).join(schema.tasks, schema.tasks.c.id == _E.task_id)
        query = query.where(_E.id > event_id, schema.tasks.c.deleted_at.is_(None), of_tasks)
        if task_id is not None:
            query = query.where(_E.task_id == task_id)
        query = query.order_by(_E.id).limit(limit)
        return records_from(TaskEvent, await self._db.fetch_all(query))

    async def newest_id(self) -> int:
        """0 if there is none."""
        return await self._db.fetch_value(select(func.max(_E.id))) or 0

    async def list_unnotified(self, limit: int) -> Sequence[TaskEvent]:
        """The oldest events that no card shows yet."""
        query = select(schema.events).where(_E.told_at.is_(None)).order_by(_E.id).limit(limit)
        return records_from(TaskEvent, await self._db.fetch_all(query))

    async def list_unnotified_of(self, task_id: TaskId) -> Sequence[TaskEvent]:
        """All events of the task that no card shows yet, oldest first."""
        query = select(schema.events).where(_E.told_at.is_(None), _E.task_id == task_id)
        return records_from(TaskEvent, await self._db.fetch_all(query.order_by(_E.id)))

    async def is_newest(self, tx: Transaction, event: TaskEvent) -> bool:
        """True if nothing has happened to the event's task since."""
        query = select(_E.id).where(_E.task_id == event.task_id, _E.id > event.id).limit(1)
        return await self._db.fetch_value(query, tx=tx) is None

    async def mark_notified(
        self, tx: Transaction, events: Sequence[TaskEvent], *, now: datetime
    ) -> None:
        """Mark these as sent to the Boss. Call it in the transaction that stores the cards."""
        seen = _E.id.in_([event.id for event in events])
        await tx.execute(update(schema.events).where(seen).values(told_at=now))
