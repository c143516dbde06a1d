"""Defines spending caps, costs and cost reports."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

from storage.records.people import ChatId, PersonId
from storage.records.tasks import Task, TaskId, UsageTotals

_AMOUNT = re.compile(
    r"(?:(?P<sign>\$)\s*)?(?P<number>\d+(?:\.\d+)?)\s*(?P<many>[kKmM])?\s*(?P<unit>usd|tokens?)?",
    re.IGNORECASE,
)
_MULTIPLIERS = {"k": 1_000, "m": 1_000_000}
_MICROS_PER_USD = 1_000_000


class BudgetScope(StrEnum):
    """The scope of a cap: one task for its whole life, the others per day. HEARTBEAT and EVOLVE
    cover all calls for the purpose of that name."""

    TASK = "task"
    PERSON = "person"
    CHAT = "chat"
    HEARTBEAT = "heartbeat"
    EVOLVE = "evolve"
    DAY = "day"

    @property
    def covers_purpose(self) -> bool:
        return self in {BudgetScope.HEARTBEAT, BudgetScope.EVOLVE}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingCap:
    """`micros` are US dollars in millionths; 0 means unlimited."""

    micros: int = 0
    tokens: int = 0

    def __bool__(self) -> bool:
        return bool(self.micros or self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapUsage:
    """The usage of one cap. `allowed` includes `granted`, the amount added by approvals.
    `is_stopped` says that nothing more is done until the next day."""

    scope: BudgetScope
    allowed: SpendingCap
    granted: SpendingCap
    used: SpendingCap
    is_stopped: bool = False

    @property
    def remaining(self) -> SpendingCap:
        """The unused amount, at least 0. An unlimited measure is 0 too."""
        return SpendingCap(
            micros=max(0, self.allowed.micros - self.used.micros),
            tokens=max(0, self.allowed.tokens - self.used.tokens),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetGrant:
    """An approved extension of a cap. `day` is empty for a task's."""

    approval_id: str
    scope: BudgetScope
    subject: str
    day: str
    cap: SpendingCap


def parse_cap(text: str) -> SpendingCap:
    """Parse `5`, `5 USD`, `2M tokens`, or both with a comma; empty is unlimited.

    Raises ValueError with the accepted forms.
    """
    micros = tokens = 0
    for part in filter(None, (each.strip() for each in text.split(","))):
        found = _AMOUNT.fullmatch(part)
        if found is None or (found["sign"] and (found["unit"] or "").lower().startswith("token")):
            raise ValueError(f"{part!r} is not of the form 5 USD or 2M tokens")
        amount = float(found["number"]) * _MULTIPLIERS.get((found["many"] or "").lower(), 1)
        if (found["unit"] or "").lower().startswith("token"):
            tokens = round(amount)
        else:
            micros = round(amount * _MICROS_PER_USD)
    return SpendingCap(micros=micros, tokens=tokens)


class CostPeriod(StrEnum):
    """Start of the summed costs: today, this Monday, this month, ever, or some days ago."""

    TODAY = "today"
    WEEK = "week"
    MONTH = "month"
    ALL = "all"
    DAYS = "days"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostQuery:
    """Selects costs. `days` applies to that period only; `model` is a part of model names, empty
    for all. `lists_chats_and_people` and `lists_days_and_tasks` add these breakdowns."""

    period: CostPeriod = CostPeriod.MONTH
    days: int = 0
    model: str = ""
    lists_chats_and_people: bool = False
    lists_days_and_tasks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """The cost of one model, purpose, chat, person or task."""

    name: str
    spent: UsageTotals
    task_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """Costs of today, this week and this month in the Boss's time zone, and of the requested
    period, broken down with the highest cost first.

    `caps` are today's caps that apply to the person asking. `unpriced_models` are used models
    without a known price, which a cap on money cannot count. `days` are those with usage in that
    zone, in order; `tasks` are the costliest.
    """

    query: CostQuery
    total: UsageTotals
    today: UsageTotals
    week: UsageTotals
    month: UsageTotals
    models: tuple[CostLine, ...] = ()
    purposes: tuple[CostLine, ...] = ()
    chats: tuple[CostLine, ...] = ()
    people: tuple[CostLine, ...] = ()
    days: tuple[tuple[date, UsageTotals], ...] = ()
    tasks: tuple[CostLine, ...] = ()
    caps: tuple[CapUsage, ...] = ()
    unpriced_models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCost:
    task: Task
    total: UsageTotals
    models: tuple[CostLine, ...] = ()
    purposes: tuple[CostLine, ...] = ()
    caps: tuple[CapUsage, ...] = ()
    unpriced_models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecord:
    """The usage of one model run. `cost_micros` is US dollars in millionths, None without a known
    price. `estimated_tokens` is the unreported part of its tokens."""

    at: datetime
    purpose: str
    backend: str
    model: str
    person_id: PersonId | None
    chat_id: ChatId | None
    task_id: TaskId | None
    requests: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_micros: int | None
    estimated_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingModelCall:
    """A run with a call that has been sent, or is about to be: what of its usage is not recorded.
    `input_tokens` includes an upper bound for this call; nothing is known of its answer.

    Until it ends, `reserved` counts against the caps: the most that the run may have used after
    this call. `spent` is what it had used before. `holder` is the process that makes the call."""

    id: str
    at: datetime
    purpose: str
    backend: str
    model: str
    person_id: PersonId | None
    chat_id: ChatId | None
    task_id: TaskId | None
    requests: int
    input_tokens: int
    output_tokens: int
    cost_micros: int | None
    holder: str = ""
    spent_micros: int = 0
    spent_tokens: int = 0
    reserved_micros: int = 0
    reserved_tokens: int = 0
