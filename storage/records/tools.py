"""Calls of tools as they are kept: what was asked for, what was decided, what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId


class CallState(StrEnum):
    """OPEN waits for a person. ALLOWED, DENIED and ANSWERED are decided, RUNNING is being made,
    DONE and FAILED have an outcome; CUT ended without one."""

    OPEN = "open"
    ALLOWED = "allowed"
    DENIED = "denied"
    ANSWERED = "answered"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CUT = "cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """What is known of a call from the wish on. `detail` and `arguments` are masked already;
    `command_hash` is of the exact tool and arguments, before masking. `pattern` is what leave for
    more than this call would cover."""

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
    state: CallState


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall(CallFacts):
    """A call a worker wants made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord(CallFacts):
    """One call. `suspended` says that its session's transcript ends with this wish. `answer` is
    what a person said to it."""

    id: int
    suspended: bool
    approval_id: str
    answer: str
    outcome: str
    size: int
    asked_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class GrantScope(StrEnum):
    """How far a person's leave reaches beyond one call."""

    TASK = "task"
    CHAT = "chat"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantRecord:
    """Leave for more than one call. `subject` is the task's or the chat's id, empty for always;
    `pattern` is compared letter by letter."""

    id: int
    scope: GrantScope
    subject: str
    tool: str
    pattern: str
    approval_id: str
    granted_by: PersonId
    at: datetime
