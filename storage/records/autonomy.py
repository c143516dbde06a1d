"""Defines what Shiftboss does by itself: self-checks, the problems they found, the program's goals,
runs of the heartbeat, and reports on past work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias

from storage.records.people import ChatId
from storage.records.schedules import Firing
from storage.records.tasks import NodeStatus, Task, TaskId, TaskStatus, UsageTotals
from storage.records.usage import SpendingCap

# --- self-checks and the program's goals

FULL_SCORE = 100
_WARN_FROM = 80
_TOLD_FROM = 10

FindingFacts: TypeAlias = Mapping[str, str | int]


class HealthGrade(StrEnum):
    GOOD = "good"
    WARN = "warn"
    FAIL = "fail"

    @classmethod
    def of(cls, score: int) -> HealthGrade:
        if score >= FULL_SCORE:
            return cls.GOOD
        return cls.WARN if score >= _WARN_FROM else cls.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFinding:
    """One problem. `text` is a text key for what it is and for what to do; `subject` tells problems
    of one kind apart; `facts` fill the texts, and `reason_key` among them is a text key itself.

    `points` are taken off the score, 0 for a remark. `repair` names the repair that code can make.
    With `asks_task` a worker may be asked to look into it.
    """

    text: str
    points: int
    subject: str = ""
    facts: FindingFacts = field(default_factory=dict)
    repair: str = ""
    asks_task: bool = False

    @property
    def is_told(self) -> bool:
        """Whether owners are told of it; lesser ones are only listed."""
        return self.points >= _TOLD_FROM


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The outcome of one check. Without `is_complete` nothing is known of problems that it has not
    found."""

    name: str
    findings: tuple[HealthFinding, ...] = ()
    is_complete: bool = True

    @property
    def score(self) -> int:
        return max(0, FULL_SCORE - sum(each.points for each in self.findings))

    @property
    def grade(self) -> HealthGrade:
        return HealthGrade.of(self.score)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOutcome:
    """A repair that was made: how many things it has put right."""

    repair: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """One run of all checks. The score is their mean; it fails if one of them does."""

    at: datetime
    results: Sequence[CheckResult]
    repairs: Sequence[RepairOutcome] = ()

    @property
    def score(self) -> int:
        if not self.results:
            return FULL_SCORE
        return sum(each.score for each in self.results) // len(self.results)

    @property
    def grade(self) -> HealthGrade:
        grades = {each.grade for each in self.results}
        return max(grades, key=list(HealthGrade).index, default=HealthGrade.GOOD)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewIncident:
    """`key` identifies the problem over all runs."""

    key: str
    check_name: str
    finding: HealthFinding


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A problem that owners are told of. `ended_at` is None while it lasts, `absent_since` is when
    it was first not found again. `reopened` counts how often it came back within a day. `task_id`
    is the task that an owner had made for it."""

    id: int
    key: str
    check_name: str
    finding: HealthFinding
    opened_at: datetime
    absent_since: datetime | None
    ended_at: datetime | None
    reopened: int
    task_id: TaskId | None

    @property
    def flaps(self) -> bool:
        return self.reopened > 1


class IncidentNews(StrEnum):
    """The change of a problem since it was last told."""

    NEW = "new"
    BACK = "back"
    FLAPS = "flaps"
    RECOVERED = "recovered"


JsonDict: TypeAlias = dict[str, Any]


def dump_finding(finding: HealthFinding) -> JsonDict:
    return {
        "text": finding.text,
        "points": finding.points,
        "subject": finding.subject,
        "facts": dict(finding.facts),
        "repair": finding.repair,
        "asks_task": finding.asks_task,
    }


def load_finding(data: Mapping[str, Any]) -> HealthFinding:
    return HealthFinding(**data)


def dump_results(results: Sequence[CheckResult]) -> list[JsonDict]:
    return [
        {
            "name": each.name,
            "is_complete": each.is_complete,
            "findings": [dump_finding(found) for found in each.findings],
        }
        for each in results
    ]


def load_results(data: Sequence[Mapping[str, Any]]) -> tuple[CheckResult, ...]:
    return tuple(
        CheckResult(
            name=each["name"],
            is_complete=each["is_complete"],
            findings=tuple(load_finding(found) for found in each["findings"]),
        )
        for each in data
    )


class GoalName(StrEnum):
    HEALTH_CHECK = "health-check"
    EVOLVE = "evolve"
    CLEANUP = "cleanup"

    @classmethod
    def parse(cls, word: str) -> GoalName | None:
        """The goal meant by `word` in either language, or None."""
        return _WORDS.get(word.strip().casefold())


_WORDS = {
    **{each.value: each for each in GoalName},
    "health": GoalName.HEALTH_CHECK,
    "体检": GoalName.HEALTH_CHECK,
    "健康": GoalName.HEALTH_CHECK,
    "进化": GoalName.EVOLVE,
    "清理": GoalName.CLEANUP,
}


class GoalState(StrEnum):
    """STOPPED goes on with the next start, of drive or of the program; DISABLED stays off until an
    owner enables it; UNAVAILABLE is not part of this version."""

    ON = "on"
    STOPPED = "stopped"
    DISABLED = "disabled"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalStatus:
    """`last` is its newest run."""

    name: GoalName
    every: timedelta
    state: GoalState
    next_due: datetime | None = None
    last: Firing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveStatus:
    """`used` is what tasks of drive have spent or may still spend today, of `cap`. `tasks` are its
    newest."""

    goals: tuple[GoalStatus, ...]
    used: SpendingCap
    cap: SpendingCap
    tasks: tuple[Task, ...] = ()

    @property
    def is_stopped(self) -> bool:
        return any(each.state is GoalState.STOPPED for each in self.goals)


# --- the heartbeat


class WakeReason(StrEnum):
    """Why the heartbeat runs, the weightiest first."""

    COMMAND = "command"
    JOB = "job"
    INTERVAL = "interval"
    RETRY = "retry"
    REQUESTED = "requested"


def merge_reasons(reasons: Sequence[str]) -> tuple[WakeReason, ...]:
    """Merge reasons: each once, the most important first, unknown ones left out."""
    return tuple(each for each in WakeReason if each.value in reasons)


class HeartbeatOutcome(StrEnum):
    """NOTHING_DUE, OUTSIDE_HOURS and NO_MODEL asked no model. NOTHING_TO_SAY asked one, which had
    nothing new to say. DID has evidence of work; it may also have said something."""

    RUNNING = "running"
    NOTHING_DUE = "nothing_due"
    NOTHING_TO_SAY = "nothing_to_say"
    SAID = "said"
    DID = "did"
    FAILED = "failed"
    OUTSIDE_HOURS = "outside_hours"
    CAP_REACHED = "cap_reached"
    NO_MODEL = "no_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatClaim:
    """A line of HEARTBEAT.md on which a run claims to have acted. `is_backed` says whether the
    evidence was found, `is_verified` whether it also names what the line names."""

    line: int
    text: str
    did: str
    evidence: str
    is_backed: bool
    is_verified: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRun:
    """`text` is what the owner was told, empty for nothing. `to_tick` are lines that are done but
    may not be ticked in the file yet. `note` is a text key or the reason of a failure."""

    id: int
    reasons: tuple[WakeReason, ...]
    outcome: HeartbeatOutcome
    started_at: datetime
    ended_at: datetime | None
    session_id: str
    text: str
    claims: tuple[HeartbeatClaim, ...]
    to_tick: tuple[str, ...]
    note: str


class TaskFileState(StrEnum):
    """How HEARTBEAT.md could be read."""

    READ = "read"
    MISSING = "missing"
    TOO_LARGE = "too_large"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatTask:
    """A pending or done line; `line` counts from 1. Only one with a `checkbox` can be ticked: a
    plain bullet stands for something to look after always."""

    line: int
    text: str
    is_done: bool
    checkbox: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatStatus:
    """`every_minutes` is 0 if a setting has switched the heartbeat off. `hours` is as in the
    settings. `chat` is where it tells, None if no owner has written yet. Costs are of today."""

    is_on: bool
    every_minutes: int
    hours: str
    next_due: datetime | None
    chat: ChatId | None
    file_state: TaskFileState
    pending: tuple[HeartbeatTask, ...]
    runs: tuple[HeartbeatRun, ...]
    spent_micros: int
    cap_micros: int


# --- reports


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
        """The time from the first start to the end, including waits."""
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
        """The number of ended tasks that say something about success: without those that a person
        stopped."""
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
        """Whether nothing happened; work may still be waiting."""
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
