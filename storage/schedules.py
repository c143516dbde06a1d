"""Stores schedules and their firings, and finds what is due."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack, assert_never

import sqlalchemy as sa

from storage import schema
from storage.db import Database, Transaction, record_from, records_from
from storage.dialect import insert_or_ignore
from storage.errors import NotFound
from storage.ids import MAX_CANDIDATES, parse_id_prefix, single_match
from storage.people import current_person_id
from storage.records.people import ChatId, PersonId
from storage.records.schedules import (
    CronTiming,
    DayFilter,
    Firing,
    FiringState,
    Interval,
    MessageBody,
    NewSchedule,
    OneTime,
    Schedule,
    ScheduleBody,
    ScheduledFiring,
    ScheduleId,
    ScheduleKind,
    ScheduleState,
    ServiceBody,
    TaskBody,
    Timing,
    WorkflowBody,
)
from storage.records.tasks import TaskId, TaskStatus

_S = schema.schedules.c
_F = schema.firings.c
_T = schema.tasks.c
_CHAT = schema.chats.c
_HERE = schema.chats.alias("here")
_FINAL_STATUSES = tuple(status.value for status in TaskStatus if status.is_final)

# Spelled out, so that the partial indexes are used.
_DUE = sa.text("next_due IS NOT NULL")
_RETRY = sa.text("retry_at IS NOT NULL")

_OF_PEOPLE = _S.kind.in_([ScheduleKind.REMINDER, ScheduleKind.JOB])

_LISTED_STATES = _S.state.in_([ScheduleState.ACTIVE, ScheduleState.PAUSED])

_CLAIM = sa.update(schema.schedules).where(
    _S.id == sa.bindparam("which"),
    _S.next_due == sa.bindparam("due", type_=_S.next_due.type),
    _S.state == ScheduleState.ACTIVE,
)

_LISTED_FIRST = (
    sa.case((_S.state == ScheduleState.ACTIVE, 0), (_S.state == ScheduleState.PAUSED, 1), else_=2),
    _S.next_due,
    _S.created_at.desc(),
    _S.id,
)


class ScheduleChanges(TypedDict, total=False):
    """The columns of a schedule that may be updated."""

    state: ScheduleState
    reason: str
    next_due: datetime | None
    timing: Timing
    zone: str
    missed: str
    respects_quiet_hours: bool


class ScheduleRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def create(
        self, tx: Transaction, new: NewSchedule, *, new_id: Callable[[], str], now: datetime
    ) -> Schedule:
        """Create a schedule that waits for a yes, or return the one this source created before."""
        values = {
            **{name: getattr(new, name) for name in NewSchedule.__dataclass_fields__},
            "state": ScheduleState.PROPOSED,
            "timing": dump_timing(new.timing),
            "body": dump_body(new.body),
            "retry_seconds": new.retry_delay.total_seconds(),
            "created_at": now,
            "owner_id": await current_person_id(tx, new.owner_id),
        }
        del values["retry_delay"]
        query = sa.select(schema.schedules).where(_S.source == new.source)
        made = None
        while made is None:
            # Nothing is inserted where another schedule has this id.
            insert = insert_or_ignore(self._db.dialect, schema.schedules)
            await tx.execute(insert.values(values | {"id": new_id()}))
            made = _schedule_or_none((await tx.execute(query)).one_or_none())
        return made

    async def get(self, schedule_id: ScheduleId, *, tx: Transaction | None = None) -> Schedule:
        query = sa.select(schema.schedules).where(_S.id == schedule_id)
        found = _schedule_or_none(await self._db.fetch_one(query, tx=tx))
        if found is None:
            raise NotFound("schedule", schedule_id)
        return found

    async def find_by_source(self, source: str) -> Schedule | None:
        query = sa.select(schema.schedules).where(_S.source == source)
        return _schedule_or_none(await self._db.fetch_one(query))

    async def find(self, prefix: str, *, of: PersonId | None, chat: ChatId | None) -> Schedule:
        """Find by the beginning of an id among those of a person or of a chat, or among all."""
        wanted = parse_id_prefix("schedule", prefix)
        query = (
            sa.select(schema.schedules)
            .where(_S.id.startswith(wanted, autoescape=True), _visible(of, chat))
            .limit(MAX_CANDIDATES + 1)
        )
        found = [_schedule(row) for row in await self._db.fetch_all(query)]
        return single_match(found, wanted, "schedule", prefix)

    async def list(
        self, *, of: PersonId | None, chat: ChatId | None, limit: int
    ) -> Sequence[Schedule]:
        """Those that fire, the next one first; then paused ones. Those of people only."""
        query = (
            sa.select(schema.schedules)
            .where(
                _LISTED_STATES,
                _OF_PEOPLE,
                _visible(of, chat),
            )
            .order_by(*_LISTED_FIRST)
            .limit(limit)
        )
        return [_schedule(row) for row in await self._db.fetch_all(query)]

    async def list_newest(
        self,
        *,
        of: PersonId | None,
        chat: ChatId | None,
        before: tuple[datetime, str] | None,
        limit: int,
    ) -> Sequence[Schedule]:
        """Those that `list` has, the newest first, after the one of this time and id."""
        query = sa.select(schema.schedules).where(_LISTED_STATES, _OF_PEOPLE, _visible(of, chat))
        if before is not None:
            at, id_ = before
            same_time = sa.and_(_S.created_at == at, _S.id > id_)
            query = query.where(sa.or_(_S.created_at < at, same_time))
        query = query.order_by(_S.created_at.desc(), _S.id).limit(limit)
        return [_schedule(row) for row in await self._db.fetch_all(query)]

    async def count_of(self, person: PersonId) -> int:
        """How many schedules this person has; proposals do not count."""
        kept = _S.state.in_([ScheduleState.ACTIVE, ScheduleState.PAUSED])
        query = sa.select(sa.func.count()).where(_S.owner_id == person, kept, _OF_PEOPLE)
        return int(await self._db.fetch_value(query) or 0)

    async def list_due(self, now: datetime, limit: int) -> Sequence[Schedule]:
        query = (
            sa.select(schema.schedules)
            .where(_DUE, _S.next_due <= now)
            .order_by(_S.next_due, _S.id)
            .limit(limit)
        )
        return [_schedule(row) for row in await self._db.fetch_all(query)]

    async def next_due(self) -> datetime | None:
        """When the next schedule or retry is due."""
        first = sa.select(sa.func.min(_S.next_due).label("due")).where(_DUE)
        retry = sa.select(sa.func.min(_F.retry_at)).where(_RETRY)
        times = [each for each in await self._db.fetch_column(first.union_all(retry)) if each]
        return min(times, default=None)

    async def claim(
        self, tx: Transaction, schedule: Schedule, *, next_due: datetime | None, ended: bool
    ) -> bool:
        """Take this due time; False if somebody else has taken it or the schedule has changed.
        `next_due` is the next one; with `ended` there is none."""
        state = ScheduleState.ENDED if ended else ScheduleState.ACTIVE
        values = {"next_due": next_due, "state": state}
        done = await tx.execute(
            _CLAIM.values(values), {"which": schedule.id, "due": schedule.next_due}
        )
        return bool(done.rowcount)

    async def update(
        self, tx: Transaction, schedule: Schedule, **changes: Unpack[ScheduleChanges]
    ) -> Schedule | None:
        """Change a schedule that still has the state it was read with; None otherwise."""
        values: dict[str, Any] = dict(changes)
        if "timing" in changes:
            values["timing"] = dump_timing(changes["timing"])
        query = (
            sa.update(schema.schedules)
            .where(_S.id == schedule.id, _S.state == schedule.state)
            .values(**values)
            .returning(schema.schedules)
        )
        return _schedule_or_none((await tx.execute(query)).one_or_none())

    async def list_active_of_chat(self, chat: ChatId) -> Sequence[Schedule]:
        query = sa.select(schema.schedules).where(
            _S.chat_id == chat, _S.state == ScheduleState.ACTIVE
        )
        return [_schedule(row) for row in await self._db.fetch_all(query)]

    async def list_without_due(self) -> Sequence[Schedule]:
        """Active schedules without a due time."""
        query = sa.select(schema.schedules).where(
            _S.next_due.is_(None), _S.state == ScheduleState.ACTIVE
        )
        return [_schedule(row) for row in await self._db.fetch_all(query)]

    async def add_firing(
        self,
        tx: Transaction,
        schedule: Schedule,
        *,
        due_at: datetime,
        state: FiringState,
        now: datetime,
        task_id: TaskId | None = None,
        note: str = "",
    ) -> Firing:
        values = {
            "schedule_id": schedule.id,
            "due_at": due_at,
            "state": state,
            "fired_at": now,
            "ended_at": None if state.is_open else now,
            "task_id": task_id,
            "note": note,
        }
        query = sa.insert(schema.firings).values(values).returning(schema.firings)
        row: sa.Row[Any] = (await tx.execute(query)).one()
        return record_from(Firing, row)

    async def get_firing(
        self, firing_id: int, *, tx: Transaction | None = None
    ) -> ScheduledFiring | None:
        row = await self._db.fetch_one(sa.select(schema.firings).where(_F.id == firing_id), tx=tx)
        if row is None:
            return None
        firing = record_from(Firing, row)
        return ScheduledFiring(schedule=await self.get(firing.schedule_id, tx=tx), firing=firing)

    async def find_firing(
        self, tx: Transaction, schedule_id: ScheduleId, due_at: datetime
    ) -> Firing | None:
        query = sa.select(schema.firings).where(_F.schedule_id == schedule_id, _F.due_at == due_at)
        return record_from(Firing, (await tx.execute(query)).one_or_none())

    async def find_firing_after(
        self, tx: Transaction, schedule_id: ScheduleId, at: datetime
    ) -> Firing | None:
        """The first that was due after this moment."""
        query = (
            sa.select(schema.firings)
            .where(_F.schedule_id == schedule_id, _F.due_at > at)
            .order_by(_F.due_at)
            .limit(1)
        )
        return record_from(Firing, (await tx.execute(query)).one_or_none())

    async def list_firings(self, schedule_id: ScheduleId, limit: int) -> Sequence[Firing]:
        """The newest first."""
        query = (
            sa.select(schema.firings)
            .where(_F.schedule_id == schedule_id)
            .order_by(_F.due_at.desc())
            .limit(limit)
        )
        return records_from(Firing, await self._db.fetch_all(query))

    async def find_running(self, tx: Transaction, schedule_id: ScheduleId) -> Firing | None:
        """The firing of this schedule whose task is not finished, or whose run has not ended."""
        query = (
            sa.select(schema.firings)
            .outerjoin(schema.tasks, _T.id == _F.task_id)
            .where(
                _F.schedule_id == schedule_id,
                _F.state == FiringState.STARTED,
                _T.status.is_(None) | _T.status.not_in(_FINAL_STATUSES),
                _T.deleted_at.is_(None),
            )
            .order_by(_F.due_at.desc())
            .limit(1)
        )
        return record_from(Firing, (await tx.execute(query)).one_or_none())

    async def find_firing_of_task(self, tx: Transaction, task_id: TaskId) -> ScheduledFiring | None:
        query = sa.select(_F.id).where(_F.task_id == task_id)
        found = await tx.scalar(query)
        return None if found is None else await self.get_firing(found, tx=tx)

    async def find_recurring_of_task(self, task_id: TaskId) -> str:
        """The schedule that started this task, if it will start more; empty otherwise."""
        query = (
            sa.select(_S.id)
            .join(schema.firings, _F.schedule_id == _S.id)
            .where(_F.task_id == task_id, _S.state == ScheduleState.ACTIVE)
        )
        return str(await self._db.fetch_value(query) or "")

    async def find_retry_of_task(self, task_id: TaskId) -> datetime | None:
        """When the schedule that started this task will try it again by itself."""
        found: datetime | None = await self._db.fetch_value(
            sa.select(_F.retry_at).where(_F.task_id == task_id, _RETRY)
        )
        return found

    async def list_started(self) -> Sequence[ScheduledFiring]:
        """Firings whose outcome is not recorded yet."""
        ids = await self._db.fetch_column(
            sa.select(_F.id).where(_F.state == FiringState.STARTED).order_by(_F.id)
        )
        found = [await self.get_firing(each) for each in ids]
        return [each for each in found if each is not None]

    async def list_due_retries(self, now: datetime, limit: int) -> Sequence[ScheduledFiring]:
        query = (
            sa.select(_F.id)
            .where(_RETRY, _F.retry_at <= now)
            .order_by(_F.retry_at, _F.id)
            .limit(limit)
        )
        found = [await self.get_firing(each) for each in await self._db.fetch_column(query)]
        return [each for each in found if each is not None]

    async def settle_firing(
        self,
        tx: Transaction,
        firing: Firing,
        state: FiringState,
        *,
        now: datetime,
        note: str = "",
        retry_at: datetime | None = None,
        attempt: int | None = None,
        task_id: TaskId | None = None,
    ) -> bool:
        """Update a firing that still has the state it was read with; otherwise False."""
        query = (
            sa.update(schema.firings)
            .where(
                _F.id == firing.id,
                _F.state == firing.state,
                _F.attempt == firing.attempt,
                _F.retry_at.is_not_distinct_from(
                    sa.bindparam("seen_retry", type_=_F.retry_at.type)
                ),
            )
            .values(
                state=state,
                ended_at=None if state.is_open else now,
                note=note,
                retry_at=retry_at,
                attempt=firing.attempt if attempt is None else attempt,
                task_id=task_id or firing.task_id,
            )
        )
        return bool((await tx.execute(query, {"seen_retry": firing.retry_at})).rowcount)


def _visible(of: PersonId | None, chat: ChatId | None) -> sa.ColumnElement[bool]:
    """`chat` stands for all its threads."""
    wanted: list[sa.ColumnElement[bool]] = []
    if of is not None:
        wanted.append(_S.owner_id == of)
    if chat is not None:
        same = sa.and_(_HERE.c.channel == _CHAT.channel, _HERE.c.external_id == _CHAT.external_id)
        threads = sa.select(_CHAT.id).join(_HERE, same).where(_HERE.c.id == chat)
        wanted.append(_S.chat_id.in_(threads))
    return sa.and_(sa.true(), *wanted)


def dump_timing(timing: Timing) -> dict[str, Any]:
    """The timing as JSON: `at`, `every` seconds from `start`, or `cron` on `days`, of them
    the `nth` of a month; with `since`, `until` and `times` where it has a beginning or an end."""
    match timing:
        case OneTime(at=at):
            return {"at": at.isoformat()}
        case Interval(every=every, start=start):
            data: dict[str, Any] = {"every": every.total_seconds(), "start": start.isoformat()}
        case CronTiming(expression=expression, days=days, nth=nth, since=since):
            data = {"cron": expression, "days": days.value, **({"nth": nth} if nth else {})}
            if since is not None:
                data["since"] = since.isoformat()
        case _:
            assert_never(timing)
    if timing.until is not None:
        data["until"] = timing.until.isoformat()
    if timing.times:
        data["times"] = timing.times
    return data


def load_timing(data: Mapping[str, Any]) -> Timing:
    if "at" in data:
        return OneTime(at=datetime.fromisoformat(data["at"]))
    until = datetime.fromisoformat(data["until"]) if "until" in data else None
    times = data.get("times", 0)
    if "every" in data:
        return Interval(
            every=timedelta(seconds=data["every"]),
            start=datetime.fromisoformat(data["start"]),
            until=until,
            times=times,
        )
    return CronTiming(
        expression=data["cron"],
        days=DayFilter(data["days"]),
        nth=data.get("nth", 0),
        since=datetime.fromisoformat(data["since"]) if "since" in data else None,
        until=until,
        times=times,
    )


_BODIES: Mapping[str, type[Any]] = {
    "message": MessageBody,
    "task": TaskBody,
    "workflow": WorkflowBody,
    "service": ServiceBody,
}


def dump_body(body: ScheduleBody) -> dict[str, Any]:
    kind = next(name for name, each in _BODIES.items() if isinstance(body, each))
    return {"kind": kind, **asdict(body)}


def load_body(data: Mapping[str, Any]) -> ScheduleBody:
    values = dict(data)
    made: ScheduleBody = _BODIES[values.pop("kind")](**values)
    return made


def _schedule(row: sa.Row[Any]) -> Schedule:
    return record_from(
        Schedule,
        row,
        timing=load_timing(row.timing),
        body=load_body(row.body),
        retry_delay=timedelta(seconds=row.retry_seconds),
    )


def _schedule_or_none(row: sa.Row[Any] | None) -> Schedule | None:
    return None if row is None else _schedule(row)
