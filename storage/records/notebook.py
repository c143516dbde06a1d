"""What the working method says of a task: how a log was taken, what to do now, where to go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from storage.records.logs import LogEntry
from storage.records.tasks import Step, Task, TaskView

CHANGE_AT = 3
"""From this error on, another approach is asked for."""

MOST_ERRORS = 5
"""The error that blocks a task."""

REMIND_EVERY = 10
"""Logs after which the goal is to be read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A log as it was kept. `cut` says that the whole of it is in its file, `planless` that
    there is no plan to work by, `number` is how many logs the task has with it; `blocked` that
    this error was one too many."""

    task: Task
    entry: LogEntry
    number: int
    cut: bool = False
    planless: bool = False
    blocked: bool = False

    @property
    def reminds(self) -> bool:
        return self.number > 0 and self.number % REMIND_EVERY == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A log that a search found, with the task it belongs to."""

    task: Task
    entry: LogEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """A task's newest logs, oldest first. `sizes` has those of their files that can be attached,
    in bytes."""

    task: Task
    entries: tuple[LogEntry, ...]
    total: int
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agenda:
    """What to do now: `first`, and behind it the queue. `current` is what is in progress where
    that is something else. `held` is what cannot go on without a person."""

    first: Task | None
    current: Task | None
    queue: tuple[Task, ...]
    held: tuple[Task, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recap:
    """The five questions, answered: where am I (`view`), where am I going (`plan` and the steps
    left), what is the goal (the view's instruction), what have I learned, what is done.
    `recalled` are logs of other tasks that may help."""

    view: TaskView
    plan: str
    learned: tuple[LogEntry, ...]
    done: tuple[LogEntry, ...]
    recalled: tuple[Found, ...]

    @property
    def task(self) -> Task:
        return self.view.task

    @property
    def steps_done(self) -> tuple[Step, ...]:
        return tuple(step for step in self.view.steps if step.status.is_settled)

    @property
    def steps_left(self) -> tuple[Step, ...]:
        return tuple(step for step in self.view.steps if not step.status.is_settled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A task that is done. `already` says it was before; `tokens` is what it used, None where
    that is not known."""

    task: Task
    already: bool = False
    has_plan: bool = True
    has_milestone: bool = True
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """A subtask that was done or is being worked on. `already` says it was done before, `left`
    how many are not done yet."""

    task: Task
    title: str
    left: int
    already: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """`urgent` is something strictly more important that waits."""

    task: Task
    urgent: Task | None
