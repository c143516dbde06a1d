"""What a run tells while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from bot.engine.llm.calls import CallKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """More of the answer's text."""

    text: str
    kind: Literal["text"] = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtDelta:
    """More of what the model thinks aloud; not part of the answer."""

    text: str
    kind: Literal["thought"] = "thought"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    """One line of a worker's own checklist."""

    text: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanShown:
    """The worker's checklist as it is now: replaces the one before."""

    entries: tuple[PlanEntry, ...]
    kind: Literal["plan"] = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    call_id: str
    name: str
    title: str
    does: CallKind = CallKind.OTHER
    kind: Literal["tool_started"] = "tool_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUpdated:
    """What a call under way has shown so far: `diff` a unified diff, `output` its last lines."""

    call_id: str
    diff: str = ""
    output: str = ""
    kind: Literal["tool_updated"] = "tool_updated"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    call_id: str
    good: bool
    summary: str
    kind: Literal["tool_finished"] = "tool_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """Something a person should know about the run, a catalogue key with its facts."""

    key: str
    facts: Mapping[str, str] = field(default_factory=dict)
    kind: Literal["noted"] = "noted"


AgentEvent: TypeAlias = (
    TextDelta | ThoughtDelta | PlanShown | ToolStarted | ToolUpdated | ToolFinished | Noted
)
