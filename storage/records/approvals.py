"""Defines approval requests, tool calls and standing permissions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from storage.records.people import ChatId, Person, PersonId, PersonRole
from storage.records.tasks import TaskId

# --- requests


class ApprovalKind(StrEnum):
    PAIRING = "pairing"
    HUMAN = "human"
    CONDITION = "condition"
    RISK = "risk"
    TOOL = "tool"
    QUESTION = "question"
    BUDGET = "budget"
    MEMORY = "memory"
    PROMPT = "prompt"
    MCP = "mcp"
    LINK = "link"
    PAGE = "page"


class ApprovalState(StrEnum):
    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """`subject` identifies what it is about within its kind, such as a pairing code; `command_hash`
    covers exactly what is allowed; `payload` holds the kind's own facts. Empty `approvers` means
    any owner."""

    id: str
    kind: ApprovalKind
    task_id: TaskId | None
    path: str
    subject: str
    chat_id: ChatId
    title: str
    detail: str
    command_hash: str
    approvers: tuple[PersonId, ...]
    state: ApprovalState
    decided_by: PersonId | None
    decided_at: datetime | None
    reason: str
    created_at: datetime
    expires_at: datetime
    payload: Mapping[str, Any] = field(default_factory=dict)

    def can_be_decided_by(self, person: Person) -> bool:
        return person.id in self.approvers if self.approvers else person.role is PersonRole.OWNER


# --- tool calls and standing permissions


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


_FILES_MARK = "[files "
_FILES_PREFIX = re.compile(r"\[files [0-9a-f]{20}\] ")


def bind_to_files(pattern: str, files: str) -> str:
    """Return the pattern of a command for the files with this hash only; as it is without a hash.
    Empty if the command itself looks like one that is bound."""
    if pattern.startswith(_FILES_MARK):
        return ""
    return f"{_FILES_MARK}{files[:20]}] {pattern}" if pattern and files else pattern


def unbind_from_files(pattern: str) -> str:
    return _FILES_PREFIX.sub("", pattern, count=1) if is_bound_to_files(pattern) else pattern


def is_bound_to_files(pattern: str) -> bool:
    return _FILES_PREFIX.match(pattern) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingPermission:
    """A permission for more than one call. `subject` is the id of the task or chat, empty for
    always; `pattern` is compared exactly. For a task it is not bound to files, which the task
    itself changes all the time."""

    id: int
    scope: StandingPermissionScope
    subject: str
    tool: str
    pattern: str
    approval_id: str
    granted_by: PersonId
    at: datetime
