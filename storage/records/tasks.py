"""Defines tasks, their steps and events, and the views shown on cards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NewType

from storage.records.people import ChatId, PersonId

SUBAGENTS_RUNNING_REASON = "helpers.waits"
"""Catalogue key: the task's own steps are done, but its sub-agents still run."""


class SubagentStatus(StrEnum):
    """ACCEPTED is queued; DONE and FAILED have a result or a reason."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self in {SubagentStatus.DONE, SubagentStatus.FAILED}


class FolderKind(StrEnum):
    """Whether each task works on its own branch of the folder's repository, or all in the folder:
    because it has none, or one that tasks may have written."""

    PLAIN = "plain"
    REPOSITORY = "in_git"
    NOT_ADOPTED = "not_adopted"

    @property
    def in_git(self) -> bool:
        return self is FolderKind.REPOSITORY


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentLine:
    label: str
    status: SubagentStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveToolCall:
    """One tool call. `succeeded` is None while it runs. `diff` is a unified diff, `output` its last
    lines."""

    id: str
    title: str
    succeeded: bool | None = None
    diff: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStep:
    """Live output of a running step, never stored. `plan` is the worker's own checklist, `calls`
    has the newest last, `notes` are catalogue keys with their facts; `passing_note` is what it
    waits for at this moment."""

    path: str
    plan: tuple[tuple[str, Literal["pending", "in_progress", "completed"]], ...] = ()
    calls: tuple[LiveToolCall, ...] = ()
    call_count: int = 0
    notes: tuple[tuple[str, Mapping[str, str]], ...] = ()
    passing_note: tuple[str, Mapping[str, str]] | None = None

    @property
    def current_call(self) -> LiveToolCall | None:
        """The running call that started last."""
        return next((call for call in reversed(self.calls) if call.succeeded is None), None)


TaskId = NewType("TaskId", str)


class TaskPriority(StrEnum):
    """`rank` orders the queue; lower runs first."""

    URGENT = "urgent"
    IMPORTANT = "important"
    NORMAL = "normal"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    @classmethod
    def parse(cls, word: str) -> TaskPriority | None:
        """The priority meant by `word` in either language, or None."""
        return _PRIORITY_WORDS.get(word.strip().lower())


class TaskStatus(StrEnum):
    """A task's state. RUNNING covers planning and doing; the phase tells them apart."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED}

    @classmethod
    def parse(cls, word: str) -> TaskStatus | None:
        """The status meant by `word` in either vocabulary, or None."""
        return _STATUS_WORDS.get(word.strip().lower())


class TaskPhase(StrEnum):
    QUEUED = "queued"
    PLANNING = "planning"
    DOING = "doing"
    ENDED = "ended"


class TaskControl(StrEnum):
    """The action a running task takes at its next step boundary."""

    RUN = "run"
    PAUSE = "pause"
    YIELD = "yield"


class NodeStatus(StrEnum):
    """SKIPPED was left out or not reached; CANCELLED was ended without a result, because another
    branch had arrived first."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @property
    def is_settled(self) -> bool:
        return self in {NodeStatus.DONE, NodeStatus.SKIPPED, NodeStatus.CANCELLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A task to create. `source` names the message or press that asked: the same source creates the
    same task, however often it is delivered. `cap` and `use_memory` are as in `Task`."""

    title: str
    instruction: str
    priority: TaskPriority
    chat_id: ChatId
    created_by: PersonId
    source: str
    reply_to: str = ""
    project_dir: str = ""
    model: str = ""
    backend: str = ""
    persona: str = ""
    files: tuple[str, ...] = ()
    in_git: bool = False
    outside: bool = False
    cap: str = ""
    use_memory: bool = True


class ResultForm(StrEnum):
    """How a long result reaches people: cut on the card, or whole as a file or a document too."""

    CARD = "card"
    FILE = "file"
    DOCUMENT = "document"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`epoch` grows with every claim and fences late writers. `graph_version` is 0 until there is a
    plan. `files` are relative to the data directory. `rank` is the queue position class: that of
    its priority, or 1 once it has waited too long. `errors` counts failed attempts since the last
    replan.

    `branch` is set if it works in its own worktree. Otherwise it holds its project directory from
    its first step to its end (`holds_dir`), and only a task with `let_in` may work there meanwhile.

    `outside`: done by a person and only tracked here. `stage` is the person's name for its
    progress; `tokens_before` is what their own session had used at its start. `persona` does the
    work, empty for the chat's choice. `cap` limits what it may cost, empty for the usual cap.
    Without `use_memory` its workers see no memory, and nothing is learnt from it.
    """

    id: TaskId
    title: str
    instruction: str
    priority: TaskPriority
    status: TaskStatus
    status_reason: str
    phase: TaskPhase
    control: TaskControl
    chat_id: ChatId
    reply_to: str
    created_by: PersonId
    project_dir: str
    model: str
    backend: str
    files: tuple[str, ...]
    graph_version: int
    epoch: int
    failures_in_row: int
    replans: int
    summary: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    rank: int = 2
    errors: int = 0
    branch: str = ""
    holds_dir: bool = False
    let_in: bool = False
    outside: bool = False
    stage: str = ""
    tokens_before: int | None = None
    wake_at: datetime | None = None
    persona: str = ""
    cap: str = ""
    use_memory: bool = True

    @property
    def is_pausing(self) -> bool:
        """Whether it runs and pauses after the current step."""
        return self.status is TaskStatus.RUNNING and self.control is TaskControl.PAUSE


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunChanges:
    """The changes that a person makes: inputs of the workflow, and fields of nodes' outputs, as
    texts."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


NO_CHANGES = RerunChanges()


class RerunRefused(Exception):
    """A task cannot run again from there. `key` names a text under `error.rerun_…` with the
    reason."""

    def __init__(self, key: str, **facts: object) -> None:
        self.key = key
        self.facts = facts
        super().__init__(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLease:
    """The right to advance one task. It is lost when another process claims the task."""

    task_id: TaskId
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRun:
    """The state of one node of a task's graph. `path` is the node's id with its loop rounds;
    `wake_at` is when it continues automatically."""

    task_id: TaskId
    path: str
    status: NodeStatus
    attempt: int
    output: Mapping[str, Any]
    error: str
    started_at: datetime | None
    ended_at: datetime | None
    wake_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGraph:
    """One version of a task's plan, as data."""

    task_id: TaskId
    version: int
    body: Mapping[str, Any]
    reason: str
    author: str
    at: datetime | None = None
    """When it was stored; None before."""


class EventKind(StrEnum):
    CREATED = "created"
    STARTED = "started"
    PLANNED = "planned"
    STEP_STARTED = "step_started"
    STEP_DONE = "step_done"
    STEP_FAILED = "step_failed"
    PAUSED = "paused"
    RESUMED = "resumed"
    COMPLETED = "completed"
    FAILED = "failed"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"
    REORDERED = "reordered"
    RECOVERED = "recovered"
    WAITING = "waiting"
    REPLANNED = "replanned"
    INJECTED = "injected"
    MESSAGE = "message"
    NOTE = "note"

    @property
    def is_ending(self) -> bool:
        """True for events the Boss gets a separate message for, not only a card edit."""
        return self in {EventKind.COMPLETED, EventKind.FAILED, EventKind.BLOCKED}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvent:
    """A line of a task's history, written in the transaction it describes."""

    id: int
    task_id: TaskId
    kind: EventKind
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopProgress:
    """The progress of a loop. `current` is the newest round, 0 before the first; `total` is the
    number of rounds, or `max_total` their limit if it is unknown."""

    done: int = 0
    failed: int = 0
    current: int = 0
    total: int | None = None
    max_total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStep:
    """`files` are relative to the data directory; `files_left_out` stayed in the workspace and have
    the names the task gave. `persona` does the step, empty for the task's own worker.

    `values` is its declared output, each value as a short text.

    In a plan with branches: `kind` is the node type and `depth` its nesting; `branch` is the
    condition at the start of a branch, if it has a name; `round` counts visits; `chosen_branches`
    were taken. `awaits_person`: waits for a person, by `awaited_names` if known; `waits_until` ends
    a wait; `folded_steps` is how many more steps this line stands for.
    """

    path: str
    title: str
    status: NodeStatus
    summary: str = ""
    error: str = ""
    files: tuple[str, ...] = ()
    files_left_out: tuple[str, ...] = ()
    persona: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    kind: str = "task"
    depth: int = 0
    branch: str | None = None
    round: int = 1
    rounds: LoopProgress | None = None
    chosen_branches: tuple[str, ...] = ()
    awaits_person: bool = False
    awaited_names: tuple[str, ...] = ()
    waits_until: datetime | None = None
    folded_steps: int = 0
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEta:
    """A task's expected remaining time. `confidence` is from 0 to 1; `steps` counts those left."""

    seconds: float
    confidence: float
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """Accumulated usage. `input_tokens` includes cache reads and writes; `cost_micros` is US
    dollars in millionths; `unpriced` counts calls of models without a known price;
    `estimated_tokens` is the unreported part of the tokens."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    unpriced: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    estimated_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: UsageTotals) -> UsageTotals:
        names = [each.name for each in fields(self)]
        return UsageTotals(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """Everything a task's card shows.

    `plan` is the plan in one line; `tasks_ahead` counts tasks before it in the queue, as far as a
    card shows it; `directory_holder` is the task whose directory it waits for, if it is near the
    head of the queue; `live_steps` is the output of running steps.

    `outline` are the lines of `steps` that fit on a card, with their parents; `lines_left_out`
    counts those missing before and after. `step_counts` are the steps done and in total, if known;
    `progress` is the share of the expected time that is done.
    `schedule_id` is the recurring schedule that has started it, empty if none or no longer active.
    `retry_at` is when a schedule will try it again by itself. `workflow` is the named workflow that
    it runs, with its version, 0 for one from before there were any, and `subworkflows` are those
    inside it.
    """

    task: Task
    plan: str
    steps: tuple[TaskStep, ...]
    spent: UsageTotals
    tasks_ahead: int = 0
    directory_holder: Task | None = None
    live_steps: tuple[LiveStep, ...] = ()
    subagents: tuple[SubagentLine, ...] = ()
    outline: tuple[TaskStep, ...] = ()
    lines_left_out: tuple[int, int] = (0, 0)
    step_counts: tuple[int, int] | None = None
    progress: float | None = None
    eta: TaskEta | None = None
    schedule_id: str = ""
    retry_at: datetime | None = None
    workflow: tuple[str, int] | None = None
    subworkflows: tuple[tuple[str, int], ...] = ()

    @property
    def visible_steps(self) -> tuple[TaskStep, ...]:
        """The steps a card shows."""
        return self.outline or self.steps

    @property
    def done(self) -> int:
        if self.step_counts is not None:
            return self.step_counts[0]
        return sum(step.status.is_settled for step in self.steps)

    @property
    def total(self) -> int:
        return len(self.steps) if self.step_counts is None else self.step_counts[1]

    @property
    def percent(self) -> int:
        """The completed share of the plan in whole percent, by expected time if that is known; 0
        without a plan, and 100 only if the task is completed: a failed one may have no step
        left."""
        if self.task.status is TaskStatus.COMPLETED:
            return 100
        if self.progress is not None:
            return min(99, int(100 * self.progress + _ROUNDING))
        return min(99, 100 * self.done // self.total) if self.total else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPage:
    """`page` counts from 1; `total` counts tasks on all pages."""

    tasks: tuple[Task, ...]
    page: int
    pages: int
    total: int


_ROUNDING = 1e-6

_RANKS = {TaskPriority.URGENT: 1, TaskPriority.IMPORTANT: 2, TaskPriority.NORMAL: 3}

_PRIORITY_WORDS = {
    **dict.fromkeys(("urgent", "high", "紧急", "急", "高优", "1"), TaskPriority.URGENT),
    **dict.fromkeys(("important", "medium", "重要", "2"), TaskPriority.IMPORTANT),
    **dict.fromkeys(("normal", "low", "普通", "3"), TaskPriority.NORMAL),
}

_STATUS_WORDS = {
    **dict.fromkeys(("pending", "待开始", "queued"), TaskStatus.PENDING),
    **dict.fromkeys(
        ("running", "进行中", "planning", "developing", "reviewing"), TaskStatus.RUNNING
    ),
    **dict.fromkeys(("waiting", "等待", "等待中"), TaskStatus.WAITING),
    **dict.fromkeys(("paused", "已暂停", "暂停"), TaskStatus.PAUSED),
    **dict.fromkeys(("blocked", "阻塞"), TaskStatus.BLOCKED),
    **dict.fromkeys(("completed", "done", "已完成", "完成"), TaskStatus.COMPLETED),
    **dict.fromkeys(("failed", "失败"), TaskStatus.FAILED),
    **dict.fromkeys(("cancelled", "canceled", "stopped", "已取消", "取消"), TaskStatus.CANCELLED),
}
