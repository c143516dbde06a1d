"""Manages the task queue: order, claims, leases and directory holders; finds the first startable
tasks without scanning those that cannot start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.sql.dml import ReturningUpdate

from storage import schema
from storage.db import Database, Transaction, record_from, records_from
from storage.dialect import PreparedRead, PreparedWrite, table_by_index
from storage.errors import LostLease
from storage.records.tasks import Task, TaskControl, TaskId, TaskLease, TaskPriority, TaskStatus

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
_SLASH = "/"


def folders_overlap(one: str, other: str) -> bool:
    """Whether tasks in these folders could touch the same files. An empty folder means a task's
    own."""
    if not one or not other:
        return False
    mine, others = (f"{each.rstrip(_SLASH)}{_SLASH}" for each in (one, other))
    return mine.startswith(others) or others.startswith(mine)


def is_nested(
    one: sa.ColumnElement[str], other: sa.ColumnElement[str] | str
) -> sa.ColumnElement[bool]:
    """Whether one folder contains the other. Equal folders do not count: an index finds them."""
    place = sa.literal(other) if isinstance(other, str) else other
    return sa.and_(one != "", place != "", sa.or_(_is_inside(one, place), _is_inside(place, one)))


def _is_inside(
    inner: sa.ColumnElement[str], outer: sa.ColumnElement[str]
) -> sa.ColumnElement[bool]:
    folder = sa.func.rtrim(outer, _SLASH).concat(_SLASH)
    return sa.func.substr(inner, 1, sa.func.length(folder)) == folder


_BUSY_TASK = schema.tasks.alias("busy")
_HOLDING_TASK = schema.tasks.alias("held")
_OTHER_TASK = schema.tasks.alias("other")
_FIRST_LOOK = 20

# Folders inside one another count as one place; few have running or unfinished work, so each is
# checked. Conditions of partial indexes are literal, because SQLite recognizes them only so. Each
# set of directories is small and read once, not once for each queued task.
_IS_BUSY = sa.text("busy.status = 'running' AND busy.project_dir <> ''")
DIRECTORY_NOT_IN_USE = sa.and_(
    _T.project_dir.not_in(sa.select(_BUSY_TASK.c.project_dir).where(_IS_BUSY)),
    ~sa.exists().where(_IS_BUSY, is_nested(_BUSY_TASK.c.project_dir, _T.project_dir)),
)
_HELD_BY_ANOTHER = sa.exists().where(
    _OTHER_TASK.c.project_dir == _T.project_dir,
    sa.text("other.holds_dir"),
    _OTHER_TASK.c.id != _T.id,
)
_HELD_BY_NESTED = sa.exists().where(
    sa.text("held.holds_dir"), is_nested(_HOLDING_TASK.c.project_dir, _T.project_dir)
)
DIRECTORY_NOT_HELD = sa.or_(
    _T.let_in,
    sa.and_(
        _T.project_dir.not_in(
            sa.select(_HOLDING_TASK.c.project_dir).where(sa.text("held.holds_dir"))
        ),
        ~_HELD_BY_NESTED,
    ),
    sa.and_(_T.holds_dir, ~_HELD_BY_ANOTHER, ~_HELD_BY_NESTED),
)
IN_QUEUE = sa.and_(_T.status == TaskStatus.PENDING, ~_T.outside)
QUEUE_ORDER = (_T.rank, _T.resumed_first, _T.created_at, _T.id)
_CANDIDATE_INDEX = "ix_tasks_heads"

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionFilter:
    """Only tasks that a running one would make room for: of a higher priority than some of these
    and than the one in their project.

    Real priorities count, not ranks: long-waiting tasks go first but preempt no task. `running` has
    the rank and directory of each running task.
    """

    running: frozenset[tuple[int, str]]

    @property
    def lowest_running_rank(self) -> int:
        return max((rank for rank, _ in self.running), default=0)

    @property
    def preempting_priorities(self) -> Sequence[TaskPriority]:
        return [each for each in TaskPriority if each.rank < self.lowest_running_rank]

    def rank_limit_in(self, project_dir: sa.ColumnElement[str]) -> sa.ColumnElement[int] | int:
        """Tasks that preempt within this directory have a lower rank than this."""
        # With several running in folders inside it, the most urgent counts.
        whens = [
            (sa.or_(project_dir == place, is_nested(project_dir, place)), rank)
            for rank, place in sorted(self.running)
            if place
        ]
        return (
            sa.case(*whens, else_=self.lowest_running_rank) if whens else self.lowest_running_rank
        )

    def can_preempt(self, alias: str) -> sa.ColumnElement[bool]:
        """Whether the row with this alias preempts."""
        priority, project_dir = (
            _aliased_column(alias, _T.priority),
            _aliased_column(alias, _T.project_dir),
        )
        each_kept = [
            (each, [place for rank, place in self.running if place and rank <= each.rank])
            for each in self.preempting_priorities
        ]
        return sa.or_(
            sa.false(),
            *(
                sa.and_(
                    priority == each,
                    *(project_dir != place for place in kept),
                    *(~is_nested(project_dir, place) for place in kept),
                )
                for each, kept in each_kept
            ),
        )


async def list_candidate_ids(
    tx: Transaction,
    limit: int,
    *,
    include_busy: bool,
    preemption: PreemptionFilter | None = None,
    claimable: ClaimLimits | None = None,
) -> Sequence[TaskId]:
    """Ids of the first `limit` tasks, in queue order, whose directory no other task has unfinished
    work in or, unless `include_busy`, runs in.

    They are usually at the head of the queue. If a busy project fills it, the first few of each
    directory are checked instead: the cost grows with the directories that have queued work, not
    with the queue.
    """
    if preemption is not None and not preemption.preempting_priorities:
        return ()
    near, far = _candidate_queries(tx.dialect.name, include_busy, preemption, claimable)
    seen = await near.fetch_all(tx)
    found = [TaskId(row.id) for row in seen if row.free][:limit]
    if len(found) == limit or len(seen) < _FIRST_LOOK:
        return found
    return [TaskId(row.id) for row in await far.fetch_all(tx, {"most": limit})]


@lru_cache(maxsize=64)
def _candidate_queries(
    dialect: str,
    include_busy: bool,
    preemption: PreemptionFilter | None,
    claimable: ClaimLimits | None,
) -> tuple[PreparedRead, PreparedRead]:
    """Queries for the head of the queue and for the head of each directory. Cached, because running
    tasks change rarely."""
    queued, free = (
        IN_QUEUE,
        DIRECTORY_NOT_HELD if include_busy else sa.and_(DIRECTORY_NOT_IN_USE, DIRECTORY_NOT_HELD),
    )
    if preemption is not None:
        queued, free = (
            sa.and_(queued, _T.rank < preemption.lowest_running_rank),
            sa.and_(free, preemption.can_preempt("tasks")),
        )
    if claimable is not None:
        free = sa.and_(free, claimable.where_clause)
    near = (
        sa.select(_T.id, free.label("free")).where(queued).order_by(*QUEUE_ORDER).limit(_FIRST_LOOK)
    )
    far = (
        sa.select(_T.id)
        .where(_T.id.in_(_candidates_by_directory(dialect, preemption)), free)
        .order_by(*QUEUE_ORDER)
        .limit(sa.bindparam("most"))
    )
    return PreparedRead(near), PreparedRead(far)


def _candidates_by_directory(
    dialect: str, preemption: PreemptionFilter | None
) -> sa.Select[tuple[str]]:
    """Ids of the first tasks of each directory, of those let in, and of all that hold a directory,
    since these go first there."""
    dirs = _directories(dialect)
    firsts = [
        _first_in_directory(dirs, dialect, let_in, preemption) for let_in in ("false", "true")
    ]
    some = [sa.select(_T.id).select_from(dirs.join(schema.tasks, _T.id.in_(ids))) for ids in firsts]
    holders = (
        sa.select(_aliased_column("holder", _T.id))
        .select_from(_tasks_by_index(dialect, "holder", "ix_tasks_holders"))
        .where(_is_queued("holder"), sa.text("holder.holds_dir"))
    )
    heads = sa.union_all(*some, holders).subquery("heads")
    return sa.select(heads.c.id)


def _first_in_directory(
    dirs: sa.CTE, dialect: str, let_in: str, preemption: PreemptionFilter | None
) -> sa.Select[tuple[str]]:
    cutting: sa.ColumnElement[bool] = sa.true()
    if preemption is not None:
        cutting = sa.and_(
            _aliased_column("head", _T.rank) < preemption.rank_limit_in(dirs.c.dir),
            preemption.can_preempt("head"),
        )
    return (
        sa.select(_aliased_column("head", _T.id))
        .select_from(_tasks_by_index(dialect, "head", _CANDIDATE_INDEX))
        .where(
            _is_queued("head"),
            _aliased_column("head", _T.project_dir) == dirs.c.dir,
            sa.text(f"head.let_in = {let_in}"),
            cutting,
        )
        .order_by(*(_aliased_column("head", each) for each in QUEUE_ORDER))
        .limit(sa.bindparam("most"))
        .correlate(dirs)
    )


def _directories(dialect: str) -> sa.CTE:
    """Directories with queued work, found by jumping from one to the next."""
    first = (
        sa.select(sa.func.min(_aliased_column("lowest", _T.project_dir)).label("dir"))
        .select_from(_tasks_by_index(dialect, "lowest", _CANDIDATE_INDEX))
        .where(_is_queued("lowest"))
    )
    dirs = first.cte("dirs", recursive=True)
    following = (
        sa.select(sa.func.min(_aliased_column("higher", _T.project_dir)))
        .select_from(_tasks_by_index(dialect, "higher", _CANDIDATE_INDEX))
        .where(_is_queued("higher"), _aliased_column("higher", _T.project_dir) > dirs.c.dir)
        .correlate(dirs)
        .scalar_subquery()
    )
    return dirs.union_all(sa.select(following).select_from(dirs).where(dirs.c.dir.is_not(None)))


def _tasks_by_index(dialect: str, name: str, index: str) -> sa.TextClause:
    """The tasks under this alias, read by that index."""
    return table_by_index(dialect, schema.tasks, index, name)


def _aliased_column(name: str, column: sa.Column[_V]) -> sa.ColumnElement[_V]:
    return sa.literal_column(f"{name}.{column.name}", column.type)


def _is_queued(name: str) -> sa.TextClause:
    return sa.text(f"{name}.status = 'pending' AND NOT {name}.outside")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningClaim:
    """A running task with the process that claimed it and the end of its lease."""

    task: Task
    owner: str
    lease_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLimits:
    """Which tasks a process may claim: those in its `only` folders, if there are any, and not in
    `absent` ones."""

    only: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()

    @property
    def where_clause(self) -> sa.ColumnElement[bool]:
        absent = _T.project_dir.not_in(sorted(self.absent)) if self.absent else sa.true()
        if not self.only:
            return absent
        mine = [_is_inside(_T.project_dir, sa.literal(place)) for place in sorted(self.only)]
        return sa.and_(absent, sa.or_(_T.project_dir.in_(sorted(self.only)), *mine))


class TaskQueue:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._promote_aged, self._reset_future_waits = _aging_statements(db.dialect)
        self._renew_lease = _renew_lease_statement()

    async def claim(
        self,
        tx: Transaction,
        *,
        owner: str,
        now: datetime,
        lease: timedelta,
        aging_after: timedelta,
        only_task: TaskId | None = None,
        claimable: ClaimLimits | None = None,
    ) -> Task | None:
        """Claim the first task whose project is free, or None. `only_task` restricts the claim to
        one task, anywhere in the queue; `claimable` to those that this process may have.

        A task that waited longer than `aging_after` moves to the head of the queue whatever its
        priority, so that urgent work starves no task. It moves after this claim: a preempted task
        with its own rank restored lets the preempting one go first and then is first again, so it
        does at least one step between two preemptions.

        A task queued in the future was queued before the clock was set back; its wait starts now.
        """
        ids = (
            [only_task]
            if only_task
            else await list_candidate_ids(tx, 1, include_busy=False, claimable=claimable)
        )
        await self._promote_aged.send(tx, {"long_ago": now - aging_after})
        await self._reset_future_waits.send(tx, {"present": now})
        if not ids:
            return None
        claim = {"which": ids[0], "who": owner, "now": now, "until": now + lease}
        row: sa.Row[Any] | None = (await tx.execute(_CLAIM, claim)).one_or_none()
        return record_from(Task, row)

    async def list_preempting_candidates(
        self, tx: Transaction, limit: int, *, running: Sequence[Task] | None = None
    ) -> Sequence[Task]:
        """For preemption; `claim` decides what starts. The first tasks that could start if slots
        were free and the tasks in their project made room.

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

    async def list_orphans(self, tx: Transaction) -> Sequence[RunningClaim]:
        """Running tasks; at the start of a process that is alone, none runs them."""
        rows = (await tx.execute(_RUNNING)).all()
        return tuple(
            RunningClaim(task=record_from(Task, row), owner=row.owner, lease_until=row.lease_until)
            for row in rows
        )

    async def list_first(self, limit: int) -> Sequence[Task]:
        """The head of the queue, in order, startable or not."""
        query = sa.select(schema.tasks).where(IN_QUEUE).order_by(*QUEUE_ORDER).limit(limit)
        return records_from(Task, await self._db.fetch_all(query))


def _renew_lease_statement() -> ReturningUpdate[Any]:
    ordered = sa.literal_column(_LAST_COMMAND_ID, sa.Integer())
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
