"""Enforces spending caps before each model call, and requests cap extensions."""

from __future__ import annotations

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
from storage.db import Database, Transaction
from storage.ids import IdGenerator
from storage.records.approvals import Approval, ApprovalKind
from storage.records.people import ChatId
from storage.records.tasks import TaskId
from storage.records.usage import (
    BudgetGrant,
    BudgetScope,
    PendingModelCall,
    SpendingCap,
    UsageRecord,
    parse_cap,
)
from storage.usage import (
    BudgetRepo,
    ReservedUsage,
    UsageRepo,
    add_budget_grant,
    largest_budget_grant,
    sum_budget_grants,
)

MIN_ANSWER_TOKENS = 1_024
"""Calls that could write less are refused: a truncated structured answer is paid for but
useless."""
MICROS_PER_DOLLAR = 1_000_000
_NO_LIMIT = 1 << 62
_REQUEST_GRACE = timedelta(minutes=5)
"""An extension request outlives its day by this, so the new day's cap resumes the work before the
request expires."""
_UNRECORDED_TTL = timedelta(days=2)
"""A run counts for this long after its last call if its usage never reached the store."""


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
    task_since: datetime | None = None

    def with_task_cap(self, text: str, since: datetime | None = None) -> SpendingCaps:
        """With a task's own cap in place of the usual one, if it has one, for what it has used
        since."""
        caps = replace(self, task_since=since)
        if not text:
            return caps
        return replace(caps, by_scope={**self.by_scope, BudgetScope.TASK: parse_cap(text)})

    def active_for(
        self, subjects: Mapping[BudgetScope, str], now: datetime
    ) -> tuple[AccountCap, ...]:
        """Return the caps that apply now to a call charged to `subjects`."""
        found = (self.cap_for(scope, subject, now) for scope, subject in subjects.items())
        return tuple(each for each in found if each.cap)

    def cap_for(self, scope: BudgetScope, subject: str, now: datetime) -> AccountCap:
        cap = self.by_scope.get(scope, SpendingCap())
        if scope is BudgetScope.TASK:
            return AccountCap(scope=scope, subject=subject, cap=cap, since=self.task_since)
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
    """The budget of one run. `recorded` is the part of the run's usage that the store has as
    usage; the rest counts against the caps through the run's row of pending calls."""

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
        self.limiting_cap: AccountCap | None = None
        self.recorded = TokenUsage()
        self._budget = budget
        self._call_id = ""

    async def admit(self, call: PendingModelCall, input_tokens: int, spent: TokenUsage) -> int:
        """Return the maximum number of tokens that the next answer may have, and store the call
        with what it reserves. `spent` is the usage of the whole run. Raises BudgetExceeded."""
        self.model, self._call_id = call.model, call.id
        return await self._budget.admit(self, call, input_tokens, spent - self.recorded)

    def cost(self, usage: TokenUsage, model: str) -> Decimal | None:
        """Price `usage`; `model` is the name that was passed to the gate."""
        return self._budget.prices.cost(self.backend, model, usage)

    async def get_cap_hit(self) -> ReachedCap | None:
        """Return the cap that limited the last allowed answer, or None."""
        return await self._budget.get_cap_hit(self.limiting_cap) if self.limiting_cap else None

    def record(self, usage: TokenUsage) -> None:
        """Stop counting a part of the run's usage that the store has recorded."""
        self.recorded += usage

    def finish(self, usage: TokenUsage) -> None:
        """Mark the run as finished: until its usage is recorded, this counts and no more."""
        usage -= self.recorded
        if self._call_id:
            used = _spending_of(self.cost(usage, self.model), usage)
            self._budget.settle_later(self._call_id, used)


class SpendingBudget:
    """Keeps spending within each cap plus its granted extensions, across successive and concurrent
    runs of all processes that share the store.

    A reservation is the row of the call that it is for. It is written in the transaction that
    checks the caps (the store has one at a time), and deleted in the one that records the usage.
    If its process dies, whoever finds that books it by its estimate (`UsageRepo.book_lost_calls`).
    `holder` is this process."""

    def __init__(
        self,
        *,
        db: Database,
        holder: str,
        caps: SpendingCaps,
        prices: PriceTable,
        usage: UsageRepo,
        grants: BudgetRepo,
        task_cap: Callable[[TaskId], Awaitable[str]],
        now: Callable[[], datetime],
        task_since: Callable[[TaskId], Awaitable[datetime | None]] | None = None,
    ) -> None:
        """`task_cap` returns a task's own cap, empty for the usual one, and `task_since` the time
        from which on the task's usage counts."""
        self.prices = prices
        self._db = db
        self._holder = holder
        self._task_cap = task_cap
        self._task_since = task_since
        self._caps = caps
        self._usage = usage
        self._grants = grants
        self._now = now
        # Finished runs whose rows still have the most that they might have used.
        self._to_settle: dict[str, _Spending] = {}
        # Failed runs whose usage may not be stored: their rows tell.
        self._to_book: dict[str, UsageRecord | None] = {}

    def reserve(
        self, subjects: Mapping[BudgetScope, str], backend: str, max_answer_tokens: int
    ) -> BudgetReservation:
        """Create the reservation of one run charged to `subjects`; each answer may have up to
        `max_answer_tokens` tokens."""
        return BudgetReservation(
            self, {**subjects, BudgetScope.DAY: ""}, backend, max_answer_tokens
        )

    def settle_later(self, call_id: str, used: _Spending) -> None:
        self._to_settle[call_id] = used

    def book_later(self, call_id: str, record: UsageRecord | None) -> None:
        """Book a failed run, unless it is booked by then: the store may be away just now."""
        self._to_book[call_id] = record

    async def book_late(self, tx: Transaction) -> None:
        for call_id, record in [*self._to_book.items()]:
            # As committed: what this transaction has booked may be undone.
            if await self._usage.is_pending(call_id):
                await self._usage.book_call(tx, call_id, record)
            else:
                self._to_book.pop(call_id, None)

    async def admit(
        self,
        reservation: BudgetReservation,
        call: PendingModelCall,
        input_tokens: int,
        spent: TokenUsage,
    ) -> int:
        """Return the maximum number of tokens that the next answer may have. Raises
        BudgetExceeded."""
        limits = await self._active_caps(reservation.subjects)
        to_settle = dict(self._to_settle) if limits else {}
        decided: list[int | ReachedCap] = []

        async def decide(tx: Transaction) -> None:
            """Raises nothing of its own: that would undo the calls that are admitted with it."""
            await self.book_late(tx)
            for call_id, used in to_settle.items():
                await self._usage.settle_call(tx, call_id, micros=used.micros, tokens=used.tokens)
            found = await self._find_room(
                tx, reservation, call, limits, input_tokens=input_tokens, spent=spent
            )
            decided[:] = [found]
            if not isinstance(found, ReachedCap):
                await self._store(tx, reservation, call, input_tokens, spent, most=found)

        await self._db.write_together(decide)
        self._to_settle = {
            each: used
            for each, used in self._to_settle.items()
            if limits and to_settle.get(each) != used
        }
        (answer,) = decided
        if isinstance(answer, ReachedCap):
            raise BudgetExceeded(answer, usage=spent)
        return answer

    async def _find_room(
        self,
        tx: Transaction,
        reservation: BudgetReservation,
        call: PendingModelCall,
        limits: Sequence[AccountCap],
        *,
        input_tokens: int,
        spent: TokenUsage,
    ) -> int | ReachedCap:
        own_cost = self.prices.cost(reservation.backend, call.model, spent)
        rates = self._rates(reservation.backend, call.model, input_tokens)
        most, reservation.limiting_cap = reservation.max_answer_tokens, None
        for limit in limits:
            room = await self._remaining(tx, limit, call.id)
            fits = _tokens_that_fit(room, own_cost, rates, input_tokens, spent)
            if fits < most:
                most, reservation.limiting_cap = fits, limit
            if most < min(MIN_ANSWER_TOKENS, reservation.max_answer_tokens):
                own = _spending_of(own_cost, spent)
                return await self.get_cap_hit(limit, tx=tx, call=call.id, own=own)
        return most

    async def _store(
        self,
        tx: Transaction,
        reservation: BudgetReservation,
        call: PendingModelCall,
        input_tokens: int,
        spent: TokenUsage,
        *,
        most: int,
    ) -> None:
        own_cost = self.prices.cost(reservation.backend, call.model, spent)
        used = _spending_of(own_cost, spent)
        rates = self._rates(reservation.backend, call.model, input_tokens)
        stored = replace(
            call,
            holder=self._holder,
            spent_micros=used.micros,
            spent_tokens=used.tokens,
            reserved_micros=_reserved_micros(own_cost, rates, most),
            reserved_tokens=used.tokens + input_tokens + most,
        )
        await self._usage.begin_call(tx, stored)

    async def _active_caps(self, subjects: Mapping[BudgetScope, str]) -> Sequence[AccountCap]:
        task = subjects.get(BudgetScope.TASK)
        own = await self._task_cap(TaskId(task)) if task else ""
        since = await self._task_since(TaskId(task)) if task and self._task_since else None
        return self._caps.with_task_cap(own, since).active_for(subjects, self._now())

    def _rates(self, backend: str, model: str, reads: int) -> tuple[Decimal, Decimal] | None:
        """Return the cost of the input and of each output token, in micro-dollars."""
        rates = self.prices.max_rates(backend, model, reads)
        if rates is None:
            return None
        read, per_million = rates
        # Dollars for a million tokens are micro-dollars for one.
        return read * MICROS_PER_DOLLAR, per_million

    async def _remaining(self, tx: Transaction, limit: AccountCap, call_id: str) -> SpendingCap:
        """Return what the run may use in total, including its next call.

        Zero or less means nothing is left; kinds that the cap doesn't limit are _NO_LIMIT."""
        allowed = await self._allowance(limit, tx)
        others = await self._reserved(tx, limit, except_call=call_id)
        recorded = await self._recorded(limit, tx)
        micros = others.reserved_micros + recorded.micros
        tokens = others.reserved_tokens + recorded.tokens
        return SpendingCap(
            micros=allowed.micros - micros if limit.cap.micros else _NO_LIMIT,
            tokens=allowed.tokens - tokens if limit.cap.tokens else _NO_LIMIT,
        )

    async def _allowance(self, limit: AccountCap, tx: Transaction) -> SpendingCap:
        more = await self._grants.get_granted(limit.scope, limit.subject, limit.day, tx)
        return SpendingCap(
            micros=limit.cap.micros + more.micros, tokens=limit.cap.tokens + more.tokens
        )

    async def _reserved(
        self, tx: Transaction, limit: AccountCap, *, except_call: str = ""
    ) -> ReservedUsage:
        return await self._usage.sum_reserved(
            tx,
            limit.scope,
            limit.subject,
            except_call=except_call,
            since=self._now() - _UNRECORDED_TTL,
        )

    async def _recorded(self, limit: AccountCap, tx: Transaction) -> _Spending:
        spent = await self._usage.sum_for_cap(limit.scope, limit.subject, limit.since, tx)
        tokens = spent.input_tokens + spent.output_tokens
        return _Spending(micros=spent.cost_micros, tokens=tokens)

    async def get_cap_hit(
        self,
        cap: AccountCap,
        *,
        tx: Transaction | None = None,
        call: str = "",
        own: _Spending | None = None,
    ) -> ReachedCap:
        """Return the current state of `cap`. `own` is what the run of `call` has used, if that is
        not stored yet."""
        async with self._db.read(tx) as view:
            allowed = await self._allowance(cap, view)
            others = await self._reserved(view, cap, except_call=call)
            used = await self._recorded(cap, view) + (own or _Spending())
        return ReachedCap(
            scope=cap.scope.value,
            subject=cap.subject,
            day=cap.day,
            cap_micros=allowed.micros if cap.cap.micros else 0,
            cap_tokens=allowed.tokens if cap.cap.tokens else 0,
            spent_micros=used.micros + others.spent_micros,
            spent_tokens=used.tokens + others.spent_tokens,
            until=cap.until,
        )


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
