"""Calls of tools: what a worker wants to do, and whether it may."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol


class CallKind(StrEnum):
    """What a call does to the world, as the Agent Client Protocol names it."""

    READ = "read"
    EDIT = "edit"
    DELETE = "delete"
    MOVE = "move"
    SEARCH = "search"
    EXECUTE = "execute"
    FETCH = "fetch"
    THINK = "think"
    ASK = "ask"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call that a model wants made. `call_id` is unique within its session; `title` is one
    line for a card; `detail` is what a person decides about: the exact command, or the change as
    a unified diff. Neither is masked yet."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    kind: CallKind
    title: str
    detail: str = ""


class Leave(StrEnum):
    """ALLOW: make the call. DENY: tell the model why not. ANSWER: the call was a question, and
    `Permission.text` is its result. LATER: nobody has decided yet; the run ends suspended."""

    ALLOW = "allow"
    DENY = "deny"
    ANSWER = "answer"
    LATER = "later"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """Leave, or not. `text` is for the model: the reason of a refusal, or a person's answer."""

    leave: Leave
    text: str = ""


class Permit(Protocol):
    """Asked before every call of a tool, also one that was decided about in an earlier run: by
    its old number then. The call that it allows is kept as begun before it says so. `patience` is
    how many seconds it may wait for a person before it says LATER: 0 for a backend whose suspended
    runs outlive the process."""

    async def __call__(self, call: ToolCall, *, patience: float = 0.0) -> Permission: ...

    async def ended(self, call_id: str, *, good: bool, outcome: str, size: int = 0) -> None:
        """How a call that was allowed came out: for the audit. `size` is in bytes."""
        ...


def exact_hash(name: str, arguments: Mapping[str, Any]) -> str:
    """The same for the same tool with the same arguments only: consent to one is none to
    another."""
    exact = json.dumps([name, arguments], ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(exact.encode("utf-8", "surrogatepass")).hexdigest()
