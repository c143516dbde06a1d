"""Typed logs of tasks: written once, cut to size, kept for good, found again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, case, func, literal, or_, select, true

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import FixedWrite, insert_or_ignore
from storage.records.logs import MOST_TEXT, LogEntry, LogKind, NewLog
from storage.records.notebook import Found
from storage.records.people import PersonId
from storage.records.tasks import Task, TaskId, TaskStatus
from storage.work.rows import task_of
from storage.work.tasks import Sight

_L = schema.task_logs.c
_T = schema.tasks.c
_NEW = (*(each.name for each in fields(NewLog)), "at")
_NOTE = FixedWrite(lambda dialect: insert_or_ignore(dialect, schema.task_logs), *_NEW)
_MOST_WORDS = 8
_LONGEST_WORD = 200
"""SQLite refuses to look for a pattern of many thousands."""
_KEPT = _T.deleted_at.is_(None)
_PLACE = case((_T.status == TaskStatus.RUNNING, 0), (_T.status == TaskStatus.PAUSED, 1), else_=2)
_PRIORITY = case(
    (_T.priority == "urgent", 1),
    (_T.priority == "important", 2),
    else_=3,
)


class LogRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, new: NewLog, *, now: datetime) -> bool:
        """Write it, cut to size; False if its source wrote it before."""
        ignoring = insert_or_ignore(self._db.dialect, schema.task_logs)
        return (await tx.execute(ignoring.values(_row(new, now)))).rowcount == 1

    async def note(self, tx: Transaction, new: NewLog, *, now: datetime) -> None:
        """Write it unless its source wrote it before, and ask no more."""
        await _NOTE.send(tx, _row(new, now))

    async def by_source(self, source: str, *, tx: Transaction | None = None) -> LogEntry | None:
        query = select(schema.task_logs).where(_L.source == source)
        async with self._db.read(tx) as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else _entry(row)

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

    async def count(
        self, task_id: TaskId, kind: LogKind | None = None, *, tx: Transaction | None = None
    ) -> int:
        query = select(func.count()).where(_L.task_id == task_id)
        if kind is not None:
            query = query.where(_L.kind == kind.value)
        async with self._db.read(tx) as connection:
            return await connection.scalar(query) or 0

    async def one(self, sight: Sight, log_id: int) -> Found | None:
        """None if it is none of a visible task."""
        found = await self._found(_visible(sight).where(_L.id == log_id), 1)
        return found[0] if found else None

    async def with_all(self, sight: Sight, words: Sequence[str], limit: int) -> Sequence[Found]:
        """The newest logs of visible tasks that have every one of these words, newest first."""
        return await self._found(_visible(sight).where(_says_all(_L.text, words)), limit)

    async def with_any(
        self, sight: Sight, words: Sequence[str], limit: int, *, besides: TaskId
    ) -> Sequence[Found]:
        """Logs of other visible tasks that have some of these words: most words first, then
        newest."""
        if not words:
            return ()
        said = [_has(_L.text, word) for word in words]
        how_many: ColumnElement[int] = literal(0)
        for each in said:
            how_many = how_many + case((each, 1), else_=0)
        query = _visible(sight).where(or_(*said), _L.task_id != besides)
        return await self._found(query.order_by(how_many.desc()), limit)

    async def tasks_with(self, sight: Sight, words: Sequence[str], limit: int) -> Sequence[Task]:
        """Visible tasks that say all these words in their title, instruction, summary or logs,
        newest first."""
        query = (
            select(schema.tasks)
            .where(_KEPT, sight.clause, *(_mentions(word) for word in words[:_MOST_WORDS]))
            .order_by(_T.created_at.desc(), _T.id)
            .limit(limit)
        )
        async with self._db.read() as connection:
            return tuple(map(task_of, await connection.execute(query)))

    async def to_do(
        self,
        sight: Sight,
        statuses: Collection[TaskStatus],
        limit: int,
        *,
        outside: bool | None = None,
    ) -> Sequence[Task]:
        """What is to be done: by priority, then in progress before paused before the rest, then
        in the order of asking. `outside` asks for that sort of work alone."""
        of_a_sort = true() if outside is None else _T.outside.is_(outside)
        query = (
            select(schema.tasks)
            .where(_KEPT, sight.clause, of_a_sort, _T.status.in_([each.value for each in statuses]))
            .order_by(_PRIORITY, _PLACE, _T.created_at, _T.id)
            .limit(limit)
        )
        async with self._db.read() as connection:
            return tuple(map(task_of, await connection.execute(query)))

    async def _found(self, query: Select[Any], limit: int) -> Sequence[Found]:
        async with self._db.read() as connection:
            rows = (await connection.execute(query.order_by(_L.id.desc()).limit(limit))).all()
            ids = {row.task_id for row in rows}
            tasks = await connection.execute(select(schema.tasks).where(_T.id.in_(ids)))
            by_id = {row.id: task_of(row) for row in tasks}
        return tuple(Found(task=by_id[row.task_id], entry=_entry(row)) for row in rows)


def _row(new: NewLog, now: datetime) -> Mapping[str, Any]:
    values = {name: getattr(new, name) for name in new.__dataclass_fields__}
    return values | {"text": new.text[:MOST_TEXT], "at": now}


def _visible(sight: Sight) -> Select[Any]:
    joined = schema.task_logs.join(schema.tasks, _T.id == _L.task_id)
    return select(schema.task_logs).select_from(joined).where(_KEPT, sight.clause)


def _says_all(column: ColumnElement[str], words: Sequence[str]) -> ColumnElement[bool]:
    return and_(true(), *(_has(column, word) for word in words[:_MOST_WORDS]))


def _mentions(word: str) -> ColumnElement[bool]:
    logged = select(_L.task_id).where(_has(_L.text, word))
    own = (_T.title, _T.instruction, _T.summary)
    return or_(*(_has(part, word) for part in own), _T.id.in_(logged))


def _has(column: ColumnElement[str], word: str) -> ColumnElement[bool]:
    return column.icontains(word[:_LONGEST_WORD], autoescape=True)


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
