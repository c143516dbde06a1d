"""Defines approval requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from storage.records.people import ChatId, Person, PersonId, PersonRole
from storage.records.tasks import TaskId


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
