"""The queue: who is next, who runs, who waits for whose directory, and the leases they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Integer,
    Select,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
    text,
    true,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import FixedWrite, by_index
from storage.errors import LostLease
from storage.records.tasks import Control, Lease, Priority, Task, TaskId, TaskStatus
from storage.work.folders import nested
from storage.work.heads import IN_QUEUE, QUEUE_ORDER, Beside, first_ids
from storage.work.rows import task_of

_T = schema.tasks.c
_MOST_AGED = 20

_RUNNING = select(schema.tasks).where(_T.status == TaskStatus.RUNNING, ~_T.outside).order_by(_T.id)

_CLAIM = (
    update(schema.tasks)
    .where(_T.id == bindparam("which"), _T.status == TaskStatus.PENDING)
    .values(
        status=TaskStatus.RUNNING,
        status_reason="",
        control=Control.RUN,
        epoch=_T.epoch + 1,
        owner=bindparam("who"),
        lease_until=bindparam("until"),
        wake_at=None,
        holds_dir=and_(_T.project_dir != "", _T.branch == ""),
        started_at=func.coalesce(_T.started_at, bindparam("now", type_=_T.started_at.type)),
    )
    .returning(schema.tasks)
)


_OURS = and_(
    _T.id == bindparam("which"),
    _T.epoch == bindparam("life"),
    _T.status == TaskStatus.RUNNING,
)
# Spelled out: what is returned is named without its table otherwise.
_LAST_ORDER = "(SELECT coalesce(max(c.id), 0) FROM commands AS c WHERE c.task_id = tasks.id)"

# All but the files, which are those it was made with.
_KNOWN = tuple(each.name for each in fields(Task) if each.name != "files")
_HELD_KNOWN = FixedWrite(
    lambda _: (
        update(schema.tasks)
        .where(
            _OURS,
            *(_T[name].is_not_distinct_from(bindparam(f"known_{name}")) for name in _KNOWN),
            literal_column(_LAST_ORDER, Integer()) == bindparam("ordered"),
        )
        .values(lease_until=bindparam("until"))
    )
)


class TaskQueue:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._aged, self._redated = _aging(db.dialect)
        self._renewed = _renewed(db.dialect)

    async def claim(
        self,
        tx: Transaction,
        *,
        owner: str,
        now: datetime,
        lease: timedelta,
        patience: timedelta,
        only: TaskId | None = None,
    ) -> Task | None:
        """Take the first task of the queue whose project is free; None if there is none. `only` is
        the one that may be taken, wherever in the queue it is.

        Who has waited for longer than `patience` goes to the head of the queue, whatever its
        priority: a stream of urgent work starves nobody. It goes there when this claim has been
        made. So a task that was cut in on, and has been given its own rank back, lets the one
        that cut in go first, and then is first again: between any two tasks that cut in on it
        it does at least one step.

        What waits since a moment yet to come was queued by a clock that has been set back since,
        and waits from now on."""
        ids = [only] if only else await first_ids(tx, 1, in_use=False)
        await self._aged.send(tx, {"long_ago": now - patience})
        await self._redated.send(tx, {"present": now})
        if not ids:
            return None
        claim = {"which": ids[0], "who": owner, "now": now, "until": now + lease}
        row = (await tx.execute(_CLAIM, claim)).one_or_none()
        return None if row is None else task_of(row)

    async def waiting(
        self, tx: Transaction, limit: int, *, beside: Sequence[Task] | None = None
    ) -> Sequence[Task]:
        """The first tasks of the queue that could start if slots were free and whoever runs in
        their project made room. With `beside`, the tasks that run, only those for which one of
        them would make room: of a higher priority than some, and than the one in their project.
        """
        room = None
        if beside is not None:
            room = Beside(running=frozenset((t.priority.rank, t.project_dir) for t in beside))
        ids = await first_ids(tx, limit, in_use=True, beside=room)
        if not ids:
            return ()
        query = select(schema.tasks).where(_T.id.in_(ids)).order_by(*QUEUE_ORDER)
        return tuple(map(task_of, await tx.execute(query)))

    async def running(self, tx: Transaction) -> Sequence[Task]:
        return tuple(map(task_of, await tx.execute(_RUNNING)))

    async def holder(self, task: Task) -> Task | None:
        """Whoever works in this task's directory, in one around it or inside it, or has left work
        half done there."""
        if not task.project_dir:
            return None
        held = true() if not (task.let_in or task.branch) else _T.status == TaskStatus.RUNNING
        query = (
            select(schema.tasks)
            .where(
                or_(_T.project_dir == task.project_dir, nested(_T.project_dir, task.project_dir)),
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
        task, _ = await self.hold(tx, lease, until=until)
        return task

    async def hold(
        self, tx: Transaction, lease: Lease, *, until: datetime
    ) -> tuple[Task, int | None]:
        """The same, with the number of the last order that people have given of it: 0 for none,
        None where the database cannot say in one go."""
        wanted = {"which": lease.task_id, "life": lease.epoch, "until": until}
        row = (await tx.execute(self._renewed, wanted)).one_or_none()
        if row is None:
            raise LostLease(lease.task_id)
        return task_of(row), row.ordered

    async def hold_known(
        self, tx: Transaction, lease: Lease, task: Task, *, ordered: int, until: datetime
    ) -> None:
        """The same without an answer, so that it goes along with what the transaction writes: the
        task is ours, as we know it, and the number of its last order is this. If not, Overtaken
        is raised here, or by whatever is awaited next in this transaction."""
        known = {f"known_{name}": getattr(task, name) for name in _KNOWN}
        wanted = {"which": lease.task_id, "life": lease.epoch, "until": until, "ordered": ordered}
        await _HELD_KNOWN.send(tx, known | wanted, must=True)

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
        query = select(schema.tasks).where(IN_QUEUE).order_by(*QUEUE_ORDER).limit(limit)
        async with self._db.read() as connection:
            return tuple(map(task_of, await connection.execute(query)))


def _renewed(dialect: str) -> ReturningUpdate[Any]:
    # PostgreSQL would answer as of before it got the lock.
    ordered = literal_column(_LAST_ORDER if dialect == "sqlite" else "NULL", Integer())
    renewed = update(schema.tasks).where(_OURS).values(lease_until=bindparam("until"))
    return renewed.returning(schema.tasks, ordered.label("ordered"))


def _aging(dialect: str) -> tuple[FixedWrite, FixedWrite]:
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
    return FixedWrite(lambda _: aged), FixedWrite(lambda _: redated)
