"""Tasks on disk: made, found, listed, locked, and every change of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, Unpack

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    case,
    func,
    or_,
    select,
    true,
    update,
)

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.errors import AmbiguousId, NotFound
from storage.records.people import ChatId, PersonId
from storage.records.tasks import (
    Control,
    NewTask,
    Phase,
    Priority,
    Task,
    TaskId,
    TaskPage,
    TaskStatus,
)
from storage.work.rows import new_row, task_of

_T = schema.tasks.c
_CHAT = schema.chats.c
_HERE = schema.chats.alias("here")
_PREFIX = "task-"
_MOST_CANDIDATES = 5
_LONGEST_ID = 64

_FINAL = tuple(status for status in TaskStatus if status.is_final)
_LIST_ORDER = (case((_T.status.in_(_FINAL), 1), else_=0), _T.created_at.desc(), _T.id)

_KEPT = _T.deleted_at.is_(None)


class TaskChanges(TypedDict, total=False):
    """The columns a task may be moved by."""

    title: str
    instruction: str
    priority: Priority
    status: TaskStatus
    status_reason: str
    phase: Phase
    control: Control
    resumed_first: int
    graph_version: int
    failures_in_row: int
    errors: int
    replans: int
    summary: str
    stage: str
    tokens_before: int | None
    let_in: bool
    wake_at: datetime | None
    waiting_since: datetime
    started_at: datetime | None
    ended_at: datetime | None
    deleted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Whose tasks may be shown: all, or those of one chat with all its threads and, where a
    person is given, that person's own."""

    everything: bool
    person: PersonId | None
    chat: ChatId

    @property
    def clause(self) -> ColumnElement[bool]:
        if self.everything:
            return true()
        here = _T.chat_id.in_(_threads_of(self.chat))
        return here if self.person is None else or_(_T.created_by == self.person, here)


class TaskRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def create(
        self, tx: Transaction, new: NewTask, *, id: TaskId, now: datetime
    ) -> Task | None:
        """Queue it, unless its source asked before: then the task made at that time.

        None if another task has this id: try another.
        """
        values = new_row(new, id, now)
        await tx.execute(insert_or_ignore(self._db.dialect, schema.tasks).values(values))
        query = select(schema.tasks).where(_T.source == new.source)
        row = (await tx.execute(query)).one_or_none()
        return None if row is None else task_of(row)

    async def get(self, task_id: TaskId, *, tx: Transaction | None = None) -> Task:
        async with self._db.read(tx) as connection:
            return await self._one(connection, task_id)

    async def ordered_by(self, source: str) -> Task | None:
        """The task that this message has moved already, deleted or not."""
        moved = select(schema.commands.c.task_id).where(schema.commands.c.source == source)
        query = select(schema.tasks).where(_T.id.in_(moved))
        async with self._db.read() as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else task_of(row)

    async def lock(self, tx: Transaction, task_id: TaskId) -> Task:
        """Read it so that no other transaction moves it before this one ends."""
        return await self._one(tx, task_id, lock=True)

    async def find(self, prefix: str, sight: Sight) -> Task:
        """By id or its beginning, with or without `task-`, among what is visible."""
        wanted = prefix.strip().lower().removeprefix(_PREFIX)
        if not wanted or len(wanted) > _LONGEST_ID:
            raise NotFound("task", prefix)
        query = (
            select(schema.tasks)
            .where(_T.id.startswith(wanted, autoescape=True), _KEPT, sight.clause)
            .order_by(_T.created_at.desc())
            .limit(_MOST_CANDIDATES + 1)
        )
        async with self._db.read() as connection:
            rows = (await connection.execute(query)).all()
        exact = [row for row in rows if row.id == wanted]
        if not rows:
            raise NotFound("task", prefix)
        if len(rows) > 1 and not exact:
            raise AmbiguousId(prefix, tuple(row.id for row in rows[:_MOST_CANDIDATES]))
        return task_of((exact or rows)[0])

    async def page(self, sight: Sight, status: TaskStatus | None, page: int, size: int) -> TaskPage:
        """Unfinished first, newest first; a page too far gives the last one."""
        wanted = and_(_KEPT, sight.clause, true() if status is None else _T.status == status)
        async with self._db.read() as connection:
            total = await connection.scalar(
                select(func.count()).select_from(schema.tasks).where(wanted)
            )
            pages = max(1, -(-(total or 0) // size))
            page = min(max(1, page), pages)
            rows = await connection.execute(
                select(schema.tasks)
                .where(wanted)
                .order_by(*_LIST_ORDER)
                .limit(size)
                .offset((page - 1) * size)
            )
        return TaskPage(tasks=tuple(map(task_of, rows)), page=page, pages=pages, total=total or 0)

    async def counts(self) -> Mapping[TaskStatus, int]:
        query = select(_T.status, func.count()).where(_KEPT).group_by(_T.status)
        async with self._db.read() as connection:
            return {TaskStatus(status): n for status, n in await connection.execute(query)}

    async def made_since(self, when: datetime) -> int:
        query = select(func.count()).where(_T.created_at >= when)
        async with self._db.read() as connection:
            return await connection.scalar(query) or 0

    async def recent(self, limit: int) -> Sequence[Task]:
        newest = select(schema.tasks).where(_KEPT).order_by(_T.created_at.desc(), _T.id)
        query = newest.limit(limit)
        async with self._db.read() as connection:
            return tuple(map(task_of, await connection.execute(query)))

    async def move(self, tx: Transaction, task: Task, **changes: Unpack[TaskChanges]) -> Task:
        """Change a task that this transaction has locked. Leaving `running` ends the lease."""
        values: dict[str, Any] = dict(changes)
        if "priority" in changes:
            values["rank"] = changes["priority"].rank
        status = changes.get("status", TaskStatus.RUNNING)
        if status is not TaskStatus.RUNNING:
            values |= {"epoch": _T.epoch + 1, "owner": "", "lease_until": None}
        if status.is_final:
            values |= {"holds_dir": False, "let_in": False, "wake_at": None}
        moved = update(schema.tasks).where(_T.id == task.id).values(values).returning(schema.tasks)
        return task_of((await tx.execute(moved)).one())

    async def _one(self, connection: Transaction, task_id: TaskId, *, lock: bool = False) -> Task:
        query = select(schema.tasks).where(_T.id == task_id)
        row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
        if row is None:
            raise NotFound("task", task_id)
        return task_of(row)


def _threads_of(chat: ChatId) -> Select[tuple[str]]:
    same = and_(_HERE.c.channel == _CHAT.channel, _HERE.c.external_id == _CHAT.external_id)
    return select(_CHAT.id).join(_HERE, same).where(_HERE.c.id == chat)
