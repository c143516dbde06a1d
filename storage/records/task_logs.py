"""Defines the typed logs of tasks and the results of the task commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from storage.records.people import PersonId
from storage.records.tasks import Task, TaskId, TaskStep, TaskView

MAX_LOG_TEXT = 500
"""Characters of one log; a longer text is truncated and saved to a file."""


class LogKind(StrEnum):
    PLAN = "plan"
    FINDING = "finding"
    DECISION = "decision"
    ERROR = "error"
    RESOURCE = "resource"
    MILESTONE = "milestone"
    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"
    REPLAN = "replan"
    BLOCKED = "blocked"

    @classmethod
    def parse(cls, word: str) -> LogKind | None:
        """The kind meant by `word` in either language, or None."""
        return _KIND_WORDS.get(word.strip().lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLog:
    """A log to write. `source` names the message or attempt that writes it: each source writes
    once. `file` is relative to the data directory."""

    task_id: TaskId
    source: str
    kind: LogKind
    text: str
    stage: str = ""
    attempt: int = 0
    file: str = ""
    person_id: PersonId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    id: int
    task_id: TaskId
    kind: LogKind
    text: str
    stage: str
    attempt: int
    file: str
    person_id: PersonId | None
    at: datetime


_KIND_WORDS = {
    **{kind.value: kind for kind in LogKind},
    "计划": LogKind.PLAN,
    "规划": LogKind.PLAN,
    "发现": LogKind.FINDING,
    "决策": LogKind.DECISION,
    "决定": LogKind.DECISION,
    "错误": LogKind.ERROR,
    "资源": LogKind.RESOURCE,
    "里程碑": LogKind.MILESTONE,
    "进展": LogKind.PROGRESS,
    "进度": LogKind.PROGRESS,
    "检查点": LogKind.CHECKPOINT,
    "重新规划": LogKind.REPLAN,
    "阻塞": LogKind.BLOCKED,
}


CHANGE_APPROACH_AT = 3
"""From this error on, a different approach is requested."""

MAX_ERRORS = 5
"""The error count that blocks a task."""

REMIND_EVERY = 10
"""After this many logs the worker should read the goal again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogResult:
    """`is_truncated`: the whole text is in its file. `has_no_plan`: the task has no plan yet.
    `log_count` includes this log. `blocked`: this error reached the limit."""

    task: Task
    entry: LogEntry
    log_count: int
    is_truncated: bool = False
    has_no_plan: bool = False
    blocked: bool = False

    @property
    def is_reminder_due(self) -> bool:
        return self.log_count > 0 and self.log_count % REMIND_EVERY == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMatch:
    task: Task
    entry: LogEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """A task's newest logs, oldest first. `sizes` are the bytes of attachable files."""

    task: Task
    entries: tuple[LogEntry, ...]
    total: int
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAgenda:
    """The tasks to do now: `first`, then the queue. `current` is the one in progress if it differs
    from `first`; `needs_person` cannot continue without a person."""

    first: Task | None
    current: Task | None
    queue: tuple[Task, ...]
    needs_person: tuple[Task, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecap:
    """A task's state for resuming it: where it stands (`view`), what comes next (`plan` and the
    remaining steps), the goal (the view's instruction), what was learned and what is done.
    `recalled` are logs of other tasks that may help."""

    view: TaskView
    plan: str
    learned: tuple[LogEntry, ...]
    done: tuple[LogEntry, ...]
    recalled: tuple[LogMatch, ...]

    @property
    def task(self) -> Task:
        return self.view.task

    @property
    def steps_done(self) -> tuple[TaskStep, ...]:
        return tuple(step for step in self.view.steps if step.status.is_settled)

    @property
    def steps_left(self) -> tuple[TaskStep, ...]:
        return tuple(step for step in self.view.steps if not step.status.is_settled)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCompletion:
    """A completed task. `tokens` is its usage, None if unknown."""

    task: Task
    was_already_done: bool = False
    has_plan: bool = True
    has_milestone: bool = True
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskProgress:
    """A subtask that was done or is in progress. `remaining` counts those not done."""

    task: Task
    title: str
    remaining: int
    was_already_done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChange:
    """`more_urgent` is a waiting task of strictly higher priority."""

    task: Task
    more_urgent: Task | None
