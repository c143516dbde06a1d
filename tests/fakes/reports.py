"""A fake of the report port: tells one report and remembers what was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from storage.records.autonomy import (
    DayFigures,
    EndedTask,
    Finding,
    FindingKind,
    ReportPeriod,
    ReportPictures,
    ScheduleFigures,
    StepFigures,
    WaitingItem,
    WorkReport,
)
from storage.records.people import ChatId, Language, Person, PersonId
from storage.records.schedules import CronTiming, Schedule, ScheduleId, ScheduleKind, ServiceBody
from storage.records.tasks import TaskId, TaskStatus, UsageTotals
from tests.builders import NOW
from tests.fakes.schedules import make_schedule


def make_report(period: ReportPeriod = ReportPeriod.DAY, **changes: Any) -> WorkReport:
    """One task done, one waits, with a tip."""
    task = EndedTask(
        id=TaskId("k3m9qa"),
        title="Write the *minutes* [x](http://evil)",
        status=TaskStatus.COMPLETED,
        started_at=NOW - timedelta(hours=2),
        ended_at=NOW - timedelta(hours=1),
    )
    days = tuple(
        DayFigures(day=(NOW - timedelta(days=29 - n)).date(), completed=1, micros=10_000 * n)
        for n in range(30)
    )
    made = WorkReport(
        period=period,
        since=NOW - timedelta(days=period.days),
        until=NOW,
        counts={TaskStatus.COMPLETED: 1},
        before={TaskStatus.COMPLETED: 1},
        ended=(task,),
        costliest=(task,),
        costs={task.id: 420_000},
        waiting=(
            WaitingItem(kind="blocked", id="p4used", title="Stuck", since=NOW - timedelta(hours=3)),
        ),
        waiting_count=1,
        running=0,
        schedules=ScheduleFigures(fired=2, upcoming=(("News", NOW + timedelta(hours=1)),)),
        spent=UsageTotals(calls=3, input_tokens=900, cost_micros=420_000),
        spent_before=UsageTotals(calls=3, input_tokens=900, cost_micros=300_000),
        days=days,
        heat=tuple(tuple(hour % 5 for hour in range(24)) for _ in range(7)),
        hours=tuple(hour % 5 for hour in range(24)),
        slow_steps=(
            StepFigures(
                title="Build",
                runs=5,
                failed=0,
                mean_seconds=60.0,
                longest_seconds=180.0,
                slowest_task=task.id,
            ),
        ),
        findings=(
            Finding(
                kind=FindingKind.RETRY_WASTE,
                subject="Build",
                figures={"micros": 50_000, "saved_micros": 35_000, "number": 3},
            ),
        ),
        sampled_tasks=1,
    )
    return replace(made, **changes)


class FakeReports:
    """`changes` are made to each report."""

    def __init__(self) -> None:
        self.asked: list[tuple[ReportPeriod, PersonId, ChatId, datetime]] = []
        self.on: dict[ReportPeriod, Schedule] = {}
        self.changes: dict[str, Any] = {}

    async def report(
        self, period: ReportPeriod, *, by: Person, chat: ChatId, until: datetime
    ) -> WorkReport:
        self.asked.append((period, by.id, chat, until))
        return make_report(period, **self.changes)

    async def draw(self, report: WorkReport, language: Language) -> ReportPictures:
        return ReportPictures(heat=f"files/reports/heat-{language}.png", cost="files/reports/c.png")

    async def schedule(
        self, period: ReportPeriod, timing: CronTiming, *, title: str, by: Person, chat: ChatId
    ) -> Schedule:
        self.on[period] = make_schedule(
            id=ScheduleId(f"rep{period}"),
            kind=ScheduleKind.JOB,
            title=title,
            timing=timing,
            body=ServiceBody(name="report", options={"period": period.value}),
            owner_id=by.id,
            chat_id=chat,
        )
        return self.on[period]

    async def stop(self, *, by: Person, chat: ChatId) -> Sequence[Schedule]:
        stopped = list(self.on.values())
        self.on.clear()
        return stopped
