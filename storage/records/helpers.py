"""Helpers that workers send off: what each is to do, for whom, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from storage.records.helping import HelperStatus
from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class NewHelper:
    """`source` is the call that asks for it, `turn` what was said in the chat whose answer makes
    that call, empty outside chats. `path` is the step, or the helper, of its parent;
    `depth` counts from 1. `keep` keeps its conversation once its result is delivered."""

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
class Helper:
    """`result` is what it found, whole, or why it failed."""

    id: str
    source: str
    parent_session: str
    session_id: str
    task_id: TaskId | None
    path: str
    chat_id: ChatId
    person_id: PersonId
    depth: int
    label: str
    prompt: str
    persona: str
    keep: bool
    status: HelperStatus
    result: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    delivered_at: datetime | None
