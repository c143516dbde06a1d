"""Defines sub-agents started by workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from storage.records.people import ChatId, PersonId
from storage.records.tasks import SubagentStatus, TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSubagent:
    """`source` is the call that requests it. `turn` is the user's message whose answer makes that
    call, empty outside chats. `path` is its parent's step or sub-agent; `depth` counts from 1.
    `keep` retains its conversation after the result is delivered."""

    source: str
    parent_session: str
    task_id: TaskId | None
    path: str
    chat_id: ChatId
    person_id: PersonId
    depth: int
    label: str
    prompt: str
    persona: str
    keep: bool
    turn: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subagent(NewSubagent):
    """`result` is the complete result, or the reason for the failure."""

    id: str
    session_id: str
    status: SubagentStatus
    result: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    delivered_at: datetime | None
