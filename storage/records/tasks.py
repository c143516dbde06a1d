"""The task: queue row, checkpoint and card at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType

from storage.records.helping import HelperLine
from storage.records.live import Live
from storage.records.people import ChatId, PersonId

TaskId = NewType("TaskId", str)


class Priority(StrEnum):
    """`rank` orders the queue; lower runs first."""

    URGENT = "urgent"
    IMPORTANT = "important"
    NORMAL = "normal"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    @classmethod
    def named(cls, word: str) -> Priority | None:
        """The priority a person means by `word`, in either language, or None."""
        return _PRIORITY_WORDS.get(word.strip().lower())


class TaskStatus(StrEnum):
    """Where a task stands. `running` covers planning and doing; the task's phase tells which."""

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
    def named(cls, word: str) -> TaskStatus | None:
        """The status a person means by `word`, in either vocabulary, or None."""
        return _STATUS_WORDS.get(word.strip().lower())


class Phase(StrEnum):
    QUEUED = "queued"
    PLANNING = "planning"
    DOING = "doing"
    ENDED = "ended"


class Control(StrEnum):
    """What a running task is to do at its next step boundary."""

    RUN = "run"
    PAUSE = "pause"
    YIELD = "yield"


class NodeStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def is_settled(self) -> bool:
        return self in {NodeStatus.DONE, NodeStatus.SKIPPED}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A task that is asked for. `source` names the message or press that asked: the same source
    makes the same task, however often it is delivered."""

    title: str
    instruction: str
    priority: Priority
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of work. `epoch` grows with every claim and fences late writers;
    `graph_version` is 0 until there is a plan; `files` are relative to the data directory.

    `rank` is its place in the queue: its priority's, or 1 once it has waited too long. `errors`
    counts failed tries since the last new plan. `branch` is where it works on a worktree of its
    own; without one it holds its project directory from its first step to its end (`holds_dir`),
    and only who is `let_in` may work there meanwhile. `outside` work is done by somebody else
    and only kept here. `stage` is what people call where it stands; `tokens_before` what their
    own session had used when it began. `persona` is who does it, empty for the chat's choice."""

    id: TaskId
    title: str
    instruction: str
    priority: Priority
    status: TaskStatus
    status_reason: str
    phase: Phase
    control: Control
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to move one task on. Lost as soon as someone else claims it."""

    task_id: TaskId
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRun:
    """What became of one node of a task's graph. `path` is the node's id with the rounds that led
    to it; `wake_at` is when it goes on by itself."""

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
class Graph:
    """One version of a task's plan, as data."""

    task_id: TaskId
    version: int
    body: Mapping[str, Any]
    reason: str
    author: str


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
        """True where the Boss is owed a message of its own, not just a card edit."""
        return self in {EventKind.COMPLETED, EventKind.FAILED, EventKind.BLOCKED}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvent:
    """A line of a task's history, written in the transaction that made it true."""

    id: int
    task_id: TaskId
    kind: EventKind
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How far a loop is: rounds that are over and that failed, the number of the newest, 0 before
    the first, and how many there are, or, where nobody knows that, may be at most."""

    done: int = 0
    failed: int = 0
    at: int = 0
    total: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of a task's plan with what became of it. `files` are relative to the data
    directory; `left_out` are those that stayed where the task worked, by the names it gave.
    `persona` is who does it, empty for the task's own worker.

    Of a plan with branches: `kind` is the type of node and `depth` how deep it stands; `branch` is
    set where a branch begins, to what leads into it, if that has a name; `round` counts how often
    it was come back to; `way` names what was gone on with. `asked` says that a person is waited
    for, by the names in `waits_for` if they are known, `until` until when something is waited for;
    `folded` is how many more steps this line stands for."""

    path: str
    title: str
    status: NodeStatus
    summary: str = ""
    error: str = ""
    files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    persona: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    kind: str = "task"
    depth: int = 0
    branch: str | None = None
    round: int = 1
    rounds: Rounds | None = None
    way: tuple[str, ...] = ()
    asked: bool = False
    waits_for: tuple[str, ...] = ()
    until: datetime | None = None
    folded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Eta:
    """How long a task is expected to take from now on. `confidence` is from 0 to 1, `steps` how
    many are left."""

    seconds: float
    confidence: float
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What something has cost so far. `input_tokens` includes what was read from a cache and
    written to it; `cost_micros` is US dollars in millionths; `unpriced` counts calls of models
    whose price nobody knows."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    unpriced: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """All that a card about a task shows. `plan` is the plan in one line; `ahead` is how many
    tasks run before it while it is pending, counted as far as a card shows it; `holder` is the
    task in whose directory it waits, if it waits near the head of the queue; `live` is what its
    running steps show of themselves; `helpers` are all that its workers have sent off.

    `outline` are the lines of `steps` that a card has room for, with those that hold them
    together; `left_out` says how many are missing before it and behind it. `counted` is how many
    steps are done and how many there are, as far as that is known."""

    task: Task
    plan: str
    steps: tuple[Step, ...]
    spent: Spent
    ahead: int = 0
    holder: Task | None = None
    live: tuple[Live, ...] = ()
    helpers: tuple[HelperLine, ...] = ()
    outline: tuple[Step, ...] = ()
    left_out: tuple[int, int] = (0, 0)
    counted: tuple[int, int] | None = None
    eta: Eta | None = None

    @property
    def lines(self) -> tuple[Step, ...]:
        """What a card shows of the plan."""
        return self.outline or self.steps

    @property
    def done(self) -> int:
        if self.counted is not None:
            return self.counted[0]
        return sum(step.status.is_settled for step in self.steps)

    @property
    def total(self) -> int:
        return len(self.steps) if self.counted is None else self.counted[1]

    @property
    def percent(self) -> int:
        """Whole percent of the plan that is done; 0 while there is none."""
        if self.task.status is TaskStatus.COMPLETED:
            return 100
        return 100 * self.done // self.total if self.total else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPage:
    """`page` counts from 1; `total` is how many tasks there are on all pages."""

    tasks: tuple[Task, ...]
    page: int
    pages: int
    total: int


_RANKS = {Priority.URGENT: 1, Priority.IMPORTANT: 2, Priority.NORMAL: 3}

_PRIORITY_WORDS = {
    **dict.fromkeys(("urgent", "high", "紧急", "急", "高优", "1"), Priority.URGENT),
    **dict.fromkeys(("important", "medium", "重要", "2"), Priority.IMPORTANT),
    **dict.fromkeys(("normal", "low", "普通", "3"), Priority.NORMAL),
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
