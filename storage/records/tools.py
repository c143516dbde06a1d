"""Defines tool calls and standing permissions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId


class ToolCallState(StrEnum):
    """OPEN waits for a person. ALLOWED, DENIED and ANSWERED are decided, RUNNING is in progress,
    DONE and FAILED have a result; CUT ended without one."""

    OPEN = "open"
    ALLOWED = "allowed"
    DENIED = "denied"
    ANSWERED = "answered"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CUT = "cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToolCall:
    """`detail` and `arguments` are already masked; `command_hash` covers the exact tool and
    arguments before masking, `effect_hash` what the call would have run or changed when it was
    requested. `pattern` is what a standing permission would cover."""

    session_id: str
    call_id: str
    task_id: TaskId | None
    path: str
    chat_id: ChatId | None
    person_id: PersonId | None
    backend: str
    tool: str
    kind: str
    title: str
    detail: str
    arguments: Mapping[str, Any]
    command_hash: str
    verdict: str
    why: str
    pattern: str
    state: ToolCallState
    effect_hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallRecord(NewToolCall):
    """One call. `suspended`: its session's transcript ends with this request. `answer` is a
    person's reply."""

    id: int
    suspended: bool
    approval_id: str
    answer: str
    outcome: str
    size: int
    asked_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class StandingPermissionScope(StrEnum):
    """How far a permission reaches beyond one call."""

    TASK = "task"
    CHAT = "chat"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingPermission:
    """A permission for more than one call. `subject` is the id of the task or chat, empty for
    always; `pattern` is compared exactly."""

    id: int
    scope: StandingPermissionScope
    subject: str
    tool: str
    pattern: str
    approval_id: str
    granted_by: PersonId
    at: datetime
