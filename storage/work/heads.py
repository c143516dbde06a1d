"""The first tasks of the queue that may start, found without looking at each that may not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from sqlalchemy import (
    CTE,
    Column,
    ColumnElement,
    Select,
    TextClause,
    and_,
    bindparam,
    case,
    exists,
    false,
    func,
    literal_column,
    or_,
    select,
    text,
    true,
    union_all,
)

from storage import schema
from storage.db import Transaction
from storage.dialect import FixedRead, by_index
from storage.records.tasks import Priority, TaskId, TaskStatus
from storage.work.folders import nested

_T = schema.tasks.c
_BUSY = schema.tasks.alias("busy")
_HELD = schema.tasks.alias("held")
_OTHER = schema.tasks.alias("other")
_WINDOW = 20

# A folder inside another is the same place: few work or are left half done, so each is looked at.
# Conditions that a partial index has are spelled out: SQLite knows it again only by the literal
# words. Each set of directories is small and read once, not once for each task of the queue.
_IS_BUSY = text("busy.status = 'running' AND busy.project_dir <> ''")
NOT_IN_USE = and_(
    _T.project_dir.not_in(select(_BUSY.c.project_dir).where(_IS_BUSY)),
    ~exists().where(_IS_BUSY, nested(_BUSY.c.project_dir, _T.project_dir)),
)
_HELD_BY_ANOTHER = exists().where(
    _OTHER.c.project_dir == _T.project_dir, text("other.holds_dir"), _OTHER.c.id != _T.id
)
_HELD_AROUND = exists().where(text("held.holds_dir"), nested(_HELD.c.project_dir, _T.project_dir))
NOT_HELD = or_(
    _T.let_in,
    and_(
        _T.project_dir.not_in(select(_HELD.c.project_dir).where(text("held.holds_dir"))),
        ~_HELD_AROUND,
    ),
    and_(_T.holds_dir, ~_HELD_BY_ANOTHER, ~_HELD_AROUND),
)
IN_QUEUE = and_(_T.status == TaskStatus.PENDING, ~_T.outside)
QUEUE_ORDER = (_T.rank, _T.resumed_first, _T.created_at, _T.id)
_BY_HEADS = "ix_tasks_heads"

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Only tasks for which one of those that run would make room: of a higher priority than
    some, and than the one in their project. By real priorities, not by ranks: long waiting goes
    first, but cuts in on nobody. `running` is the rank and the directory of each that runs."""

    running: frozenset[tuple[int, str]]

    @property
    def least(self) -> int:
        return max((rank for rank, _ in self.running), default=0)

    @property
    def better(self) -> Sequence[Priority]:
        return [each for each in Priority if each.rank < self.least]

    def within(self, project_dir: ColumnElement[str]) -> ColumnElement[int] | int:
        """All that cut in within this directory have a lower rank than this."""
        # Where several work in folders inside this one, the most urgent of them counts.
        whens = [
            (or_(project_dir == place, nested(project_dir, place)), rank)
            for rank, place in sorted(self.running)
            if place
        ]
        return case(*whens, else_=self.least) if whens else self.least

    def cut_in(self, head: str) -> ColumnElement[bool]:
        """Whether the row known by this name does."""
        priority, project_dir = _of(head, _T.priority), _of(head, _T.project_dir)
        each_kept = [
            (each, [place for rank, place in self.running if place and rank <= each.rank])
            for each in self.better
        ]
        return or_(
            false(),
            *(
                and_(
                    priority == each,
                    *(project_dir != place for place in kept),
                    *(~nested(project_dir, place) for place in kept),
                )
                for each, kept in each_kept
            ),
        )


async def first_ids(
    tx: Transaction, limit: int, *, in_use: bool, beside: Beside | None = None
) -> Sequence[TaskId]:
    """The first `limit` of the queue, in its order, whose directory no other task has left half
    done; nor works in, unless `in_use`.

    Mostly they stand at the head of the queue. Where a busy project fills that, the first few of
    each directory are looked at instead: it costs as much as there are directories with work that
    waits, however much waits in each."""
    if beside is not None and not beside.better:
        return ()
    near, far = _looks(tx.dialect.name, in_use, beside)
    seen = await near.rows(tx)
    found = [TaskId(row.id) for row in seen if row.free][:limit]
    if len(found) == limit or len(seen) < _WINDOW:
        return found
    return [TaskId(row.id) for row in await far.rows(tx, {"most": limit})]


@lru_cache(maxsize=64)
def _looks(dialect: str, in_use: bool, beside: Beside | None) -> tuple[FixedRead, FixedRead]:
    """At the head of the queue, and at the head of each directory. Who runs changes seldom."""
    queued, free = IN_QUEUE, NOT_HELD if in_use else and_(NOT_IN_USE, NOT_HELD)
    if beside is not None:
        queued, free = and_(queued, _T.rank < beside.least), and_(free, beside.cut_in("tasks"))
    near = select(_T.id, free.label("free")).where(queued).order_by(*QUEUE_ORDER).limit(_WINDOW)
    far = (
        select(_T.id)
        .where(_T.id.in_(_heads(dialect, beside)), free)
        .order_by(*QUEUE_ORDER)
        .limit(bindparam("most"))
    )
    return FixedRead(near), FixedRead(far)


def _heads(dialect: str, beside: Beside | None) -> Select[tuple[str]]:
    """Ids of the first `most` of each directory, and of those let in; and of all that hold one:
    whichever else waits in a directory, these go before it."""
    dirs = _directories(dialect)
    firsts = [_first_of(dirs, dialect, let_in, beside) for let_in in ("false", "true")]
    some = [select(_T.id).select_from(dirs.join(schema.tasks, _T.id.in_(ids))) for ids in firsts]
    holders = (
        select(_of("holder", _T.id))
        .select_from(_by(dialect, "holder", "ix_tasks_holders"))
        .where(_queued("holder"), text("holder.holds_dir"))
    )
    heads = union_all(*some, holders).subquery("heads")
    return select(heads.c.id)


def _first_of(dirs: CTE, dialect: str, let_in: str, beside: Beside | None) -> Select[tuple[str]]:
    cutting: ColumnElement[bool] = true()
    if beside is not None:
        cutting = and_(_of("head", _T.rank) < beside.within(dirs.c.dir), beside.cut_in("head"))
    return (
        select(_of("head", _T.id))
        .select_from(_by(dialect, "head", _BY_HEADS))
        .where(
            _queued("head"),
            _of("head", _T.project_dir) == dirs.c.dir,
            text(f"head.let_in = {let_in}"),
            cutting,
        )
        .order_by(*(_of("head", each) for each in QUEUE_ORDER))
        .limit(bindparam("most"))
        .correlate(dirs)
    )


def _directories(dialect: str) -> CTE:
    """Each directory with work that waits, found by jumping from one to the next."""
    first = (
        select(func.min(_of("lowest", _T.project_dir)).label("dir"))
        .select_from(_by(dialect, "lowest", _BY_HEADS))
        .where(_queued("lowest"))
    )
    dirs = first.cte("dirs", recursive=True)
    following = (
        select(func.min(_of("higher", _T.project_dir)))
        .select_from(_by(dialect, "higher", _BY_HEADS))
        .where(_queued("higher"), _of("higher", _T.project_dir) > dirs.c.dir)
        .correlate(dirs)
        .scalar_subquery()
    )
    return dirs.union_all(select(following).select_from(dirs).where(dirs.c.dir.is_not(None)))


def _by(dialect: str, name: str, index: str) -> TextClause:
    """The tasks under this name, read by that index."""
    return by_index(dialect, schema.tasks, index, name)


def _of(name: str, column: Column[_V]) -> ColumnElement[_V]:
    return literal_column(f"{name}.{column.name}", column.type)


def _queued(name: str) -> TextClause:
    return text(f"{name}.status = 'pending' AND NOT {name}.outside")
