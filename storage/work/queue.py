"""The queue: who is next, who runs, who waits for whose directory, and the leases they hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import (
    ColumnElement,
    Select,
    Update,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal,
    literal_column,
    or_,
    select,
    text,
    true,
    update,
)

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import by_index
from storage.errors import LostLease
from storage.records.tasks import Control, Lease, Priority, Task, TaskStatus
from storage.work.rows import task_of

_T = schema.tasks.c
_BUSY = schema.tasks.alias("busy")
_HELD = schema.tasks.alias("held")
_OTHER = schema.tasks.alias("other")
_MOST_AGED = 20

# Conditions that a partial index has are spelled out: SQLite knows it again only by the literal
# words. Each set of directories is small and read once, not once for each task of the queue.
_NOT_IN_USE = _T.project_dir.not_in(
    select(_BUSY.c.project_dir).where(text("busy.status = 'running' AND busy.project_dir <> ''"))
)
_HELD_BY_ANOTHER = exists().where(
    _OTHER.c.project_dir == _T.project_dir, text("other.holds_dir"), _OTHER.c.id != _T.id
)
_NOT_HELD = or_(
    _T.let_in,
    _T.project_dir.not_in(select(_HELD.c.project_dir).where(text("held.holds_dir"))),
    and_(_T.holds_dir, ~_HELD_BY_ANOTHER),
)
_IN_QUEUE = and_(_T.status == TaskStatus.PENDING, ~_T.outside)
_QUEUE_ORDER = (_T.rank, _T.resumed_first, _T.created_at, _T.id)
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
        self._aged, self._redated = _aging(db.dialect)

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
        priority: a stream of urgent work starves nobody. It goes there when this claim has been
        made. So a task that was cut in on, and has been given its own rank back, lets the one
        that cut in go first, and then is first again: between any two tasks that cut in on it
        it does at least one step.

        What waits since a moment yet to come was queued by a clock that has been set back since,
        and waits from now on."""
        task_id = await tx.scalar(_NEXT)
        await tx.execute(self._aged, {"long_ago": now - patience})
        await tx.execute(self._redated, {"present": now})
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

    async def waiting(
        self, tx: Transaction, limit: int, *, beside: Sequence[Task] | None = None
    ) -> Sequence[Task]:
        """The first tasks of the queue that could start if slots were free and whoever runs in
        their project made room. With `beside`, the tasks that run, only those for which one of
        them would make room: of a higher priority than some, and than the one in their project.
        """
        query = select(schema.tasks).where(_IN_QUEUE, _NOT_HELD)
        if beside is not None:
            query = query.where(_cuts_in(beside))
        query = query.order_by(*_QUEUE_ORDER).limit(limit)
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
        """Tasks whose time to be looked at again has come, whatever became of them since."""
        query = select(schema.tasks).where(text("wake_at IS NOT NULL"), _T.wake_at <= now)
        return tuple(map(task_of, await tx.execute(query)))

    async def next_due(self) -> datetime | None:
        """When the first of those that wait for nothing but their time is due."""
        query = select(func.min(_T.wake_at)).where(
            text("wake_at IS NOT NULL"), _T.status == TaskStatus.WAITING
        )
        async with self._db.read() as connection:
            due: datetime | None = await connection.scalar(query)
        return due

    async def forget_parked(self, tx: Transaction) -> None:
        """What is in the queue waits for no time."""
        parked = and_(text("wake_at IS NOT NULL"), _T.status == TaskStatus.PENDING)
        await tx.execute(update(schema.tasks).where(parked).values(wake_at=None))

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

    async def first(self, limit: int) -> Sequence[Task]:
        """The beginning of the queue, in order, whoever may start or not."""
        query = select(schema.tasks).where(_IN_QUEUE).order_by(*_QUEUE_ORDER).limit(limit)
        async with self._db.read() as connection:
            return tuple(map(task_of, await connection.execute(query)))


def _aging(dialect: str) -> tuple[Update, Update]:
    """Who has waited too long goes first; who waits since a moment to come waits from now on."""
    since = literal_column("waiting_since", _T.waiting_since.type)
    aging: Select[tuple[str]] = (
        select(literal_column("id", _T.id.type))
        .select_from(by_index(dialect, schema.tasks, "ix_tasks_aging"))
        .where(text("status = 'pending' AND rank > 1"))
    )
    # A few at a time: they are claimed one at a time too.
    longest = aging.where(since <= bindparam("long_ago")).order_by(since).limit(_MOST_AGED)
    aged = (
        update(schema.tasks)
        .where(_T.id.in_(longest))
        .values(rank=Priority.URGENT.rank, resumed_first=0)
    )
    redated = (
        update(schema.tasks)
        .where(_T.id.in_(aging.where(since > bindparam("present"))))
        .values(waiting_since=bindparam("present"))
    )
    return aged, redated


def _cuts_in(running: Sequence[Task]) -> ColumnElement[bool]:
    """By real priorities, not by ranks: long waiting goes first, but cuts in on nobody."""
    least = max((task.priority.rank for task in running), default=0)
    better = [each for each in Priority if each.rank < least]
    kept = {
        each: [t.project_dir for t in running if t.project_dir and t.priority.rank <= each.rank]
        for each in better
    }
    return and_(
        _T.rank < least,
        _T.priority.in_(better),
        *(~and_(_T.priority == each, _T.project_dir.in_(kept[each])) for each in better),
    )
