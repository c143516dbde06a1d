"""What people ordered and what happened: commands, once each, and events, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from sqlalchemy import Row, func, insert, select, update

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import FixedWrite, insert_or_ignore
from storage.records.people import PersonId
from storage.records.tasks import EventKind, TaskEvent, TaskId

_C = schema.commands.c
_E = schema.events.c

_APPEND = FixedWrite(lambda _: insert(schema.events), "task_id", "kind", "text", "at")


HELPER = "helper"
"""The kind under which a helper's report is noted."""


class Report(str):
    """What a helper reports: told to a worker in its place among what people said, and never as
    theirs. `label` is what people call the helper; `path` is the step that sent it off, empty
    where that is not known."""

    __slots__ = ("label", "path")

    label: str
    path: str

    def __new__(cls, text: str, label: str, path: str = "") -> Self:
        made = super().__new__(cls, text)
        made.label = label
        made.path = path
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """`said` is what people told the worker, and its helpers' Reports, oldest first; `replan`
    the number of the last order for a new plan, 0 if there was none. `answers` says, by the index
    of what was said, which step had asked for it: the word of somebody who may allow that step."""

    said: Sequence[str]
    replan: int
    replan_why: str
    answers: Mapping[int, str] = field(default_factory=dict)


class Journal:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def order(
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
        """Note a command; False if this source gave it before: then it must change nothing."""
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

    async def orders(self, tx: Transaction, task_id: TaskId) -> Orders:
        """What people have ordered of the task that concerns its worker."""
        query = select(_C.id, _C.kind, _C.payload).where(_C.task_id == task_id).order_by(_C.id)
        said: list[str] = []
        answers: dict[int, str] = {}
        replan, why = 0, ""
        for row in await tx.execute(query):
            text = str(row.payload.get("said", ""))
            if row.kind == "replan":
                replan, why = row.id, text
            elif row.kind == HELPER:
                known = {name: str(row.payload.get(name, "")) for name in ("label", "path")}
                said.append(Report(text, **known))
            elif text:
                if asked_by := row.payload.get("answers"):
                    answers[len(said)] = asked_by
                said.append(text)
        return Orders(said=tuple(said), replan=replan, replan_why=why, answers=answers)

    async def append(
        self, tx: Transaction, task_id: TaskId, kind: EventKind, *, now: datetime, text: str = ""
    ) -> None:
        await _APPEND.send(tx, {"task_id": task_id, "kind": kind, "text": text, "at": now})

    async def latest(self, task_id: TaskId, limit: int) -> Sequence[TaskEvent]:
        """The newest `limit`, oldest of them first."""
        query = (
            select(schema.events).where(_E.task_id == task_id).order_by(_E.id.desc()).limit(limit)
        )
        async with self._db.read() as connection:
            rows = (await connection.execute(query)).all()
        return tuple(map(_event, reversed(rows)))

    async def untold(self, limit: int) -> Sequence[TaskEvent]:
        """The oldest events that no card shows yet."""
        query = select(schema.events).where(_E.told_at.is_(None)).order_by(_E.id).limit(limit)
        async with self._db.read() as connection:
            return tuple(map(_event, await connection.execute(query)))

    async def told(self, ids: Sequence[int], *, now: datetime) -> None:
        """Remember that these are on their way to the Boss."""
        async with self._db.write() as tx:
            await tx.execute(update(schema.events).where(_E.id.in_(ids)).values(told_at=now))

    async def count(self, task_id: TaskId) -> int:
        async with self._db.read() as connection:
            query = select(func.count()).where(_E.task_id == task_id)
            return await connection.scalar(query) or 0


def _event(row: Row[Any]) -> TaskEvent:
    return TaskEvent(
        id=row.id,
        task_id=TaskId(row.task_id),
        kind=EventKind(row.kind),
        text=row.text,
        at=row.at,
    )
