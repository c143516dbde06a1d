"""Reads what reports are computed from: tasks, steps, firings and usage of a time. All queries are
bounded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage import schema
from storage.db import Database, record_from, records_from
from storage.records.approvals import ApprovalKind, ApprovalState
from storage.records.autonomy import EndedTask, TaskOutcomes, WaitingItem
from storage.records.schedules import FiringState, ScheduleKind, ScheduleState
from storage.records.tasks import NodeRun, TaskId, TaskStatus, UsageTotals
from storage.records.traces import ModelCall, NodeAttempt
from storage.tasks import NOT_DELETED, TaskVisibility, all_threads
from storage.usage import USAGE_SUMS, quarter_hour, quarter_hour_start

_T = schema.tasks.c
_U = schema.usage.c
_A = schema.node_attempts.c
_R = schema.node_runs.c
_G = schema.task_graphs.c
_S = schema.schedules.c
_F = schema.firings.c
_SPAN = schema.spans.c
_APPROVAL = schema.approvals.c

_MAX_SPANS = 20_000
_MAX_RUNS = 20_000
_ENDED_COLUMNS = [_T[name] for name in EndedTask.__dataclass_fields__]
_OPEN = (TaskStatus.BLOCKED, TaskStatus.PAUSED, TaskStatus.WAITING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSample:
    """The details of some tasks: newest plans, node runs, repeated attempts by task and path, and
    model calls."""

    plans: Mapping[TaskId, Mapping[str, Any]]
    runs: Sequence[NodeRun]
    attempts: Mapping[tuple[str, str], Sequence[NodeAttempt]]
    calls: Sequence[ModelCall]


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringCounts:
    done: int
    failed: int
    failed_titles: tuple[str, ...]


class ReportRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def list_ended(
        self, seen: TaskVisibility, since: datetime, until: datetime, limit: int
    ) -> Sequence[EndedTask]:
        """Tasks that ended in this time, the newest first."""
        query = (
            sa.select(*_ENDED_COLUMNS)
            .where(_ended(seen, since, until))
            .order_by(_T.ended_at.desc(), _T.id)
            .limit(limit)
        )
        return records_from(EndedTask, await self._db.fetch_all(query))

    async def get_outcomes(
        self, seen: TaskVisibility, since: datetime, until: datetime
    ) -> TaskOutcomes:
        started, ended = (
            sa.type_coerce(each, sa.BigInteger) for each in (_T.started_at, _T.ended_at)
        )
        query = (
            sa.select(_T.status, sa.func.count(), sa.func.avg(ended - started))
            .where(_ended(seen, since, until))
            .group_by(_T.status)
        )
        rows = await self._db.fetch_all(query)
        means = {status: float(mean or 0) / 1_000_000 for status, _, mean in rows}
        return TaskOutcomes(
            counts={TaskStatus(status): int(count) for status, count, _ in rows},
            mean_seconds=max(0.0, means.get(TaskStatus.COMPLETED, 0.0)),
        )

    async def count_ended(
        self, seen: TaskVisibility, since: datetime, until: datetime
    ) -> Sequence[tuple[datetime, TaskStatus, int]]:
        """How many tasks ended with which status in each quarter of an hour."""
        bucket = quarter_hour(_T.ended_at)
        query = (
            sa.select(bucket, _T.status, sa.func.count())
            .where(_ended(seen, since, until))
            .group_by(bucket, _T.status)
        )
        return [
            (quarter_hour_start(start), TaskStatus(status), int(count))
            for start, status, count in await self._db.fetch_all(query)
        ]

    async def list_costliest(
        self, seen: TaskVisibility, since: datetime, until: datetime, limit: int
    ) -> Sequence[EndedTask]:
        """Of the tasks that ended in this time, those of the highest known cost."""
        cost = sa.func.sum(_U.cost_micros)
        query = (
            sa.select(*_ENDED_COLUMNS)
            .join(schema.usage, _U.task_id == _T.id)
            .where(_ended(seen, since, until), _U.cost_micros > 0)
            .group_by(_T.id)
            .order_by(cost.desc(), _T.id)
            .limit(limit)
        )
        return records_from(EndedTask, await self._db.fetch_all(query))

    async def count_open(self, seen: TaskVisibility) -> Mapping[TaskStatus, int]:
        query = (
            sa.select(_T.status, sa.func.count())
            .where(_T.status.in_([each for each in TaskStatus if not each.is_final]))
            .where(NOT_DELETED, seen.where_clause)
            .group_by(_T.status)
        )
        return {TaskStatus(status): int(count) for status, count in await self._db.fetch_all(query)}

    async def list_waiting_tasks(self, seen: TaskVisibility, limit: int) -> Sequence[WaitingItem]:
        """Tasks that are blocked, paused or wait, the newest first."""
        query = (
            sa.select(_T.id, _T.title, _T.status, _T.waiting_since, _T.created_at)
            .where(_T.status.in_(_OPEN), NOT_DELETED, seen.where_clause)
            .order_by(_T.created_at.desc(), _T.id)
            .limit(limit)
        )
        return [
            WaitingItem(kind=row.status, id=row.id, title=row.title, since=row.created_at)
            for row in await self._db.fetch_all(query)
        ]

    async def list_waiting_requests(
        self, seen: TaskVisibility, now: datetime, limit: int
    ) -> Sequence[WaitingItem]:
        """Approvals and questions that wait for an answer, the oldest first."""
        visible: sa.ColumnElement[bool] = sa.true()
        if not seen.sees_all:
            tasks = sa.select(_T.id).where(seen.where_clause)
            visible = _APPROVAL.chat_id.in_(all_threads(seen.chat)) | _APPROVAL.task_id.in_(tasks)
        query = (
            sa.select(_APPROVAL.id, _APPROVAL.kind, _APPROVAL.title, _APPROVAL.created_at)
            .where(_APPROVAL.state == ApprovalState.WAITING, _APPROVAL.expires_at > now, visible)
            .order_by(_APPROVAL.created_at, _APPROVAL.id)
            .limit(limit)
        )
        return [
            WaitingItem(
                kind="question" if row.kind == ApprovalKind.QUESTION else "approval",
                id=row.id,
                title=row.title,
                since=row.created_at,
            )
            for row in await self._db.fetch_all(query)
        ]

    async def sum_spending(
        self, seen: TaskVisibility, since: datetime, until: datetime
    ) -> Sequence[tuple[datetime, int, int]]:
        """The cost in millionths of a dollar and the tokens of each quarter of an hour."""
        bucket = quarter_hour(_U.at)
        query = (
            sa.select(
                bucket,
                sa.func.coalesce(sa.func.sum(_U.cost_micros), 0),
                sa.func.sum(_U.input_tokens + _U.output_tokens),
            )
            .where(_U.at >= since, _U.at < until, _usage_of(seen))
            .group_by(bucket)
        )
        return [
            (quarter_hour_start(start), int(micros), int(tokens))
            for start, micros, tokens in await self._db.fetch_all(query)
        ]

    async def sum_usage(
        self, seen: TaskVisibility, since: datetime, until: datetime
    ) -> UsageTotals:
        query = sa.select(*USAGE_SUMS).where(_U.at >= since, _U.at < until, _usage_of(seen))
        (row,) = await self._db.fetch_all(query)
        return _totals(row)

    async def cost_by_task(self, tasks: Collection[TaskId]) -> Mapping[TaskId, int]:
        """The cost of tasks in all, in millionths of a dollar; those without a known cost are left
        out."""
        query = (
            sa.select(_U.task_id, sa.func.sum(_U.cost_micros))
            .where(_U.task_id.in_(list(tasks)), _U.cost_micros > 0)
            .group_by(_U.task_id)
        )
        return {TaskId(task): int(cost) for task, cost in await self._db.fetch_all(query)}

    async def count_steps(
        self, seen: TaskVisibility, since: datetime, until: datetime
    ) -> Sequence[tuple[datetime, int]]:
        """How many steps started in each quarter of an hour."""
        bucket = quarter_hour(_A.started_at)
        query = (
            sa.select(bucket, sa.func.count())
            .where(_A.started_at >= since, _A.started_at < until)
            .group_by(bucket)
        )
        if not seen.sees_all:
            query = query.where(_A.task_id.in_(sa.select(_T.id).where(seen.where_clause)))
        return [(quarter_hour_start(start), int(n)) for start, n in await self._db.fetch_all(query)]

    async def count_firings(
        self, seen: TaskVisibility, since: datetime, until: datetime, *, titles: int
    ) -> FiringCounts:
        """Firings of people's reminders and jobs, without those that run a report."""
        where = sa.and_(
            _F.fired_at >= since, _F.fired_at < until, _of_people(), _schedules_of(seen)
        )
        joined = schema.firings.join(schema.schedules, _S.id == _F.schedule_id)
        counts = (
            sa.select(_F.state, sa.func.count()).select_from(joined).where(where).group_by(_F.state)
        )
        by_state = {state: int(n) for state, n in await self._db.fetch_all(counts)}
        failed = (
            sa.select(_S.title)
            .select_from(joined)
            .where(where, _F.state == FiringState.FAILED)
            .group_by(_S.id, _S.title)
            .order_by(sa.func.max(_F.fired_at).desc())
            .limit(titles)
        )
        quiet = (FiringState.FAILED, FiringState.SKIPPED, FiringState.MISSED)
        return FiringCounts(
            done=sum(n for state, n in by_state.items() if state not in quiet),
            failed=by_state.get(FiringState.FAILED, 0),
            failed_titles=tuple(await self._db.fetch_column(failed)),
        )

    async def list_upcoming(
        self, seen: TaskVisibility, limit: int
    ) -> Sequence[tuple[str, datetime]]:
        query = (
            sa.select(_S.title, _S.next_due)
            .where(
                _S.next_due.is_not(None),
                _S.state == ScheduleState.ACTIVE,
                _of_people(),
                _schedules_of(seen),
            )
            .order_by(_S.next_due, _S.id)
            .limit(limit)
        )
        return [(row.title, row.next_due) for row in await self._db.fetch_all(query)]

    async def get_sample(self, tasks: Sequence[TaskId], *, own: Sequence[TaskId]) -> TaskSample:
        """The plans of these tasks; all details of `own`."""
        async with self._db.read() as view:
            newest = (
                sa.select(_G.task_id, sa.func.max(_G.version).label("version"))
                .where(_G.task_id.in_(tasks))
                .group_by(_G.task_id)
                .subquery()
            )
            plans = await view.execute(
                sa.select(_G.task_id, _G.body).join(
                    newest,
                    sa.and_(_G.task_id == newest.c.task_id, _G.version == newest.c.version),
                )
            )
            runs = await view.execute(
                sa.select(*(_R[name] for name in NodeRun.__dataclass_fields__ if name != "output"))
                .where(_R.task_id.in_(own))
                .limit(_MAX_RUNS)
            )
            repeated = (
                sa.select(_R.task_id, _R.path).where(_R.task_id.in_(own), _R.attempt > 1).subquery()
            )
            attempts = await view.execute(
                sa.select(_A.task_id, *(_A[name] for name in NodeAttempt.__dataclass_fields__))
                .join(
                    repeated,
                    sa.and_(_A.task_id == repeated.c.task_id, _A.path == repeated.c.path),
                )
                .order_by(_A.attempt)
                .limit(_MAX_RUNS)
            )
            calls = await view.execute(
                sa.select(*(_SPAN[name] for name in ModelCall.__dataclass_fields__))
                .where(_SPAN.task_id.in_(own))
                .order_by(_SPAN.started_at)
                .limit(_MAX_SPANS)
            )
            tried: dict[tuple[str, str], list[NodeAttempt]] = {}
            for row in attempts:
                tried.setdefault((row.task_id, row.path), []).append(record_from(NodeAttempt, row))
            return TaskSample(
                plans={TaskId(row.task_id): row.body for row in plans},
                runs=[record_from(NodeRun, row, output={}) for row in runs],
                attempts=tried,
                calls=records_from(ModelCall, calls),
            )


def _ended(seen: TaskVisibility, since: datetime, until: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(
        _T.ended_at >= since,
        _T.ended_at < until,
        _T.status.in_([each for each in TaskStatus if each.is_final]),
        NOT_DELETED,
        seen.where_clause,
    )


def _totals(row: sa.Row[Any]) -> UsageTotals:
    return record_from(UsageTotals, row)


def _usage_of(seen: TaskVisibility) -> sa.ColumnElement[bool]:
    if seen.sees_all:
        return sa.true()
    here = _U.chat_id.in_(all_threads(seen.chat))
    return here if seen.person is None else sa.or_(_U.person_id == seen.person, here)


def _schedules_of(seen: TaskVisibility) -> sa.ColumnElement[bool]:
    if seen.sees_all:
        return sa.true()
    here = _S.chat_id.in_(all_threads(seen.chat))
    return here if seen.person is None else sa.or_(_S.owner_id == seen.person, here)


def _of_people() -> sa.ColumnElement[bool]:
    """Leave out what Shiftboss does for itself, such as these reports."""
    runs_program = _S.body["kind"].as_string() == "service"
    return sa.and_(_S.kind.in_([ScheduleKind.REMINDER, ScheduleKind.JOB]), ~runs_program)
