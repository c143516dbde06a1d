"""How the program itself is doing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from storage.records.money import CapLeft
from storage.records.people import Channel
from storage.records.tasks import Spent, Task, TaskStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHealth:
    """`alert` is a catalogue key with its facts while something is wrong, else empty."""

    channel: Channel
    alert: str = ""
    facts: Mapping[str, object] | None = None


AUTO = "auto"
"""The model of a chat that wants one chosen for each message."""


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
class BackendHealth:
    """How one backend is doing. `problem` is a catalogue key, empty if it can work; `facts` say
    how to put it right. `version` is what it says of itself, where it was asked; `note` is a
    catalogue key for what to know of it all the same. `is_cli` says that it is a coding CLI;
    `instead` does its work where it cannot, empty for nobody."""

    name: str
    problem: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    note: str = ""
    is_cli: bool = False
    instead: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendReport:
    """All of them, or the one asked about, which was then also started. `faults` are what is
    wrong with the file of coding CLIs; `fallback` stands in for a CLI that cannot work."""

    backends: tuple[BackendHealth, ...]
    default: str
    fallback: str = ""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemStatus:
    """`memory_bytes` is the resident set; `waiting_approvals` counts all chats. `sandbox` is what
    holds workers' commands in: bwrap, landlock or none. `unnamed_owner` stays an owner though the
    settings no longer name them."""

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
    sandbox: str = "none"
    unnamed_owner: str = ""


class Period(StrEnum):
    """Since when costs are summed up: the beginning of the day, of the week (Monday), of the
    month, of everything, or some days ago."""

    TODAY = "today"
    WEEK = "week"
    MONTH = "month"
    ALL = "all"
    DAYS = "days"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostQuery:
    """Which costs are wanted. `days` is for that period only; `model` is a part of the names of
    the models wanted, empty for all. `named` lists chats and people too."""

    period: Period = Period.MONTH
    days: int = 0
    model: str = ""
    named: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """What one model, purpose, chat or person cost in a period."""

    name: str
    spent: Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """Today, this week and this month in the Boss's time zone, and `whole`, what was asked for,
    broken down by model, purpose, chat and person, dearest first. `caps` are those of today that
    bind who asks. `unseen` are the models with unknown prices while there is a cap on money: it
    does not see them."""

    query: CostQuery
    whole: Spent
    today: Spent
    week: Spent
    month: Spent
    models: tuple[CostLine, ...] = ()
    purposes: tuple[CostLine, ...] = ()
    chats: tuple[CostLine, ...] = ()
    people: tuple[CostLine, ...] = ()
    caps: tuple[CapLeft, ...] = ()
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCost:
    """What one task has cost in its whole life."""

    task: Task
    whole: Spent
    models: tuple[CostLine, ...] = ()
    purposes: tuple[CostLine, ...] = ()
    caps: tuple[CapLeft, ...] = ()
    unseen: tuple[str, ...] = ()
