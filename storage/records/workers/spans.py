"""What a task's run was made of: spans, from the workflow down to each call of a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from storage.records.tasks import Spent, TaskId

Attribute: TypeAlias = str | int | float | bool | Sequence[str]
"""What is known of a span besides its own fields; names are OpenTelemetry's where it has one."""


class SpanKind(StrEnum):
    WORKFLOW = "workflow"
    CHAT = "chat"
    NODE = "node"
    HELPER = "helper"
    LLM = "llm"
    TOOL = "tool"


class SpanState(StrEnum):
    """LEFT was given up in order, to go on later: somebody is asked, or a plan has changed. CUT
    ended without an outcome: its process died, or it was stopped in the middle."""

    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    LEFT = "left"
    CUT = "cut"

    @property
    def is_open(self) -> bool:
        return self in {SpanState.RUNNING, SpanState.WAITING}

    @property
    def is_wrong(self) -> bool:
        return self in {SpanState.FAILED, SpanState.CUT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One piece of a run. `parent` is empty for the whole; `error` says why it ended badly;
    `spent` is what it has used with all below it. Nothing of it holds a prompt, an output or a
    secret, but the title of a step is told as the step was done: with what filled it."""

    id: str
    parent: str
    name: str
    kind: SpanKind
    state: SpanState
    started_at: datetime
    ended_at: datetime | None
    error: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    spent: Spent = field(default_factory=Spent)
    depth: int = 0

    def seconds(self, now: datetime) -> float:
        """How long it took, or has taken so far."""
        return max(0.0, ((self.ended_at or now) - self.started_at).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A task's spans as they were `at` that time, or, where there is no task, those of an answer:
    each stands behind its parent, the first is the whole."""

    id: str
    task_id: TaskId | None
    at: datetime
    spans: tuple[Span, ...]

    @property
    def whole(self) -> Span:
        return self.spans[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A call of a model as it is kept from its begin on. `status` is empty until its end is
    stored."""

    span_id: str
    trace_id: str
    parent_id: str
    name: str
    task_id: TaskId | None
    attributes: Mapping[str, Attribute]
    started_at: datetime
    status: str = ""
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAttempt:
    """One try of a node."""

    path: str
    attempt: int
    started_at: datetime
    ended_at: datetime | None
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A call of a tool, without what it was given or said."""

    id: int
    session_id: str
    call_id: str
    path: str
    tool: str
    kind: str
    state: str
    asked: bool
    size: int
    asked_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperWork:
    """A helper's errand. `parent_session` is that of whoever sent it off."""

    id: str
    label: str
    path: str
    parent_session: str
    status: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
