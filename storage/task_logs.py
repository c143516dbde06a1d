"""Stores and searches the typed logs of tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, literal, or_, select, true

from storage import schema
from storage.db import Database, Transaction, record_from, records_from, row_from
from storage.dialect import PreparedWrite, insert_or_ignore
from storage.records.task_logs import MAX_LOG_TEXT, LogEntry, LogKind, LogMatch, NewLog
from storage.records.tasks import Task, TaskId, TaskPriority, TaskStatus
from storage.tasks import NOT_DELETED, TaskVisibility

_L = schema.task_logs.c
_T = schema.tasks.c
_LOG_COLUMNS = (*(each.name for each in fields(NewLog)), "at")
_INSERT_LOG = PreparedWrite(
    lambda dialect: insert_or_ignore(dialect, schema.task_logs), *_LOG_COLUMNS
)
_MAX_WORDS = 8
_MAX_WORD_LENGTH = 200
"""SQLite refuses LIKE patterns of many thousands of characters."""
_STOP_KINDS = (LogKind.CHECKPOINT.value, LogKind.BLOCKED.value)
_STATUS_ORDER = case(
    (_T.status == TaskStatus.RUNNING, 0), (_T.status == TaskStatus.PAUSED, 1), else_=2
)
_PRIORITY_ORDER = case(*((_T.priority == each, each.rank) for each in TaskPriority))


class TaskLogRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, new: NewLog, *, now: datetime) -> bool:
        """Write a log, truncated to size; False if its source wrote one before."""
        ignoring = insert_or_ignore(self._db.dialect, schema.task_logs)
        return (await tx.execute(ignoring.values(_log_values(new, now)))).rowcount == 1

    async def add_deferred(self, tx: Transaction, new: NewLog, *, now: datetime) -> None:
        """Write a log unless its source wrote one before, without awaiting the result."""
        await _INSERT_LOG.send(tx, _log_values(new, now))

    async def find_by_source(
        self, source: str, *, tx: Transaction | None = None
    ) -> LogEntry | None:
        query = select(schema.task_logs).where(_L.source == source)
        return record_from(LogEntry, await self._db.fetch_one(query, tx=tx))

    async def list_latest(
        self,
        task_id: TaskId,
        limit: int,
        *,
        kinds: Collection[LogKind] = (),
        tx: Transaction | None = None,
    ) -> Sequence[LogEntry]:
        """The newest `limit` of these kinds, or of all, oldest first."""
        query = select(schema.task_logs).where(_L.task_id == task_id)
        if kinds:
            query = query.where(_L.kind.in_([kind.value for kind in kinds]))
        newest = query.order_by(_L.id.desc()).limit(limit)
        return records_from(LogEntry, reversed(await self._db.fetch_all(newest, tx=tx)))

    async def count(
        self, task_id: TaskId, kind: LogKind | None = None, *, tx: Transaction | None = None
    ) -> int:
        query = select(func.count()).where(_L.task_id == task_id)
        if kind is not None:
            query = query.where(_L.kind == kind.value)
        return await self._db.fetch_value(query, tx=tx) or 0

    async def find_visible(self, visibility: TaskVisibility, log_id: int) -> LogMatch | None:
        """None if its task is not visible."""
        found = await self._select_matches(_select_visible(visibility).where(_L.id == log_id), 1)
        return found[0] if found else None

    async def search_all_words(
        self, visibility: TaskVisibility, words: Sequence[str], limit: int
    ) -> Sequence[LogMatch]:
        """Logs of visible tasks with all these words, newest first."""
        return await self._select_matches(
            _select_visible(visibility).where(
                *(_contains(_L.text, word) for word in words[:_MAX_WORDS])
            ),
            limit,
        )

    async def search_any_word(
        self,
        visibility: TaskVisibility,
        words: Sequence[str],
        limit: int,
        *,
        excluding: TaskId,
        least: int = 1,
    ) -> Sequence[LogMatch]:
        """Logs of other visible tasks with at least `least` of these words: most words first, then
        newest. Without what Shiftboss itself noted on where a task stopped."""
        if not words:
            return ()
        said = [_contains(_L.text, word) for word in words]
        how_many: ColumnElement[int] = literal(0)
        for each in said:
            how_many = how_many + case((each, 1), else_=0)
        query = _select_visible(visibility).where(
            or_(*said),
            how_many >= least,
            _L.task_id != excluding,
            or_(_L.person_id.is_not(None), _L.kind.not_in(_STOP_KINDS)),
        )
        return await self._select_matches(query.order_by(how_many.desc()), limit)

    async def search_tasks(
        self, visibility: TaskVisibility, words: Sequence[str], limit: int
    ) -> Sequence[Task]:
        """Visible tasks with all these words in their title, instruction, summary or logs, newest
        first."""
        query = (
            select(schema.tasks)
            .where(
                NOT_DELETED,
                visibility.where_clause,
                *(_task_mentions(word) for word in words[:_MAX_WORDS]),
            )
            .order_by(_T.created_at.desc(), _T.id)
            .limit(limit)
        )
        return records_from(Task, await self._db.fetch_all(query))

    async def list_tasks_to_do(
        self,
        visibility: TaskVisibility,
        statuses: Collection[TaskStatus],
        limit: int,
        *,
        outside: bool | None = None,
    ) -> Sequence[Task]:
        """Tasks to do: by priority, then in progress before paused before others, then by creation.
        `outside` restricts them to tracked or to worker tasks."""
        of_a_sort = true() if outside is None else _T.outside.is_(outside)
        query = (
            select(schema.tasks)
            .where(NOT_DELETED, visibility.where_clause, of_a_sort, _T.status.in_(list(statuses)))
            .order_by(_PRIORITY_ORDER, _STATUS_ORDER, _T.created_at, _T.id)
            .limit(limit)
        )
        return records_from(Task, await self._db.fetch_all(query))

    async def _select_matches(self, query: Select[Any], limit: int) -> Sequence[LogMatch]:
        async with self._db.read() as connection:
            rows = (await connection.execute(query.order_by(_L.id.desc()).limit(limit))).all()
            ids = {row.task_id for row in rows}
            tasks = await connection.execute(select(schema.tasks).where(_T.id.in_(ids)))
            by_id = {row.id: record_from(Task, row) for row in tasks}
        return tuple(
            LogMatch(task=by_id[row.task_id], entry=record_from(LogEntry, row)) for row in rows
        )


def _log_values(new: NewLog, now: datetime) -> Mapping[str, Any]:
    return row_from(new) | {"text": new.text[:MAX_LOG_TEXT], "at": now}


def _select_visible(visibility: TaskVisibility) -> Select[Any]:
    joined = schema.task_logs.join(schema.tasks, _T.id == _L.task_id)
    return select(schema.task_logs).select_from(joined).where(NOT_DELETED, visibility.where_clause)


def _task_mentions(word: str) -> ColumnElement[bool]:
    logged = select(_L.task_id).where(_contains(_L.text, word))
    own = (_T.title, _T.instruction, _T.summary)
    return or_(*(_contains(part, word) for part in own), _T.id.in_(logged))


def _contains(column: ColumnElement[str], word: str) -> ColumnElement[bool]:
    return column.icontains(word[:_MAX_WORD_LENGTH], autoescape=True)
