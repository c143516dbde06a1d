"""Stores model usage, its cost, and approved extensions of caps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Label,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    type_coerce,
    update,
)

from storage import schema
from storage.db import Database, Transaction, record_from, records_from, row_from
from storage.dialect import PreparedWrite, insert_or_ignore, upsert
from storage.people import current_person_id
from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId, UsageTotals
from storage.records.usage import (
    BudgetGrant,
    BudgetScope,
    CostLine,
    PendingModelCall,
    SpendingCap,
    UsageRecord,
)

_U = schema.usage.c
_SUMMED: Mapping[str, ColumnElement[Any]] = {
    "calls": _U.requests,
    "input_tokens": _U.input_tokens,
    "output_tokens": _U.output_tokens,
    "cost_micros": _U.cost_micros,
    "cache_read_tokens": _U.cache_read_tokens,
    "cache_write_tokens": _U.cache_write_tokens,
    "estimated_tokens": _U.estimated_tokens,
    "unpriced": case((_U.cost_micros.is_(None), 1), else_=0),
}
_QUARTER_HOUR = 15 * 60 * 1_000_000
"""Microseconds. Offsets of time zones are whole quarters of an hour."""
USAGE_SUMS = [func.coalesce(func.sum(each), 0).label(name) for name, each in _SUMMED.items()]


_USAGE_COLUMNS = tuple(each.name for each in fields(UsageRecord))
_ADD = PreparedWrite(lambda _: insert(schema.usage), *_USAGE_COLUMNS)
_P = schema.pending_model_calls.c
_PENDING_COLUMNS = tuple(each.name for each in fields(PendingModelCall))
_BEGIN_CALL = PreparedWrite(
    lambda dialect: upsert(dialect, schema.pending_model_calls, _PENDING_COLUMNS, ("id",)),
    *_PENDING_COLUMNS,
)
_ADD_OF_CALL = PreparedWrite(
    lambda _: insert(schema.usage).from_select(
        _USAGE_COLUMNS,
        select(*(bindparam(each, type_=_U[each].type) for each in _USAGE_COLUMNS)).where(
            select(_P.id).where(_P.id == bindparam("which")).exists()
        ),
    )
)
_END_CALL = PreparedWrite(
    lambda _: delete(schema.pending_model_calls).where(_P.id == bindparam("which"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedUsage:
    """The usage of runs that is not recorded yet, and the most that they may have used after
    their current calls."""

    spent_micros: int
    spent_tokens: int
    reserved_micros: int
    reserved_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFilter:
    """Selects usage. `model` is a part of model names; with `person`, only theirs and that of
    `chat`."""

    since: datetime | None = None
    task: TaskId | None = None
    person: PersonId | None = None
    chat: ChatId | None = None
    model: str = ""


class UsageRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, record: UsageRecord) -> None:
        """Record usage that no pending call reserves."""
        await _ADD.send(tx, row_from(await _of_current_person(tx, record)))

    async def begin_call(self, tx: Transaction, call: PendingModelCall) -> None:
        """Record a call before it is sent; a later one of the same run replaces it."""
        await _BEGIN_CALL.send(tx, row_from(call))

    async def book_call(
        self,
        tx: Transaction,
        call_id: str,
        record: UsageRecord | None,
        *,
        must_be_pending: bool = False,
    ) -> None:
        """End a pending call and record its usage, None if it was never sent. One that has ended is
        booked: by a commit whose outcome was not known, or by whoever took this process for dead;
        nothing is recorded then, or ConcurrentUpdate raised, at the commit at the latest."""
        which = {"which": call_id}
        if record is not None:
            values = row_from(await _of_current_person(tx, record))
            await _ADD_OF_CALL.send(tx, values | which)
        await _END_CALL.send(tx, which, must_change=must_be_pending)

    async def is_pending(self, call_id: str) -> bool:
        return await self._db.fetch_value(select(_P.id).where(_P.id == call_id)) is not None

    async def settle_call(self, tx: Transaction, call_id: str, *, micros: int, tokens: int) -> None:
        """Replace what the run of a call has reserved by what it has really used."""
        used = {
            "spent_micros": micros,
            "reserved_micros": micros,
            "spent_tokens": tokens,
            "reserved_tokens": tokens,
        }
        await tx.execute(update(schema.pending_model_calls).where(_P.id == call_id).values(used))

    async def sum_reserved(
        self,
        tx: Transaction,
        scope: BudgetScope,
        subject: str,
        *,
        except_call: str = "",
        since: datetime,
    ) -> ReservedUsage:
        """Sum what the calls of all processes reserve of a cap of this scope. Read it before what
        is recorded: a call that ends in between counts twice then, and not never."""
        whom = _cap_condition(_P, scope, subject)
        sums = (
            func.coalesce(func.sum(column), 0).label(name)
            for name, column in (
                ("spent_micros", _P.spent_micros),
                ("spent_tokens", _P.spent_tokens),
                ("reserved_micros", _P.reserved_micros),
                ("reserved_tokens", _P.reserved_tokens),
            )
        )
        query = select(*sums).where(_P.id != except_call, _P.at > since, *whom)
        return record_from(ReservedUsage, (await tx.execute(query)).one())

    async def book_lost_calls(
        self, tx: Transaction, *, now: datetime, living: Collection[str] | None = None
    ) -> int:
        """Count the calls that dead processes started and lost, by their estimates, because their
        usage is unknown. Return their number. All are dead that are not `living`."""
        query = select(schema.pending_model_calls)
        if living is not None:
            query = query.where(_P.holder.not_in(living))
        lost = records_from(PendingModelCall, (await tx.execute(query)).all())
        for call in lost:
            record = UsageRecord(
                at=now,
                purpose=call.purpose,
                backend=call.backend,
                model=call.model,
                person_id=call.person_id,
                chat_id=call.chat_id,
                task_id=call.task_id,
                requests=call.requests,
                input_tokens=call.input_tokens,
                output_tokens=call.output_tokens,
                cache_read_tokens=0,
                cache_write_tokens=0,
                cost_micros=call.cost_micros,
                estimated_tokens=call.input_tokens + call.output_tokens,
            )
            await self.book_call(tx, call.id, record)
        return len(lost)

    async def sum_for_cap(
        self,
        scope: BudgetScope,
        subject: str,
        since: datetime | None,
        tx: Transaction | None = None,
    ) -> UsageTotals:
        """All usage that counts against a cap of this scope, since then or ever."""
        conditions = _cap_condition(_U, scope, subject)
        if since is not None:
            conditions.append(_U.at >= since)
        return await self._sum(conditions, tx)

    async def sum_by_task(self, task_id: TaskId) -> UsageTotals:
        return await self._sum([_U.task_id == task_id])

    async def sum(self, usage_filter: UsageFilter) -> UsageTotals:
        return await self._sum(_conditions(usage_filter))

    async def _sum(
        self, conditions: Iterable[ColumnElement[bool]], tx: Transaction | None = None
    ) -> UsageTotals:
        (row,) = await self._db.fetch_all(select(*USAGE_SUMS).where(*conditions), tx=tx)
        return record_from(UsageTotals, row)

    async def by_model(self, usage_filter: UsageFilter) -> Sequence[CostLine]:
        """Highest cost first, like the other breakdowns."""
        return await self._sum_by(_U.model, schema.usage, usage_filter)

    async def by_purpose(self, usage_filter: UsageFilter) -> Sequence[CostLine]:
        return await self._sum_by(_U.purpose, schema.usage, usage_filter)

    async def by_person(self, usage_filter: UsageFilter) -> Sequence[CostLine]:
        people = schema.people
        joined = schema.usage.outerjoin(people, people.c.id == _U.person_id)
        # Two people of one name are two.
        return await self._sum_by(people.c.name, joined, usage_filter, _U.person_id)

    async def by_task(self, usage_filter: UsageFilter, limit: int) -> Sequence[CostLine]:
        """Only these many, and no usage outside of tasks."""
        tasks, tokens = schema.tasks.c, func.sum(_U.input_tokens + _U.output_tokens)
        cost = func.coalesce(func.sum(_U.cost_micros), 0)
        query = (
            select(tasks.id, tasks.title, *USAGE_SUMS)
            .join_from(schema.usage, schema.tasks, tasks.id == _U.task_id)
            .where(tasks.deleted_at.is_(None), *_conditions(usage_filter))
            .group_by(tasks.id, tasks.title)
            .order_by(cost.desc(), tokens.desc(), tasks.id)
            .limit(limit)
        )
        return tuple(
            CostLine(name=row.title, task_id=row.id, spent=record_from(UsageTotals, row))
            for row in await self._db.fetch_all(query)
        )

    async def by_day(
        self, usage_filter: UsageFilter, zone: ZoneInfo
    ) -> Sequence[tuple[date, UsageTotals]]:
        """The days of this zone with usage, the first one first."""
        bucket = quarter_hour(_U.at)
        wanted = select(bucket, *USAGE_SUMS).where(*_conditions(usage_filter))
        # Thousands of rows for a year: plain sums, and a date once a day.
        days: dict[date, list[int]] = {}
        sums, day_end = [0], 0.0
        for start, *amounts in await self._db.fetch_all(wanted.group_by(bucket).order_by(bucket)):
            if start >= day_end:
                day = quarter_hour_start(start).astimezone(zone).date()
                midnight = datetime.combine(day + timedelta(days=1), time(), zone)
                day_end = midnight.timestamp() * 1_000_000
                sums = days.setdefault(day, [0] * len(amounts))
            for place, amount in enumerate(amounts):
                sums[place] += amount
        return tuple(
            (day, UsageTotals(**dict(zip(_SUMMED, sums, strict=True))))
            for day, sums in days.items()
        )

    async def by_chat(self, usage_filter: UsageFilter) -> Sequence[CostLine]:
        """Named by the chat's title or partner, and its channel."""
        chats, people = schema.chats, schema.people
        joined = schema.usage.outerjoin(chats, chats.c.id == _U.chat_id).outerjoin(
            people, people.c.id == chats.c.person_id
        )
        title = func.coalesce(func.nullif(chats.c.title, ""), people.c.name, "")
        return await self._sum_by(chats.c.channel + literal(" ") + title, joined, usage_filter)

    async def _sum_by(
        self,
        name: ColumnElement[str],
        source: FromClause,
        usage_filter: UsageFilter,
        *keys: ColumnElement[Any],
    ) -> Sequence[CostLine]:
        what = func.coalesce(name, "").label("name")
        query = (
            select(what, *USAGE_SUMS)
            .select_from(source)
            .where(*_conditions(usage_filter))
            .group_by(what, *keys)
            .order_by(func.coalesce(func.sum(_U.cost_micros), 0).desc(), what)
        )
        return tuple(
            CostLine(name=row.name.strip(), spent=record_from(UsageTotals, row))
            for row in await self._db.fetch_all(query)
        )


def quarter_hour(column: ColumnElement[Any]) -> Label[int]:
    """The stored form of the quarter of an hour that a time is in, as `bucket`."""
    stored = type_coerce(column, BigInteger)
    return (stored - stored % _QUARTER_HOUR).label("bucket")


def quarter_hour_start(stored: int) -> datetime:
    return datetime.fromtimestamp(stored / 1_000_000, UTC)


async def _of_current_person(tx: Transaction, record: UsageRecord) -> UsageRecord:
    if record.person_id is None:
        return record
    return replace(record, person_id=await current_person_id(tx, record.person_id))


def _cap_condition(columns: Any, scope: BudgetScope, subject: str) -> list[ColumnElement[bool]]:
    whom = {
        BudgetScope.TASK: columns.task_id,
        BudgetScope.PERSON: columns.person_id,
        BudgetScope.CHAT: columns.chat_id,
    }
    if scope.covers_purpose:
        return [columns.purpose == scope.value]
    return [whom[scope] == subject] if scope in whom else []


def _conditions(usage_filter: UsageFilter) -> Iterator[ColumnElement[bool]]:
    if usage_filter.since is not None:
        yield _U.at >= usage_filter.since
    if usage_filter.task is not None:
        yield _U.task_id == usage_filter.task
    if usage_filter.person is not None:
        yield or_(_U.person_id == usage_filter.person, _U.chat_id == usage_filter.chat)
    if usage_filter.model:
        yield func.lower(_U.model).contains(usage_filter.model.lower(), autoescape=True)


_G = schema.budget_grants.c


class BudgetRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def get_granted(
        self, scope: BudgetScope, subject: str, day: str, tx: Transaction | None = None
    ) -> SpendingCap:
        """The total extension of this cap."""
        async with self._db.read_once(tx) as view:
            return await sum_budget_grants(view, scope, subject, day)


async def sum_budget_grants(
    view: Transaction, scope: BudgetScope, subject: str, day: str
) -> SpendingCap:
    """The total extension of this cap, read within a transaction."""
    return await _fold_budget_grants(func.sum, view, scope, subject, day)


async def largest_budget_grant(
    view: Transaction, scope: BudgetScope, subject: str, day: str
) -> SpendingCap:
    """The largest single extension."""
    return await _fold_budget_grants(func.max, view, scope, subject, day)


async def _fold_budget_grants(
    fold: Callable[..., Any], view: Transaction, scope: BudgetScope, subject: str, day: str
) -> SpendingCap:
    query = select(func.coalesce(fold(_G.micros), 0), func.coalesce(fold(_G.tokens), 0)).where(
        _G.scope == scope, _G.subject == subject, _G.day == day
    )
    micros, tokens = (await view.execute(query)).one()
    return SpendingCap(micros=int(micros), tokens=int(tokens))


async def add_budget_grant(tx: Transaction, grant: BudgetGrant, *, now: datetime) -> None:
    """Recorded once per approval, however often it is delivered."""
    values = row_from(grant) | row_from(grant.cap) | {"at": now}
    del values["cap"]
    await tx.execute(insert_or_ignore(tx.dialect.name, schema.budget_grants).values(values))
