"""How the program itself is doing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from storage.records.people import Channel
from storage.records.tasks import Spent, Task, TaskStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHealth:
    """`alert` is a catalogue key with its facts while something is wrong, else empty."""

    channel: Channel
    alert: str = ""
    facts: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """One thing that can do the work. `problem` is a catalogue key, empty if it is ready."""

    backend: str
    model: str
    problem: str = ""

    @property
    def name(self) -> str:
        return f"{self.backend}:{self.model}" if self.model else self.backend


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemStatus:
    """`memory_bytes` is the resident set; `waiting_approvals` counts all chats."""

    version: str
    pid: int
    started_at: datetime
    memory_bytes: int
    model: ModelChoice
    channels: tuple[ChannelHealth, ...]
    slots: int
    counts: Mapping[TaskStatus, int]
    today: int
    waiting_approvals: int
    queued_messages: int
    recent: tuple[Task, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """What one model, or all together (`model` empty), cost in a period."""

    model: str
    spent: Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """Today, this week (from Monday) and this month in the Boss's time zone; `models` breaks
    the month down, dearest first."""

    today: Spent
    week: Spent
    month: Spent
    models: tuple[CostLine, ...]
