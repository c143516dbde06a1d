"""Tasks on disk: the queue, and every status a task moves through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    and_,
    case,
    exists,
    func,
    literal,
    or_,
    select,
    true,
    update,
)

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.errors import AmbiguousId, LostLease, NotFound
from storage.records.people import ChatId, PersonId
from storage.records.tasks import (
    Control,
    Lease,
    NewTask,
    Phase,
    Priority,
    Task,
    TaskId,
    TaskPage,
    TaskStatus,
)

_T = schema.tasks.c
_CHAT = schema.chats.c
_HERE = schema.chats.alias("here")
_OTHER = schema.tasks.alias("other")
_PREFIX = "task-"
_MOST_CANDIDATES = 5

_PROJECT_IS_FREE = or_(
    _T.project_dir == "",
    ~exists().where(and_(_OTHER.c.project_dir == _T.project_dir, _OTHER.c.status == "running")),
)
_QUEUE_ORDER = (_T.rank, _T.resumed_first, _T.created_at, _T.id)
_NEXT = (
    select(_T.id)
    .where(_T.status == TaskStatus.PENDING, _PROJECT_IS_FREE)
    .order_by(*_QUEUE_ORDER)
    .limit(1)
    .with_for_update(skip_locked=True)
)
_FINAL = tuple(status for status in TaskStatus if status.is_final)
_LIST_ORDER = (case((_T.status.in_(_FINAL), 1), else_=0), _T.created_at.desc(), _T.id)


class TaskChanges(TypedDict, total=False):
    """The columns a task may be moved by."""

    title: str
    priority: Priority
    status: TaskStatus
    status_reason: str
    phase: Phase
    control: Control
    resumed_first: int
    graph_version: int
    failures_in_row: int
    replans: int
    summary: str
    started_at: datetime | None
    ended_at: datetime | None


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
        values = _new_row(new, id, now)
        await tx.execute(insert_or_ignore(self._db.dialect, schema.tasks).values(values))
        query = select(schema.tasks).where(_T.source == new.source)
        row = (await tx.execute(query)).one_or_none()
        return None if row is None else _task(row)

    async def get(self, task_id: TaskId) -> Task:
        async with self._db.read() as connection:
            return await self._one(connection, task_id)

    async def lock(self, tx: Transaction, task_id: TaskId) -> Task:
        """Read it so that no other transaction moves it before this one ends."""
        return await self._one(tx, task_id, lock=True)

    async def find(self, prefix: str, sight: Sight) -> Task:
        """By id or its beginning, with or without `task-`, among what is visible."""
        wanted = prefix.strip().lower().removeprefix(_PREFIX)
        if not wanted:
            raise NotFound("task", prefix)
        query = (
            select(schema.tasks)
            .where(_T.id.startswith(wanted, autoescape=True), sight.clause)
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
        return _task((exact or rows)[0])

    async def page(self, sight: Sight, status: TaskStatus | None, page: int, size: int) -> TaskPage:
        """Unfinished first, newest first; a page too far gives the last one."""
        wanted = and_(sight.clause, true() if status is None else _T.status == status)
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
        return TaskPage(tasks=tuple(map(_task, rows)), page=page, pages=pages, total=total or 0)

    async def ahead(self, task: Task) -> int:
        """How many waiting tasks start before this pending one."""
        before = or_(
            _T.rank < task.priority.rank,
            and_(_T.rank == task.priority.rank, _T.created_at < task.created_at),
        )
        query = select(func.count()).where(_T.status == TaskStatus.PENDING, before)
        async with self._db.read() as connection:
            return await connection.scalar(query) or 0

    async def counts(self) -> Mapping[TaskStatus, int]:
        query = select(_T.status, func.count()).group_by(_T.status)
        async with self._db.read() as connection:
            return {TaskStatus(status): n for status, n in await connection.execute(query)}

    async def made_since(self, when: datetime) -> int:
        query = select(func.count()).where(_T.created_at >= when)
        async with self._db.read() as connection:
            return await connection.scalar(query) or 0

    async def recent(self, limit: int) -> Sequence[Task]:
        query = select(schema.tasks).order_by(_T.created_at.desc(), _T.id).limit(limit)
        async with self._db.read() as connection:
            return tuple(map(_task, await connection.execute(query)))

    async def claim(
        self, tx: Transaction, *, owner: str, now: datetime, lease: timedelta
    ) -> Task | None:
        """Take the first task of the queue whose project is free; None if there is none."""
        task_id = await tx.scalar(_NEXT)
        if task_id is None:
            return None
        claimed = (
            update(schema.tasks)
            .where(_T.id == task_id)
            .values(
                status=TaskStatus.RUNNING,
                status_reason="",
                control=Control.RUN,
                epoch=_T.epoch + 1,
                owner=owner,
                lease_until=now + lease,
                started_at=func.coalesce(_T.started_at, literal(now, _T.started_at.type)),
            )
            .returning(schema.tasks)
        )
        return _task((await tx.execute(claimed)).one())

    async def waiting(self, tx: Transaction, limit: int) -> Sequence[Task]:
        """The first tasks of the queue, whether their project is free or not."""
        query = (
            select(schema.tasks)
            .where(_T.status == TaskStatus.PENDING)
            .order_by(*_QUEUE_ORDER)
            .limit(limit)
        )
        return tuple(map(_task, await tx.execute(query)))

    async def running(self, tx: Transaction) -> Sequence[Task]:
        query = select(schema.tasks).where(_T.status == TaskStatus.RUNNING).order_by(_T.id)
        return tuple(map(_task, await tx.execute(query)))

    async def fence(self, tx: Transaction, lease: Lease, *, until: datetime) -> Task:
        """Lock the task and renew the lease; LostLease if it is not ours any more."""
        held = and_(
            _T.id == lease.task_id,
            _T.epoch == lease.epoch,
            _T.status == TaskStatus.RUNNING,
        )
        renewed = update(schema.tasks).where(held).values(lease_until=until).returning(schema.tasks)
        row = (await tx.execute(renewed)).one_or_none()
        if row is None:
            raise LostLease(lease.task_id)
        return _task(row)

    async def renew(self, tx: Transaction, owner: str, *, until: datetime) -> None:
        """Keep every lease of this owner alive."""
        held = and_(_T.owner == owner, _T.status == TaskStatus.RUNNING)
        await tx.execute(update(schema.tasks).where(held).values(lease_until=until))

    async def move(self, tx: Transaction, task: Task, **changes: Unpack[TaskChanges]) -> Task:
        """Change a task that this transaction has locked. Leaving `running` ends the lease."""
        values: dict[str, Any] = dict(changes)
        if "priority" in changes:
            values["rank"] = changes["priority"].rank
        if changes.get("status", TaskStatus.RUNNING) is not TaskStatus.RUNNING:
            values |= {"epoch": _T.epoch + 1, "owner": "", "lease_until": None}
        moved = update(schema.tasks).where(_T.id == task.id).values(values).returning(schema.tasks)
        return _task((await tx.execute(moved)).one())

    async def orphans(self, tx: Transaction) -> Sequence[tuple[Task, datetime | None]]:
        """Tasks that claim to run, each with the end of its lease: at start nobody runs them."""
        query = select(schema.tasks).where(_T.status == TaskStatus.RUNNING).order_by(_T.id)
        rows = (await tx.execute(query)).all()
        return tuple((_task(row), row.lease_until) for row in rows)

    async def _one(self, connection: Transaction, task_id: TaskId, *, lock: bool = False) -> Task:
        query = select(schema.tasks).where(_T.id == task_id)
        row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
        if row is None:
            raise NotFound("task", task_id)
        return _task(row)


def _threads_of(chat: ChatId) -> Select[tuple[str]]:
    same = and_(_HERE.c.channel == _CHAT.channel, _HERE.c.external_id == _CHAT.external_id)
    return select(_CHAT.id).join(_HERE, same).where(_HERE.c.id == chat)


def _new_row(new: NewTask, id: TaskId, now: datetime) -> dict[str, Any]:
    return {
        "id": id,
        "source": new.source,
        "title": new.title,
        "instruction": new.instruction,
        "priority": new.priority,
        "rank": new.priority.rank,
        "status": TaskStatus.PENDING,
        "phase": Phase.QUEUED,
        "control": Control.RUN,
        "chat_id": new.chat_id,
        "reply_to": new.reply_to,
        "created_by": new.created_by,
        "project_dir": new.project_dir,
        "model": new.model,
        "backend": new.backend,
        "files": list(new.files),
        "created_at": now,
    }


def _task(row: Row[Any]) -> Task:
    return Task(
        id=TaskId(row.id),
        title=row.title,
        instruction=row.instruction,
        priority=Priority(row.priority),
        status=TaskStatus(row.status),
        status_reason=row.status_reason,
        phase=Phase(row.phase),
        control=Control(row.control),
        chat_id=ChatId(row.chat_id),
        reply_to=row.reply_to,
        created_by=PersonId(row.created_by),
        project_dir=row.project_dir,
        model=row.model,
        backend=row.backend,
        files=tuple(row.files),
        graph_version=row.graph_version,
        epoch=row.epoch,
        failures_in_row=row.failures_in_row,
        replans=row.replans,
        summary=row.summary,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
