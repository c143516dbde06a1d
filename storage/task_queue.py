"""Manages the task queue: order, claims, leases and directory holders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.dml import ReturningUpdate

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import PreparedWrite, table_by_index
from storage.errors import LostLease
from storage.records.tasks import Task, TaskControl, TaskId, TaskLease, TaskPriority, TaskStatus
from storage.rows import record_from, records_from
from storage.task_queue_candidates import (
    IN_QUEUE,
    QUEUE_ORDER,
    PreemptionFilter,
    is_nested,
    list_candidate_ids,
)

_T = schema.tasks.c
_MAX_AGED = 20

_RUNNING = (
    sa.select(schema.tasks).where(_T.status == TaskStatus.RUNNING, ~_T.outside).order_by(_T.id)
)

_CLAIM = (
    sa.update(schema.tasks)
    .where(_T.id == sa.bindparam("which"), _T.status == TaskStatus.PENDING)
    .values(
        status=TaskStatus.RUNNING,
        status_reason="",
        control=TaskControl.RUN,
        epoch=_T.epoch + 1,
        owner=sa.bindparam("who"),
        lease_until=sa.bindparam("until"),
        wake_at=None,
        holds_dir=sa.and_(_T.project_dir != "", _T.branch == ""),
        started_at=sa.func.coalesce(_T.started_at, sa.bindparam("now", type_=_T.started_at.type)),
    )
    .returning(schema.tasks)
)


_LEASE_HELD = sa.and_(
    _T.id == sa.bindparam("which"),
    _T.epoch == sa.bindparam("life"),
    _T.status == TaskStatus.RUNNING,
)
# Spelled out: RETURNING drops the table name otherwise.
_LAST_COMMAND_ID = "(SELECT coalesce(max(c.id), 0) FROM commands AS c WHERE c.task_id = tasks.id)"

# All fields but `files`, which never change.
_COMPARED_FIELDS = tuple(each.name for each in fields(Task) if each.name != "files")
_FENCE_UNCHANGED = PreparedWrite(
    lambda _: (
        sa.update(schema.tasks)
        .where(
            _LEASE_HELD,
            *(
                _T[name].is_not_distinct_from(sa.bindparam(f"known_{name}"))
                for name in _COMPARED_FIELDS
            ),
            sa.literal_column(_LAST_COMMAND_ID, sa.Integer()) == sa.bindparam("ordered"),
        )
        .values(lease_until=sa.bindparam("until"))
    )
)


class TaskQueue:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._promote_aged, self._reset_future_waits = _aging_statements(db.dialect)
        self._renew_lease = _renew_lease_statement(db.dialect)

    async def claim(
        self,
        tx: Transaction,
        *,
        owner: str,
        now: datetime,
        lease: timedelta,
        aging_after: timedelta,
        only_task: TaskId | None = None,
    ) -> Task | None:
        """Claim the first task whose project is free, or None. `only_task` restricts the claim to
        one task, anywhere in the queue.

        A task that waited longer than `aging_after` moves to the head of the queue whatever its
        priority, so that urgent work starves no task. It moves after this claim: a preempted task
        with its own rank restored lets the preempting one go first and then is first again, so it
        does at least one step between two preemptions.

        A task queued in the future was queued before the clock was set back; its wait starts now.
        """
        ids = [only_task] if only_task else await list_candidate_ids(tx, 1, include_busy=False)
        await self._promote_aged.send(tx, {"long_ago": now - aging_after})
        await self._reset_future_waits.send(tx, {"present": now})
        if not ids:
            return None
        claim = {"which": ids[0], "who": owner, "now": now, "until": now + lease}
        row: sa.Row[Any] | None = (await tx.execute(_CLAIM, claim)).one_or_none()
        return record_from(Task, row)

    async def list_startable(
        self, tx: Transaction, limit: int, *, running: Sequence[Task] | None = None
    ) -> Sequence[Task]:
        """The first tasks that could start if slots were free and the tasks in their project made
        room.

        With `running`, only tasks that one of these would make room for: of a higher priority than
        some of them and than the one in their project.
        """
        room = None
        if running is not None:
            room = PreemptionFilter(
                running=frozenset((t.priority.rank, t.project_dir) for t in running)
            )
        ids = await list_candidate_ids(tx, limit, include_busy=True, preemption=room)
        if not ids:
            return ()
        query = sa.select(schema.tasks).where(_T.id.in_(ids)).order_by(*QUEUE_ORDER)
        return records_from(Task, await tx.execute(query))

    async def list_running(self, tx: Transaction) -> Sequence[Task]:
        return records_from(Task, await tx.execute(_RUNNING))

    async def find_directory_holder(self, task: Task) -> Task | None:
        """The task that runs or has unfinished work in this task's directory, or in one around or
        inside it."""
        if not task.project_dir:
            return None
        held = sa.true() if not (task.let_in or task.branch) else _T.status == TaskStatus.RUNNING
        query = (
            sa.select(schema.tasks)
            .where(
                sa.or_(
                    _T.project_dir == task.project_dir, is_nested(_T.project_dir, task.project_dir)
                ),
                _T.id != task.id,
                sa.or_(_T.holds_dir, _T.status == TaskStatus.RUNNING),
                held,
            )
            .order_by(sa.case((_T.status == TaskStatus.RUNNING, 0), else_=1), _T.created_at)
            .limit(1)
        )
        return record_from(Task, await self._db.fetch_one(query))

    async def list_due(self, tx: Transaction, now: datetime) -> Sequence[Task]:
        """Tasks whose wake time has come, in any status."""
        query = sa.select(schema.tasks).where(sa.text("wake_at IS NOT NULL"), _T.wake_at <= now)
        return records_from(Task, await tx.execute(query))

    async def next_wake_at(self) -> datetime | None:
        """The earliest wake time of waiting tasks."""
        query = sa.select(sa.func.min(_T.wake_at)).where(
            sa.text("wake_at IS NOT NULL"), _T.status == TaskStatus.WAITING
        )
        due: datetime | None = await self._db.fetch_value(query)
        return due

    async def clear_wake_times(self, tx: Transaction) -> None:
        """Clear the wake times of pending tasks."""
        parked = sa.and_(sa.text("wake_at IS NOT NULL"), _T.status == TaskStatus.PENDING)
        await tx.execute(sa.update(schema.tasks).where(parked).values(wake_at=None))

    async def fence(self, tx: Transaction, lease: TaskLease, *, until: datetime) -> Task:
        """Lock the task and renew the lease; raises LostLease if another process claimed it."""
        task, _ = await self.fence_with_last_command(tx, lease, until=until)
        return task

    async def fence_with_last_command(
        self, tx: Transaction, lease: TaskLease, *, until: datetime
    ) -> tuple[Task, int | None]:
        """Like `fence`, with the id of the task's last command: 0 for none, None if the database
        cannot return it in one statement."""
        wanted = {"which": lease.task_id, "life": lease.epoch, "until": until}
        row = (await tx.execute(self._renew_lease, wanted)).one_or_none()
        if row is None:
            raise LostLease(lease.task_id)
        return record_from(Task, row), row.ordered

    async def fence_unchanged(
        self,
        tx: Transaction,
        lease: TaskLease,
        task: Task,
        *,
        last_command_id: int,
        until: datetime,
    ) -> None:
        """Like `fence`, but batched with the transaction's next write.

        Checks that the lease holds, the task is unchanged and `last_command_id` is still the last.
        Otherwise raises ConcurrentUpdate, here or at the transaction's next awaited statement.
        """
        known = {f"known_{name}": getattr(task, name) for name in _COMPARED_FIELDS}
        wanted = {
            "which": lease.task_id,
            "life": lease.epoch,
            "until": until,
            "ordered": last_command_id,
        }
        await _FENCE_UNCHANGED.send(tx, known | wanted, must_change=True)

    async def renew_leases(self, tx: Transaction, owner: str, *, until: datetime) -> None:
        """Extend all leases of this owner."""
        held = sa.and_(_T.owner == owner, _T.status == TaskStatus.RUNNING)
        await tx.execute(sa.update(schema.tasks).where(held).values(lease_until=until))

    async def list_orphans(self, tx: Transaction) -> Sequence[tuple[Task, datetime | None]]:
        """Running tasks with the end of their leases; at startup no process runs them."""
        rows = (await tx.execute(_RUNNING)).all()
        return tuple((record_from(Task, row), row.lease_until) for row in rows)

    async def list_first(self, limit: int) -> Sequence[Task]:
        """The head of the queue, in order, startable or not."""
        query = sa.select(schema.tasks).where(IN_QUEUE).order_by(*QUEUE_ORDER).limit(limit)
        return records_from(Task, await self._db.fetch_all(query))


def _renew_lease_statement(dialect: str) -> ReturningUpdate[Any]:
    # PostgreSQL would return the value from before it got the lock.
    ordered = sa.literal_column(_LAST_COMMAND_ID if dialect == "sqlite" else "NULL", sa.Integer())
    renewed = sa.update(schema.tasks).where(_LEASE_HELD).values(lease_until=sa.bindparam("until"))
    return renewed.returning(schema.tasks, ordered.label("ordered"))


def _aging_statements(dialect: str) -> tuple[PreparedWrite, PreparedWrite]:
    """Promote tasks that waited too long; restart the wait of those queued in the future."""
    since = sa.literal_column("waiting_since", _T.waiting_since.type)
    aging: sa.Select[tuple[str]] = (
        sa.select(sa.literal_column("id", _T.id.type))
        .select_from(table_by_index(dialect, schema.tasks, "ix_tasks_aging"))
        .where(sa.text("status = 'pending' AND rank > 1"))
    )
    # Limited, because tasks are also claimed one at a time.
    longest = aging.where(since <= sa.bindparam("long_ago")).order_by(since).limit(_MAX_AGED)
    aged = (
        sa.update(schema.tasks)
        .where(_T.id.in_(longest))
        .values(rank=TaskPriority.URGENT.rank, resumed_first=0)
    )
    redated = (
        sa.update(schema.tasks)
        .where(_T.id.in_(aging.where(since > sa.bindparam("present"))))
        .values(waiting_since=sa.bindparam("present"))
    )
    return PreparedWrite(lambda _: aged), PreparedWrite(lambda _: redated)
