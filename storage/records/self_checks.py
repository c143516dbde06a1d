"""Defines the results of self-checks, the problems they have found, and the goals that the program
pursues by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias

from storage.records.schedules import Firing
from storage.records.tasks import Task, TaskId
from storage.records.usage import SpendingCap

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


class RepairTaskDenied(StrEnum):
    """Why no task is made for a problem."""

    OVER = "over"
    NOT_OFFERED = "not_offered"


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
