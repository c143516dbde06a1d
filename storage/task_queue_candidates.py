"""Finds the first startable tasks of the queue without scanning those that cannot start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import sqlalchemy as sa

from storage import schema
from storage.db import Transaction
from storage.dialect import PreparedRead, table_by_index
from storage.records.tasks import TaskId, TaskPriority, TaskStatus

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


_T = schema.tasks.c
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
    tx: Transaction, limit: int, *, include_busy: bool, preemption: PreemptionFilter | None = None
) -> Sequence[TaskId]:
    """Ids of the first `limit` tasks, in queue order, whose directory no other task has unfinished
    work in or, unless `include_busy`, runs in.

    They are usually at the head of the queue. If a busy project fills it, the first few of each
    directory are checked instead: the cost grows with the directories that have queued work, not
    with the queue.
    """
    if preemption is not None and not preemption.preempting_priorities:
        return ()
    near, far = _candidate_queries(tx.dialect.name, include_busy, preemption)
    seen = await near.fetch_all(tx)
    found = [TaskId(row.id) for row in seen if row.free][:limit]
    if len(found) == limit or len(seen) < _FIRST_LOOK:
        return found
    return [TaskId(row.id) for row in await far.fetch_all(tx, {"most": limit})]


@lru_cache(maxsize=64)
def _candidate_queries(
    dialect: str, include_busy: bool, preemption: PreemptionFilter | None
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
