"""Defines reports on past work and what is read to compute them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

from storage.records.tasks import NodeStatus, TaskId, TaskStatus, UsageTotals


class ReportPeriod(StrEnum):
    """How far a report looks back, in whole local days."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def days(self) -> int:
        return {ReportPeriod.DAY: 1, ReportPeriod.WEEK: 7, ReportPeriod.MONTH: 30}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTask:
    """A task that ended."""

    id: TaskId
    title: str
    status: TaskStatus
    started_at: datetime | None
    ended_at: datetime

    @property
    def seconds(self) -> float:
        """From its first start to its end, waiting included."""
        if self.started_at is None:
            return 0.0
        return max(0.0, (self.ended_at - self.started_at).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcomes:
    """How the tasks ended that ended in a time. `mean_seconds` is that of completed ones."""

    counts: Mapping[TaskStatus, int]
    mean_seconds: float

    @property
    def completed(self) -> int:
        return self.counts.get(TaskStatus.COMPLETED, 0)

    @property
    def judged(self) -> int:
        """Without those that a person stopped, which says nothing about success."""
        return self.completed + self.counts.get(TaskStatus.FAILED, 0)

    @property
    def success_percent(self) -> int:
        return round(100 * self.completed / self.judged) if self.judged else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """A node run of a task. `failed_micros` is what its attempts cost that failed and were
    repeated."""

    task_id: TaskId
    title: str
    status: NodeStatus
    seconds: float
    micros: int = 0
    failed_attempts: int = 0
    failed_micros: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingItem:
    """A task or request that waits for somebody. `kind` is a task's status, `approval` or
    `question`."""

    kind: str
    id: str
    title: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFigures:
    """`failed` are the titles of the schedules whose newest firings failed; `upcoming` are titles
    with due times."""

    fired: int = 0
    failures: int = 0
    failed: tuple[str, ...] = ()
    upcoming: tuple[tuple[str, datetime], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DayFigures:
    day: date
    completed: int = 0
    failed: int = 0
    micros: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """All runs of the steps with one title. `slowest_task` had the longest run; times in
    seconds."""

    title: str
    runs: int
    failed: int
    mean_seconds: float
    longest_seconds: float
    slowest_task: TaskId

    @property
    def success_percent(self) -> int:
        return round(100 * (self.runs - self.failed) / self.runs) if self.runs else 100


class FindingKind(StrEnum):
    """SUCCESS, DURATION and COST compare with the period before; DEGRADED compares a task with
    similar earlier ones. The others are tips."""

    SUCCESS = "success"
    DURATION = "duration"
    COST = "cost"
    DEGRADED = "degraded"
    COSTLY_STEP = "costly_step"
    RETRY_WASTE = "retry_waste"
    SKIPPED_STEP = "skipped_step"
    BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something beyond its threshold. `figures` are numbers by name: `micros` are US dollars in
    millionths, `seconds` times, others counts or percentages. `subject` is a title that somebody
    else wrote, or a kind of task."""

    kind: FindingKind
    figures: Mapping[str, float]
    subject: str = ""
    task_id: TaskId | None = None


HeatMap = tuple[tuple[int, ...], ...]
"""Steps that started, by weekday (Monday first) and local hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReport:
    """The work from `since` to `until`, and what waits at `until`.

    `before` counts tasks of the equally long period before, `spent_before` is its cost. `ended`
    are the newest, `costliest` those of the highest known cost. `days` are the last 30 local days,
    oldest first, and so is what `heat` covers; `hours` counts the steps of this period by local
    hour. Steps and findings are computed from the newest `sampled_tasks`."""

    period: ReportPeriod
    since: datetime
    until: datetime
    counts: Mapping[TaskStatus, int]
    before: Mapping[TaskStatus, int]
    ended: tuple[EndedTask, ...]
    costliest: tuple[EndedTask, ...]
    costs: Mapping[TaskId, int]
    waiting: tuple[WaitingItem, ...]
    waiting_count: int
    running: int
    schedules: ScheduleFigures
    spent: UsageTotals
    spent_before: UsageTotals
    days: tuple[DayFigures, ...]
    heat: HeatMap
    hours: tuple[int, ...]
    failing_steps: tuple[StepFigures, ...] = ()
    slow_steps: tuple[StepFigures, ...] = ()
    findings: tuple[Finding, ...] = ()
    sampled_tasks: int = 0

    @property
    def is_quiet(self) -> bool:
        """Nothing happened; things may wait."""
        happened = sum(self.counts.values()) + self.schedules.fired + self.schedules.failures
        return not (happened or self.spent.calls or sum(self.hours))

    @property
    def step_count(self) -> int:
        """Of the days that `heat` covers."""
        return sum(map(sum, self.heat))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPictures:
    """Paths relative to the data directory, empty if there is nothing worth a picture."""

    heat: str = ""
    cost: str = ""
