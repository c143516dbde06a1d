"""Computes reports from stored rows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.autonomy.reports.findings import (
    SampledTask,
    compare_periods,
    degraded_tasks,
    failing_steps,
    find_tips,
    slow_steps,
    step_figures,
)
from bot.engine.tracing.span_ids import node_span_id
from bot.engine.workflow.node_runs import parse_activation
from storage.records.autonomy import (
    DayFigures,
    EndedTask,
    Finding,
    HeatMap,
    ReportPeriod,
    ScheduleFigures,
    StepFigures,
    StepRun,
    WaitingItem,
    WorkReport,
)
from storage.records.tasks import NodeRun, TaskId, TaskStatus
from storage.records.traces import ModelCall, NodeAttempt, SpanState
from storage.reports import ReportRepo, TaskSample
from storage.tasks import TaskVisibility

TREND_DAYS = 30
_MAX_SAMPLED, _MAX_EARLIER = 300, 200
"""Tasks of the period, and from before it, whose steps are looked at."""
_MAX_ENDED, _MAX_COSTLIEST, _MAX_WAITING, _MAX_SCHEDULES = 8, 5, 8, 3
_SUSPENDED = {SpanState.SUSPENDED, SpanState.CUT_OFF}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReportSpan:
    """`before` is as long before `since` as that before `until`; `first_day` is the first of the
    days whose trend is shown."""

    since: datetime
    until: datetime
    before: datetime
    first_day: date
    trend_since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _SampleRows:
    """The newest tasks of the period, and from before it, with their details."""

    own: Sequence[EndedTask]
    earlier: Sequence[EndedTask]
    details: TaskSample
    costs: Mapping[TaskId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportBuilder:
    """Days are days in `zone`."""

    reports: ReportRepo
    zone: ZoneInfo

    async def build(
        self, period: ReportPeriod, *, seen: TaskVisibility, until: datetime
    ) -> WorkReport:
        """The report on what this reader may see."""
        span = self._span(period, until)
        since, before = span.since, span.before
        sample = await self._sample(seen, span)
        costliest = await self.reports.list_costliest(seen, since, until, _MAX_COSTLIEST)
        costs = {
            **sample.costs,
            **await self.reports.cost_by_task([each.id for each in costliest]),
        }
        outcomes = await self.reports.get_outcomes(seen, since, until)
        outcomes_before = await self.reports.get_outcomes(seen, before, since)
        spent = await self.reports.sum_usage(seen, since, until)
        spent_before = await self.reports.sum_usage(seen, before, since)
        ended = await self.reports.count_ended(seen, span.trend_since, until)
        spending = await self.reports.sum_spending(seen, span.trend_since, until)
        steps = await self.reports.count_steps(seen, span.trend_since, until)
        waiting, waiting_count, running = await self._waiting(seen, until)
        changes = compare_periods(
            outcomes,
            outcomes_before,
            micros=spent.cost_micros,
            micros_before=spent_before.cost_micros,
        )
        # Thousands of rows would block the event loop.
        figures, findings = await asyncio.to_thread(_analyse, sample)
        newest = sample.own[:_MAX_ENDED]
        return WorkReport(
            period=period,
            since=since,
            until=until,
            counts=outcomes.counts,
            before=outcomes_before.counts,
            ended=tuple(newest),
            costliest=tuple(costliest),
            costs={each.id: costs[each.id] for each in (*newest, *costliest) if each.id in costs},
            waiting=tuple(waiting),
            waiting_count=waiting_count,
            running=running,
            schedules=await self._schedules(seen, since, until),
            spent=spent,
            spent_before=spent_before,
            days=self._days(span.first_day, ended, spending),
            heat=self._heat(steps),
            hours=self._hours((at, number) for at, number in steps if at >= since),
            failing_steps=failing_steps(figures),
            slow_steps=slow_steps(figures),
            findings=(*changes, *findings),
            sampled_tasks=len(sample.own),
        )

    def _span(self, period: ReportPeriod, until: datetime) -> _ReportSpan:
        first_day = self._day(until) - timedelta(days=TREND_DAYS - 1)
        return _ReportSpan(
            since=self._days_before(until, period.days),
            until=until,
            before=self._days_before(until, 2 * period.days),
            first_day=first_day,
            trend_since=datetime.combine(first_day, time(), self.zone).astimezone(UTC),
        )

    async def _sample(self, seen: TaskVisibility, span: _ReportSpan) -> _SampleRows:
        own = await self.reports.list_ended(seen, span.since, span.until, _MAX_SAMPLED)
        earlier = await self.reports.list_ended(seen, span.trend_since, span.since, _MAX_EARLIER)
        ids = [each.id for each in (*own, *earlier)]
        return _SampleRows(
            own=own,
            earlier=earlier,
            details=await self.reports.get_sample(ids, own=[each.id for each in own]),
            costs=await self.reports.cost_by_task(ids),
        )

    async def _waiting(
        self, seen: TaskVisibility, until: datetime
    ) -> tuple[Sequence[WaitingItem], int, int]:
        """The first waiting items, the number of all, and the number of running tasks."""
        open_tasks = await self.reports.count_open(seen)
        requests = await self.reports.list_waiting_requests(seen, until, 100)
        tasks = await self.reports.list_waiting_tasks(seen, _MAX_WAITING)
        waits = (TaskStatus.BLOCKED, TaskStatus.PAUSED, TaskStatus.WAITING)
        count = len(requests) + sum(open_tasks.get(status, 0) for status in waits)
        shown = [*requests[:_MAX_WAITING], *tasks][:_MAX_WAITING]
        return shown, count, open_tasks.get(TaskStatus.RUNNING, 0)

    async def _schedules(
        self, seen: TaskVisibility, since: datetime, until: datetime
    ) -> ScheduleFigures:
        fired = await self.reports.count_firings(seen, since, until, titles=_MAX_SCHEDULES)
        return ScheduleFigures(
            fired=fired.done,
            failures=fired.failed,
            failed=fired.failed_titles,
            upcoming=tuple(await self.reports.list_upcoming(seen, _MAX_SCHEDULES)),
        )

    def _days_before(self, until: datetime, days: int) -> datetime:
        """The same local time some days earlier; a day may have 23 or 25 hours."""
        return (until.astimezone(self.zone) - timedelta(days=days)).astimezone(UTC)

    def _days(
        self,
        first: date,
        ended: Iterable[tuple[datetime, TaskStatus, int]],
        spending: Iterable[tuple[datetime, int, int]],
    ) -> tuple[DayFigures, ...]:
        tasks: Counter[tuple[date, TaskStatus]] = Counter()
        micros: Counter[date] = Counter()
        tokens: Counter[date] = Counter()
        for at, status, number in ended:
            tasks[self._day(at), status] += number
        for at, spent, used in spending:
            micros[self._day(at)] += spent
            tokens[self._day(at)] += used
        return tuple(
            DayFigures(
                day=day,
                completed=tasks[day, TaskStatus.COMPLETED],
                failed=tasks[day, TaskStatus.FAILED],
                micros=micros[day],
                tokens=tokens[day],
            )
            for day in (first + timedelta(days=n) for n in range(TREND_DAYS))
        )

    def _day(self, at: datetime) -> date:
        return at.astimezone(self.zone).date()

    def _heat(self, steps: Iterable[tuple[datetime, int]]) -> HeatMap:
        cells = [[0] * 24 for _ in range(7)]
        for at, number in steps:
            local = at.astimezone(self.zone)
            cells[local.weekday()][local.hour] += number
        return tuple(tuple(row) for row in cells)

    def _hours(self, steps: Iterable[tuple[datetime, int]]) -> tuple[int, ...]:
        counts = [0] * 24
        for at, number in steps:
            counts[at.astimezone(self.zone).hour] += number
        return tuple(counts)


def _analyse(sample: _SampleRows) -> tuple[Sequence[StepFigures], Sequence[Finding]]:
    runs = _step_runs(sample.details)
    own = _sampled_tasks(sample.own, sample.details, sample.costs)
    earlier = _sampled_tasks(sample.earlier, sample.details, sample.costs)
    findings = (*degraded_tasks(own, [*own, *earlier]), *find_tips(own, runs))
    return step_figures(runs), findings


def _sampled_tasks(
    tasks: Sequence[EndedTask], sample: TaskSample, costs: Mapping[TaskId, int]
) -> Sequence[SampledTask]:
    return [
        SampledTask(
            task=each,
            titles=tuple(_work_titles(sample.plans.get(each.id, {})).values()),
            micros=costs.get(each.id, 0),
        )
        for each in tasks
    ]


def _work_titles(plan: Mapping[str, Any]) -> Mapping[str, str]:
    """The titles by id of the nodes where a worker works."""
    return {
        str(node.get("id", "")): str(node.get("title") or node.get("id", ""))
        for node in plan.get("nodes", ())
        if node.get("type") in {"task", None}
    }


def _step_runs(sample: TaskSample) -> Sequence[StepRun]:
    """The runs of workers' steps, all rounds of a loop as runs of the same step."""
    titles = {task: _work_titles(plan) for task, plan in sample.plans.items()}
    calls: dict[str, list[ModelCall]] = {}
    for call in sample.calls:
        calls.setdefault(call.parent_id, []).append(call)
    found = []
    for run in sample.runs:
        place = parse_activation(run.path)
        title = titles.get(run.task_id, {}).get(place.node) if place is not None else None
        if title is not None:
            found.append(_step_run(run, title, sample.attempts, calls))
    return found


def _step_run(
    run: NodeRun,
    title: str,
    attempts: Mapping[tuple[str, str], Sequence[NodeAttempt]],
    calls: Mapping[str, Sequence[ModelCall]],
) -> StepRun:
    failed = [
        each
        for each in attempts.get((run.task_id, run.path), ())
        if each.attempt < run.attempt and each.error and not _was_suspended(run, each, calls)
    ]
    seconds = 0.0
    if run.started_at is not None and run.ended_at is not None:
        seconds = max(0.0, (run.ended_at - run.started_at).total_seconds())
    return StepRun(
        task_id=run.task_id,
        title=title,
        status=run.status,
        seconds=seconds,
        micros=sum(_attempt_cost(run, n, calls) for n in range(1, run.attempt + 1)),
        failed_attempts=len(failed),
        failed_micros=sum(_attempt_cost(run, each.attempt, calls) for each in failed),
    )


def _was_suspended(
    run: NodeRun, attempt: NodeAttempt, calls: Mapping[str, Sequence[ModelCall]]
) -> bool:
    """Whether the attempt only waited for a person or was interrupted, so that the next one
    continues it."""
    made = calls.get(node_span_id(run.task_id, run.path, attempt.attempt), ())
    return bool(made) and made[-1].status in _SUSPENDED


def _attempt_cost(run: NodeRun, attempt: int, calls: Mapping[str, Sequence[ModelCall]]) -> int:
    made = calls.get(node_span_id(run.task_id, run.path, attempt), ())
    costs = (each.attributes.get("shiftboss.cost_micros") for each in made)
    return sum(int(cost) for cost in costs if isinstance(cost, int | float))
