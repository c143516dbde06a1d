"""Typed logs of tasks: written once, cut to size, kept for good."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, select

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.records.logs import MOST_TEXT, LogEntry, LogKind, NewLog
from storage.records.people import PersonId
from storage.records.tasks import TaskId

_L = schema.task_logs.c


class LogRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, new: NewLog, *, now: datetime) -> bool:
        """Write it, cut to size; False if its source wrote it before."""
        values = {name: getattr(new, name) for name in new.__dataclass_fields__}
        values |= {"text": new.text[:MOST_TEXT], "at": now}
        ignoring = insert_or_ignore(self._db.dialect, schema.task_logs)
        return (await tx.execute(ignoring.values(values))).rowcount == 1

    async def latest(
        self,
        task_id: TaskId,
        limit: int,
        *,
        kinds: Collection[LogKind] = (),
        tx: Transaction | None = None,
    ) -> Sequence[LogEntry]:
        """The newest `limit` of these kinds, or of all; oldest of them first."""
        query = select(schema.task_logs).where(_L.task_id == task_id)
        if kinds:
            query = query.where(_L.kind.in_([kind.value for kind in kinds]))
        async with self._db.read(tx) as connection:
            rows = (await connection.execute(query.order_by(_L.id.desc()).limit(limit))).all()
        return tuple(map(_entry, reversed(rows)))

    async def count(self, task_id: TaskId, kind: LogKind | None = None) -> int:
        query = select(func.count()).where(_L.task_id == task_id)
        if kind is not None:
            query = query.where(_L.kind == kind.value)
        async with self._db.read() as connection:
            return await connection.scalar(query) or 0


def _entry(row: Row[Any]) -> LogEntry:
    return LogEntry(
        id=row.id,
        task_id=TaskId(row.task_id),
        kind=LogKind(row.kind),
        text=row.text,
        stage=row.stage,
        attempt=row.attempt,
        file=row.file,
        person_id=PersonId(row.person_id) if row.person_id else None,
        at=row.at,
    )
