"""The queue: who is next, who runs, who waits for whose directory, and the leases they hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import (
    and_,
    bindparam,
    case,
    exists,
    func,
    literal,
    or_,
    select,
    text,
    true,
    tuple_,
    update,
)

from storage import schema
from storage.db import Database, Transaction
from storage.errors import LostLease
from storage.records.tasks import Control, Lease, Priority, Task, TaskStatus
from storage.work.rows import task_of

_T = schema.tasks.c
_OTHER = schema.tasks.alias("other")

_NEIGHBOUR = and_(_OTHER.c.project_dir == _T.project_dir, _OTHER.c.id != _T.id)
_NOT_HELD = or_(
    _T.project_dir == "",
    _T.let_in,
    ~exists().where(_NEIGHBOUR, _OTHER.c.holds_dir, _OTHER.c.status != "running"),
)
_NOT_IN_USE = or_(_T.project_dir == "", ~exists().where(_NEIGHBOUR, _OTHER.c.status == "running"))
_IN_QUEUE = and_(_T.status == TaskStatus.PENDING, ~_T.outside)
_QUEUE_ORDER = (_T.rank, _T.resumed_first, _T.created_at, _T.id)
# The condition is spelled out: SQLite uses a partial index only for the literal words.
_AGED = (
    update(schema.tasks)
    .where(text("status = 'pending' AND rank > 1"), _T.waiting_since <= bindparam("long_ago"))
    .values(rank=Priority.URGENT.rank)
)
_NEXT = (
    select(_T.id)
    .where(_IN_QUEUE, _NOT_IN_USE, _NOT_HELD)
    .order_by(*_QUEUE_ORDER)
    .limit(1)
    .with_for_update(skip_locked=True)
)
_RUNNING = select(schema.tasks).where(_T.status == TaskStatus.RUNNING, ~_T.outside).order_by(_T.id)


class TaskQueue:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def claim(
        self,
        tx: Transaction,
        *,
        owner: str,
        now: datetime,
        lease: timedelta,
        patience: timedelta,
    ) -> Task | None:
        """Take the first task of the queue whose project is free; None if there is none.

        Who has waited for longer than `patience` goes to the head of the queue, whatever its
        priority: a stream of urgent work starves nobody."""
        await tx.execute(_AGED, {"long_ago": now - patience})
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
                wake_at=None,
                holds_dir=and_(_T.project_dir != "", _T.branch == ""),
                started_at=func.coalesce(_T.started_at, literal(now, _T.started_at.type)),
            )
            .returning(schema.tasks)
        )
        return task_of((await tx.execute(claimed)).one())

    async def waiting(self, tx: Transaction, limit: int) -> Sequence[Task]:
        """The first tasks of the queue that could start if slots were free and whoever runs in
        their project made room."""
        query = (
            select(schema.tasks).where(_IN_QUEUE, _NOT_HELD).order_by(*_QUEUE_ORDER).limit(limit)
        )
        return tuple(map(task_of, await tx.execute(query)))

    async def running(self, tx: Transaction) -> Sequence[Task]:
        return tuple(map(task_of, await tx.execute(_RUNNING)))

    async def holder(self, task: Task) -> Task | None:
        """Whoever works in this task's directory or has left work half done there."""
        if not task.project_dir:
            return None
        held = true() if not (task.let_in or task.branch) else _T.status == TaskStatus.RUNNING
        query = (
            select(schema.tasks)
            .where(
                _T.project_dir == task.project_dir,
                _T.id != task.id,
                or_(_T.holds_dir, _T.status == TaskStatus.RUNNING),
                held,
            )
            .order_by(case((_T.status == TaskStatus.RUNNING, 0), else_=1), _T.created_at)
            .limit(1)
        )
        async with self._db.read() as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else task_of(row)

    async def due(self, tx: Transaction, now: datetime) -> Sequence[Task]:
        """Tasks whose time to be looked at again has come."""
        query = select(schema.tasks).where(text("wake_at IS NOT NULL"), _T.wake_at <= now)
        return tuple(map(task_of, await tx.execute(query)))

    async def next_due(self) -> datetime | None:
        query = select(func.min(_T.wake_at)).where(text("wake_at IS NOT NULL"))
        async with self._db.read() as connection:
            due: datetime | None = await connection.scalar(query)
        return due

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
        return task_of(row)

    async def renew(self, tx: Transaction, owner: str, *, until: datetime) -> None:
        """Keep every lease of this owner alive."""
        held = and_(_T.owner == owner, _T.status == TaskStatus.RUNNING)
        await tx.execute(update(schema.tasks).where(held).values(lease_until=until))

    async def orphans(self, tx: Transaction) -> Sequence[tuple[Task, datetime | None]]:
        """Tasks that claim to run, each with the end of its lease: at start nobody runs them."""
        rows = (await tx.execute(_RUNNING)).all()
        return tuple((task_of(row), row.lease_until) for row in rows)

    async def ahead(self, task: Task) -> int:
        """How many waiting tasks start before this pending one."""
        before = tuple_(_T.rank, _T.resumed_first, _T.created_at) < (
            select(_T.rank, _T.resumed_first, _T.created_at)
            .where(_T.id == task.id)
            .scalar_subquery()
        )
        query = select(func.count()).where(_IN_QUEUE, before)
        async with self._db.read() as connection:
            return await connection.scalar(query) or 0
