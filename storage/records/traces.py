"""Defines traces: spans from the workflow down to each tool call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from storage.records.tasks import TaskId, UsageTotals

SpanAttribute: TypeAlias = str | int | float | bool | Sequence[str]
"""An attribute value. Names follow OpenTelemetry where it defines one."""


class SpanKind(StrEnum):
    WORKFLOW = "workflow"
    CHAT = "chat"
    NODE = "node"
    SUBAGENT = "helper"
    LLM = "llm"
    TOOL = "tool"


class SpanState(StrEnum):
    """SUSPENDED stopped in order to continue later: it awaits an answer, or the plan changed.
    CUT_OFF ended without a result: its process died, or it was stopped midway."""

    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    SUSPENDED = "left"
    CUT_OFF = "cut"

    @property
    def is_open(self) -> bool:
        return self in {SpanState.RUNNING, SpanState.WAITING}

    @property
    def is_failure(self) -> bool:
        return self in {SpanState.FAILED, SpanState.CUT_OFF}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpan:
    """`parent` is empty for the root; `error` says why it failed; `spent` includes all spans below.
    It holds no prompt, output or secret, but a step's title appears with its inputs filled in."""

    id: str
    parent: str
    name: str
    kind: SpanKind
    state: SpanState
    started_at: datetime
    ended_at: datetime | None
    error: str = ""
    attributes: Mapping[str, SpanAttribute] = field(default_factory=dict)
    spent: UsageTotals = field(default_factory=UsageTotals)
    depth: int = 0

    def seconds(self, now: datetime) -> float:
        """The duration in seconds, until `now` if it has not ended."""
        return max(0.0, ((self.ended_at or now) - self.started_at).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The spans of a task, or of an answer outside tasks, at `taken_at`. Each follows its parent;
    the first is the root."""

    id: str
    task_id: TaskId | None
    taken_at: datetime
    spans: tuple[TraceSpan, ...]

    @property
    def root(self) -> TraceSpan:
        return self.spans[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A model call, stored from its start on. `status` is empty until its end is stored."""

    span_id: str
    trace_id: str
    parent_id: str
    name: str
    task_id: TaskId | None
    attributes: Mapping[str, SpanAttribute]
    started_at: datetime
    status: str = ""
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAttempt:
    path: str
    attempt: int
    started_at: datetime
    ended_at: datetime | None
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A tool call without its arguments and output."""

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
class SubagentUse:
    """A sub-agent's run. `parent_session` is the session that started it."""

    id: str
    label: str
    path: str
    parent_session: str
    status: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
