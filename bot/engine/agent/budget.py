"""Enforces spending caps before each model call, requests cap extensions, and reports spending and
what the caps leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from hashlib import sha256
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.agent.pricing import PriceTable
from bot.engine.llm.backend import BudgetExceeded, ReachedCap, TokenUsage
from storage.approvals import (
    NewApproval,
    add_approval,
    extend_approval_payload,
    find_waiting_budget_request,
)
from storage.db import Transaction
from storage.heartbeat import HeartbeatRepo
from storage.ids import IdGenerator
from storage.records.approvals import Approval, ApprovalKind
from storage.records.people import ChatId, Person, PersonRole
from storage.records.tasks import Task, TaskId
from storage.records.usage import (
    BudgetGrant,
    BudgetScope,
    CapUsage,
    CostLine,
    CostPeriod,
    CostQuery,
    CostReport,
    SpendingCap,
    TaskCost,
    parse_cap,
)
from storage.usage import (
    BudgetRepo,
    UsageFilter,
    UsageKey,
    UsageRepo,
    add_budget_grant,
    largest_budget_grant,
    sum_budget_grants,
)

MIN_ANSWER_TOKENS = 1_024
"""Calls that could write less are refused: a truncated structured answer is paid for but
useless."""
MICROS_PER_DOLLAR = 1_000_000
_MAX_LISTED_TASKS = 10
_NO_LIMIT = 1 << 62
_REQUEST_GRACE = timedelta(minutes=5)
"""An extension request outlives its day by this, so the new day's cap resumes the work before the
request expires."""
_UNRECORDED_TTL = timedelta(days=2)
"""A finished run counts for this long if its usage never reached the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountCap:
    """One cap on one account. It covers usage after `since` (None: all usage); `day` and `until`
    are set for caps that reset daily."""

    scope: BudgetScope
    subject: str
    cap: SpendingCap
    day: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(slots=True, kw_only=True)
class SpendingCaps:
    """The configured caps, for all who ask: `by_scope` is replaced when the settings change. Days
    start at midnight in `zone`."""

    zone: ZoneInfo
    by_scope: Mapping[BudgetScope, SpendingCap] = field(default_factory=dict)

    def with_task_cap(self, text: str) -> SpendingCaps:
        """With a task's own cap in place of the usual one, if it has one."""
        if not text:
            return self
        return replace(self, by_scope={**self.by_scope, BudgetScope.TASK: parse_cap(text)})

    def active_for(
        self, subjects: Mapping[BudgetScope, str], now: datetime
    ) -> tuple[AccountCap, ...]:
        """Return the caps that apply now to a call charged to `subjects`."""
        found = (self.cap_for(scope, subject, now) for scope, subject in subjects.items())
        return tuple(each for each in found if each.cap)

    def cap_for(self, scope: BudgetScope, subject: str, now: datetime) -> AccountCap:
        cap = self.by_scope.get(scope, SpendingCap())
        if scope is BudgetScope.TASK:
            return AccountCap(scope=scope, subject=subject, cap=cap)
        local = now.astimezone(self.zone)
        since = local.replace(hour=0, minute=0, second=0, microsecond=0)
        return AccountCap(
            scope=scope,
            subject=subject,
            cap=cap,
            day=f"{local:%Y-%m-%d}",
            since=since,
            until=(since + timedelta(days=1)).astimezone(now.tzinfo),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spending:
    micros: int = 0
    tokens: int = 0

    def __add__(self, other: _Spending) -> _Spending:
        return _Spending(micros=self.micros + other.micros, tokens=self.tokens + other.tokens)


class BudgetReservation:
    """The budget of one run; satisfies `llm.backend.BudgetGate`.

    `spent` and `reserved` (the maximum that the current call may use) count against the caps until
    the usage is recorded in the store. `recorded` is the part of the run's usage that is."""

    def __init__(
        self,
        budget: SpendingBudget,
        subjects: Mapping[BudgetScope, str],
        backend: str,
        max_answer_tokens: int,
    ) -> None:
        self.subjects = subjects
        self.backend = backend
        self.max_answer_tokens = max_answer_tokens
        self.model = ""
        self.spent = _Spending()
        self.reserved = _Spending()
        self.limiting_cap: AccountCap | None = None
        self.ended_at: datetime | None = None
        self.usage_id: UsageKey | None = None
        self.recorded = TokenUsage()
        self._budget = budget

    async def __call__(self, model: str, input_tokens: int, spent: TokenUsage) -> int:
        self.model = model
        return await self._budget.allow_tokens(self, model, input_tokens, spent - self.recorded)

    def cost(self, usage: TokenUsage, model: str) -> Decimal | None:
        """Price `usage`; `model` is the name that was passed to the gate."""
        return self._budget.prices.cost(self.backend, model, usage)

    async def get_cap_hit(self) -> ReachedCap | None:
        """Return the cap that limited the last allowed answer, or None."""
        return await self._budget.get_cap_hit(self.limiting_cap) if self.limiting_cap else None

    def record(self, usage: TokenUsage) -> None:
        """Stop counting a part of the run's usage that the store has recorded."""
        self.recorded += usage
        self.spent = self.reserved = _Spending()

    def finish(self, usage: TokenUsage, at: datetime) -> None:
        """Mark the run as finished while its usage is not yet recorded in the store."""
        usage -= self.recorded
        self.spent = self.reserved = _spending_of(self.cost(usage, self.model), usage)
        self.ended_at = at

    def release(self) -> None:
        """Drop the reservation once the store has recorded its usage."""
        self._budget.release(self)

    def counts_against(self, cap: AccountCap) -> bool:
        return self.subjects.get(cap.scope) == cap.subject


class SpendingBudget:
    """Keeps spending within each cap plus its granted extensions, across successive and concurrent
    runs.

    Reservations exist in this process only. That is sufficient because
    `storage.data_directory.DataDirectoryLock` allows one process per data directory. Two data
    directories whose DATABASE_URL names the same file are not protected; several workers on one
    store would need reservations in the database."""

    def __init__(
        self,
        *,
        caps: SpendingCaps,
        prices: PriceTable,
        usage: UsageRepo,
        grants: BudgetRepo,
        task_cap: Callable[[TaskId], Awaitable[str]],
        now: Callable[[], datetime],
    ) -> None:
        """`task_cap` returns a task's own cap, empty for the usual one."""
        self.prices = prices
        self._task_cap = task_cap
        self._caps = caps
        self._usage = usage
        self._grants = grants
        self._now = now
        # Runs that have made a call.
        self._reservations: list[BudgetReservation] = []
        self._lock = asyncio.Lock()

    def reserve(
        self, subjects: Mapping[BudgetScope, str], backend: str, max_answer_tokens: int
    ) -> BudgetReservation:
        """Create the reservation of one run charged to `subjects`; each answer may have up to
        `max_answer_tokens` tokens."""
        return BudgetReservation(
            self, {**subjects, BudgetScope.DAY: ""}, backend, max_answer_tokens
        )

    def release(self, reservation: BudgetReservation) -> None:
        if reservation in self._reservations:
            self._reservations.remove(reservation)

    async def allow_tokens(
        self, reservation: BudgetReservation, model: str, input_tokens: int, spent: TokenUsage
    ) -> int:
        """Return the maximum number of tokens that the next answer may have. Raises
        BudgetExceeded."""
        async with self._lock:
            await self._drop_recorded()
            if reservation not in self._reservations:
                self._reservations.append(reservation)
            own_cost = self.prices.cost(reservation.backend, model, spent)
            reservation.spent = reservation.reserved = _spending_of(own_cost, spent)
            rates = self._rates(reservation.backend, model, input_tokens)
            most, reservation.limiting_cap = reservation.max_answer_tokens, None
            for limit in await self._active_caps(reservation.subjects):
                room = await self._remaining(limit, reservation)
                fits = _tokens_that_fit(room, own_cost, rates, input_tokens, spent)
                if fits < most:
                    most, reservation.limiting_cap = fits, limit
                if most < min(MIN_ANSWER_TOKENS, reservation.max_answer_tokens):
                    raise BudgetExceeded(await self.get_cap_hit(limit), usage=spent)
            tokens = _total_tokens(spent) + input_tokens + most
            reservation.reserved = _Spending(
                micros=_reserved_micros(own_cost, rates, most), tokens=tokens
            )
            return most

    async def _active_caps(self, subjects: Mapping[BudgetScope, str]) -> Sequence[AccountCap]:
        task = subjects.get(BudgetScope.TASK)
        own = await self._task_cap(TaskId(task)) if task else ""
        return self._caps.with_task_cap(own).active_for(subjects, self._now())

    def _rates(self, backend: str, model: str, reads: int) -> tuple[Decimal, Decimal] | None:
        """Return the cost of the input and of each output token, in micro-dollars."""
        read = self.prices.max_cost(backend, model, reads, 0)
        whole = self.prices.max_cost(backend, model, reads, MICROS_PER_DOLLAR)
        if read is None or whole is None:
            return None
        return read * MICROS_PER_DOLLAR, whole - read

    async def _remaining(self, limit: AccountCap, reservation: BudgetReservation) -> SpendingCap:
        """Return what the run may use in total, including its next call.

        Zero or less means nothing is left; kinds that the cap doesn't limit are _NO_LIMIT."""
        allowed = await self._allowance(limit)
        others = sum(
            (
                each.reserved
                for each in self._reservations
                if each is not reservation and each.counts_against(limit)
            ),
            await self._recorded(limit),
        )
        return SpendingCap(
            micros=allowed.micros - others.micros if limit.cap.micros else _NO_LIMIT,
            tokens=allowed.tokens - others.tokens if limit.cap.tokens else _NO_LIMIT,
        )

    async def _allowance(self, limit: AccountCap) -> SpendingCap:
        more = await self._grants.get_granted(limit.scope, limit.subject, limit.day)
        return SpendingCap(
            micros=limit.cap.micros + more.micros, tokens=limit.cap.tokens + more.tokens
        )

    async def _recorded(self, limit: AccountCap) -> _Spending:
        spent = await self._usage.sum_for_cap(limit.scope, limit.subject, limit.since)
        tokens = spent.input_tokens + spent.output_tokens
        return _Spending(micros=spent.cost_micros, tokens=tokens)

    async def get_cap_hit(self, cap: AccountCap) -> ReachedCap:
        """Return the current state of `cap`."""
        allowed = await self._allowance(cap)
        used = sum(
            (each.spent for each in self._reservations if each.counts_against(cap)),
            await self._recorded(cap),
        )
        return ReachedCap(
            scope=cap.scope.value,
            subject=cap.subject,
            day=cap.day,
            cap_micros=allowed.micros if cap.cap.micros else 0,
            cap_tokens=allowed.tokens if cap.cap.tokens else 0,
            spent_micros=used.micros,
            spent_tokens=used.tokens,
            until=cap.until,
        )

    async def _drop_recorded(self) -> None:
        """Runs before the totals are read: a run may count twice, but is never missed."""
        stored = await self._usage.filter_stored(
            [each.usage_id for each in self._reservations if each.usage_id is not None]
        )
        oldest = self._now() - _UNRECORDED_TTL
        self._reservations = [
            each
            for each in self._reservations
            if each.usage_id not in stored and (each.ended_at is None or each.ended_at > oldest)
        ]


async def request_cap_extension(
    tx: Transaction,
    hit: ReachedCap,
    *,
    task: TaskId | None,
    chat_id: ChatId,
    title: str,
    ids: IdGenerator,
    now: datetime,
    expires_at: datetime,
) -> Approval:
    """Return the request to extend this cap by its own amount; work stopped by the same cap shares
    one request.

    `payload["tasks"]` lists the tasks to resume when it is granted."""
    about = f"{hit.scope}:{hit.subject}:{hit.day}"
    waiting = await find_waiting_budget_request(tx, about, now=now)
    if waiting is not None:
        tasks = [*waiting.payload.get("tasks", ())]
        if task is None or task in tasks:
            return waiting
        tasks.append(task)
        await extend_approval_payload(tx, waiting, tasks=tasks)
        return replace(waiting, payload={**waiting.payload, "tasks": tasks})
    more = await _extension_amount(tx, hit)
    new = NewApproval(
        kind=ApprovalKind.BUDGET,
        chat_id=chat_id,
        title=title,
        expires_at=min(expires_at, hit.until + _REQUEST_GRACE) if hit.until else expires_at,
        task_id=task,
        subject=about,
        command_hash=_request_hash(about, more),
        payload={**_request_payload(hit, more), "tasks": [task] if task else []},
    )
    return await add_approval(tx, new, ids=ids, now=now)


async def grant_cap_extension(tx: Transaction, approval: Approval) -> None:
    """Grant the requested amount. Idempotent."""
    payload = approval.payload
    await add_budget_grant(
        tx,
        BudgetGrant(
            approval_id=approval.id,
            scope=BudgetScope(payload["scope"]),
            subject=str(payload["subject"]),
            day=str(payload["day"]),
            cap=SpendingCap(micros=int(payload["more_micros"]), tokens=int(payload["more_tokens"])),
        ),
        now=approval.decided_at or approval.created_at,
    )


async def _extension_amount(tx: Transaction, hit: ReachedCap) -> SpendingCap:
    """Return the configured amount of the cap, without earlier grants."""
    whose = (BudgetScope(hit.scope), hit.subject, hit.day)
    before = await sum_budget_grants(tx, *whose)
    own = SpendingCap(
        micros=max(0, hit.cap_micros - before.micros),
        tokens=max(0, hit.cap_tokens - before.tokens),
    )
    # The cap was extended after it was hit, which leaves nothing to subtract from.
    return own or await largest_budget_grant(tx, *whose)


def _request_payload(hit: ReachedCap, more: SpendingCap) -> dict[str, Any]:
    return {
        "scope": hit.scope,
        "subject": hit.subject,
        "day": hit.day,
        "cap_micros": hit.cap_micros,
        "cap_tokens": hit.cap_tokens,
        "spent_micros": hit.spent_micros,
        "spent_tokens": hit.spent_tokens,
        "more_micros": more.micros,
        "more_tokens": more.tokens,
        "until": hit.until.isoformat() if hit.until else "",
    }


def _request_hash(about: str, more: SpendingCap) -> str:
    what = json.dumps([about, more.micros, more.tokens])
    return sha256(what.encode()).hexdigest()


def _spending_of(cost: Decimal | None, usage: TokenUsage) -> _Spending:
    return _Spending(micros=to_micros(cost) or 0, tokens=_total_tokens(usage))


def _total_tokens(usage: TokenUsage) -> int:
    return usage.input_tokens + usage.output_tokens


def to_micros(cost: Decimal | None) -> int | None:
    """Convert dollars to micro-dollars, rounded up so that sums never fall short."""
    if cost is None:
        return None
    return int((cost * MICROS_PER_DOLLAR).to_integral_value(rounding=ROUND_CEILING))


def _reserved_micros(own: Decimal | None, rates: tuple[Decimal, Decimal] | None, most: int) -> int:
    """Return the cost of a run if its next call writes `most` tokens."""
    read, each = rates or (Decimal(0), Decimal(0))
    whole = (own or Decimal(0)) * MICROS_PER_DOLLAR + read + each * most
    return int(whole.to_integral_value(rounding=ROUND_CEILING))


def _tokens_that_fit(
    room: SpendingCap,
    own: Decimal | None,
    rates: tuple[Decimal, Decimal] | None,
    input_tokens: int,
    spent: TokenUsage,
) -> int:
    """Return how many answer tokens fit into `room`; negative if the input alone exceeds it."""
    by_tokens = room.tokens - _total_tokens(spent) - input_tokens
    if rates is None:
        # Without a known price only tokens can be limited.
        return by_tokens
    read, each = rates
    left = room.micros - (own or Decimal(0)) * MICROS_PER_DOLLAR - read
    if left < 0:
        return -1
    return min(by_tokens, int(left / each)) if each else by_tokens


class CostReportService:
    """Satisfies `handlers.ports.CostPort`."""

    def __init__(
        self,
        usage: UsageRepo,
        grants: BudgetRepo,
        caps: SpendingCaps,
        now: Callable[[], datetime],
        *,
        heartbeat_runs: HeartbeatRepo,
    ) -> None:
        self._heartbeat_runs = heartbeat_runs
        self._usage = usage
        self._grants = grants
        self._caps = caps
        self._now = now

    async def report(
        self, *, by: Person, chat: ChatId, query: CostQuery | None = None
    ) -> CostReport:
        query = query or CostQuery()
        owner = by.role is PersonRole.OWNER
        wanted = self._span(query, by, chat)
        models = await self._usage.by_model(wanted)
        named, dated = owner and query.lists_chats_and_people, query.lists_days_and_tasks
        caps = await self._remaining_caps(by, chat)
        periods = (CostPeriod.TODAY, CostPeriod.WEEK, CostPeriod.MONTH)
        today, week, month = [
            await self._usage.sum(self._span(CostQuery(period=each, model=query.model), by, chat))
            for each in periods
        ]
        return CostReport(
            query=query,
            total=await self._usage.sum(wanted),
            today=today,
            week=week,
            month=month,
            models=tuple(models),
            purposes=tuple(await self._usage.by_purpose(wanted)),
            chats=tuple(await self._usage.by_chat(wanted)) if named else (),
            people=tuple(await self._usage.by_person(wanted)) if named else (),
            days=tuple(await self._usage.by_day(wanted, self._caps.zone)) if dated else (),
            tasks=tuple(await self._usage.by_task(wanted, _MAX_LISTED_TASKS)) if dated else (),
            caps=caps,
            unpriced_models=_unpriced_models(models, self._counts_money),
        )

    async def report_task(self, task: Task) -> TaskCost:
        span = UsageFilter(task=task.id)
        models = await self._usage.by_model(span)
        limit = self._caps.with_task_cap(task.cap).cap_for(BudgetScope.TASK, task.id, self._now())
        return TaskCost(
            task=task,
            total=await self._usage.sum(span),
            models=tuple(models),
            purposes=tuple(await self._usage.by_purpose(span)),
            caps=(await self._remaining(limit),) if limit.cap else (),
            unpriced_models=_unpriced_models(models, self._counts_money),
        )

    @property
    def _counts_money(self) -> bool:
        return any(cap.micros for cap in self._caps.by_scope.values())

    def _span(self, query: CostQuery, by: Person, chat: ChatId) -> UsageFilter:
        return UsageFilter(
            since=self._period_start(query),
            person=None if by.role is PersonRole.OWNER else by.id,
            chat=chat,
            model=query.model,
        )

    def _period_start(self, query: CostQuery) -> datetime | None:
        local = self._now().astimezone(self._caps.zone)
        day = local.replace(hour=0, minute=0, second=0, microsecond=0)
        match query.period:
            case CostPeriod.TODAY:
                return day
            case CostPeriod.WEEK:
                return day - timedelta(days=day.weekday())
            case CostPeriod.MONTH:
                return day.replace(day=1)
            case CostPeriod.DAYS:
                return day - timedelta(days=max(0, query.days - 1))
            case CostPeriod.ALL:
                return None

    async def _remaining_caps(self, by: Person, chat: ChatId) -> tuple[CapUsage, ...]:
        """Only owners see the caps of purposes and of everything."""
        subjects = {BudgetScope.PERSON: by.id, BudgetScope.CHAT: chat}
        if by.role is PersonRole.OWNER:
            subjects |= {each: "" for each in BudgetScope if each.covers_purpose}
            subjects[BudgetScope.DAY] = ""
        limits = self._caps.active_for(subjects, self._now())
        return tuple([await self._remaining(limit) for limit in limits])

    async def _remaining(self, limit: AccountCap) -> CapUsage:
        spent = await self._usage.sum_for_cap(limit.scope, limit.subject, limit.since)
        more = await self._grants.get_granted(limit.scope, limit.subject, limit.day)
        cap = limit.cap
        is_stopped = False
        if limit.scope is BudgetScope.HEARTBEAT and limit.since is not None:
            is_stopped = await self._heartbeat_runs.is_stopped_by_cap(since=limit.since)
        return CapUsage(
            scope=limit.scope,
            allowed=SpendingCap(
                micros=cap.micros + more.micros if cap.micros else 0,
                tokens=cap.tokens + more.tokens if cap.tokens else 0,
            ),
            granted=more,
            used=SpendingCap(micros=spent.cost_micros, tokens=spent.tokens),
            is_stopped=is_stopped,
        )


def _unpriced_models(models: Sequence[CostLine], counts_money: bool) -> tuple[str, ...]:
    """Return models that a money cap can't count because they have no price."""
    return tuple(line.name for line in models if counts_money and line.spent.unpriced)
