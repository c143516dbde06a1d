"""Approvals: a row first, a card second."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId


class ApprovalKind(StrEnum):
    PAIRING = "pairing"
    HUMAN = "human"
    RISK = "risk"
    TOOL = "tool"
    BUDGET = "budget"
    MEMORY = "memory"


class ApprovalState(StrEnum):
    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A decision somebody has to take. `subject` names what it is about within its kind, a
    pairing code say; `approvers` empty means any owner."""

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
