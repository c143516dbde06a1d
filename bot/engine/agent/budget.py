"""Caps that are kept before the call that would pass them, and the asking for more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from hashlib import sha256
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.agent.prices import Prices
from bot.engine.llm.base import BudgetReached, CapHit, Usage
from storage.approvals import NewApproval, add_approval
from storage.budgets import BudgetRepo, add_grant, amend, asked_for, granted, largest_grant
from storage.db import Transaction
from storage.ids import Ids
from storage.records.approvals import Approval, ApprovalKind
from storage.records.money import Cap, Grant, Scope
from storage.records.people import ChatId
from storage.records.tasks import TaskId
from storage.usage import BilledId, UsageRepo

LEAST = 1_024
"""Tokens of an answer worth beginning: a form that is cut off is paid and worth nothing."""
MICROS = 1_000_000
_NO_LIMIT = 1 << 62
_AFTERWARDS = timedelta(minutes=5)
"""A request outlives its day by this: whoever waits is to go on by itself, not to be told that
nobody decided."""
_UNBOOKED = timedelta(days=2)
"""How long money counts of which the store was never told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One cap on one account: all since `since` counts, for ever where that is None; `day` and
    `until` are of a cap that begins anew each day."""

    scope: Scope
    subject: str
    cap: Cap
    day: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """How much may be spent, in the Boss's time zone."""

    zone: ZoneInfo
    of: Mapping[Scope, Cap] = field(default_factory=dict)

    def on(self, subjects: Mapping[Scope, str], now: datetime) -> tuple[Limit, ...]:
        """All that bind a call that is charged to these now."""
        found = (self.limit(scope, subject, now) for scope, subject in subjects.items())
        return tuple(each for each in found if each.cap)

    def limit(self, scope: Scope, subject: str, now: datetime) -> Limit:
        cap = self.of.get(scope, Cap())
        if scope is Scope.TASK:
            return Limit(scope=scope, subject=subject, cap=cap)
        local = now.astimezone(self.zone)
        since = local.replace(hour=0, minute=0, second=0, microsecond=0)
        return Limit(
            scope=scope,
            subject=subject,
            cap=cap,
            day=f"{local:%Y-%m-%d}",
            since=since,
            until=(since + timedelta(days=1)).astimezone(now.tzinfo),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Used:
    micros: int = 0
    tokens: int = 0

    def __add__(self, other: _Used) -> _Used:
        return _Used(micros=self.micros + other.micros, tokens=self.tokens + other.tokens)


class Purse:
    """What one run may still spend; satisfies `llm.base.Gate`. What the run has used, and the
    most that its call under way may use, counts against the caps until the store counts it."""

    def __init__(
        self, budget: Budget, subjects: Mapping[Scope, str], backend: str, most: int
    ) -> None:
        self.subjects = subjects
        self.backend = backend
        self.most = most
        self.model = ""
        self.spent = _Used()
        self.held = _Used()
        self.lowered_by: Limit | None = None
        self.ended_at: datetime | None = None
        self.booked: BilledId | None = None
        self._budget = budget

    async def __call__(self, model: str, input_tokens: int, spent: Usage) -> int:
        self.model = model
        return await self._budget.allow(self, model, input_tokens, spent)

    def cost(self, usage: Usage, model: str) -> Decimal | None:
        """`model` as it was asked for, which is what the gate was asked about."""
        return self._budget.prices.cost(self.backend, model, usage)

    async def cut_by(self) -> CapHit | None:
        """The cap that made the answer asked for last shorter than the longest, if one did."""
        return await self._budget.hit(self.lowered_by) if self.lowered_by else None

    def end(self, usage: Usage, at: datetime) -> None:
        """The run is over; the store does not know of it yet."""
        self.spent = self.held = _used(self.cost(usage, self.model), usage)
        self.ended_at = at

    def close(self) -> None:
        """The store knows all that it used."""
        self._budget.forget(self)

    def concerns(self, limit: Limit) -> bool:
        return self.subjects.get(limit.scope) == limit.subject


class Budget:
    """Spent never passes a cap and what was granted beyond it: not by runs one after another,
    and not by those of this process at the same time.

    What runs under way may still use is known to this process alone. That is enough because one
    process works on a home: `storage.home.Home` holds it from before the store is opened until
    the end, for `run`, `dispatch` and every command that is carried out without them. Two homes
    whose DATABASE_URL names one file are not kept apart by that, and several workers on one
    store will need a row for what is held."""

    def __init__(
        self,
        *,
        caps: Caps,
        prices: Prices,
        usage: UsageRepo,
        grants: BudgetRepo,
        now: Callable[[], datetime],
    ) -> None:
        self.prices = prices
        self._caps = caps
        self._usage = usage
        self._grants = grants
        self._now = now
        # Those that have asked; who never does costs nothing.
        self._purses: list[Purse] = []
        self._turn = asyncio.Lock()

    def purse(self, subjects: Mapping[Scope, str], backend: str, most: int) -> Purse:
        """For one run, whose answers may have `most` tokens each. `subjects` are whom it is
        charged to."""
        return Purse(self, {**subjects, Scope.DAY: ""}, backend, most)

    def forget(self, purse: Purse) -> None:
        if purse in self._purses:
            self._purses.remove(purse)

    async def allow(self, purse: Purse, model: str, input_tokens: int, spent: Usage) -> int:
        """How many tokens the next call may write. Raises BudgetReached."""
        async with self._turn:
            await self._forget_booked()
            if purse not in self._purses:
                self._purses.append(purse)
            own_cost = self.prices.cost(purse.backend, model, spent)
            purse.spent = purse.held = _used(own_cost, spent)
            rates = self._rates(purse.backend, model, input_tokens)
            most, purse.lowered_by = purse.most, None
            for limit in self._caps.on(purse.subjects, self._now()):
                room = await self._room(limit, purse)
                fits = _tokens_in(room, own_cost, rates, input_tokens, spent)
                if fits < most:
                    most, purse.lowered_by = fits, limit
                if most < min(LEAST, purse.most):
                    raise BudgetReached(await self.hit(limit), usage=spent)
            tokens = _tokens(spent) + input_tokens + most
            purse.held = _Used(micros=_micros(own_cost, rates, most), tokens=tokens)
            return most

    def _rates(self, backend: str, model: str, reads: int) -> tuple[Decimal, Decimal] | None:
        """What reading costs, and what each token of the answer does, in millionths of a dollar."""
        read = self.prices.most(backend, model, reads, 0)
        whole = self.prices.most(backend, model, reads, MICROS)
        if read is None or whole is None:
            return None
        return read * MICROS, whole - read

    async def _room(self, limit: Limit, purse: Purse) -> Cap:
        """What is left for this run and its next call together: 0 or less is nothing, and
        meaningless where the cap has no limit of that sort."""
        allowed = await self._allowed(limit)
        others = sum(
            (each.held for each in self._purses if each is not purse and each.concerns(limit)),
            await self._stored(limit),
        )
        return Cap(
            micros=allowed.micros - others.micros if limit.cap.micros else _NO_LIMIT,
            tokens=allowed.tokens - others.tokens if limit.cap.tokens else _NO_LIMIT,
        )

    async def _allowed(self, limit: Limit) -> Cap:
        more = await self._grants.granted(limit.scope, limit.subject, limit.day)
        return Cap(micros=limit.cap.micros + more.micros, tokens=limit.cap.tokens + more.tokens)

    async def _stored(self, limit: Limit) -> _Used:
        spent = await self._usage.charged(limit.scope, limit.subject, limit.since)
        tokens = spent.input_tokens + spent.output_tokens
        return _Used(micros=spent.cost_micros, tokens=tokens)

    async def hit(self, limit: Limit) -> CapHit:
        """Where this cap stands now."""
        allowed = await self._allowed(limit)
        used = sum(
            (each.spent for each in self._purses if each.concerns(limit)),
            await self._stored(limit),
        )
        return CapHit(
            scope=limit.scope.value,
            subject=limit.subject,
            day=limit.day,
            cap_micros=allowed.micros if limit.cap.micros else 0,
            cap_tokens=allowed.tokens if limit.cap.tokens else 0,
            spent_micros=used.micros,
            spent_tokens=used.tokens,
            until=limit.until,
        )

    async def _forget_booked(self) -> None:
        """Looked up before the sums are: a run is counted twice rather than not at all."""
        stored = await self._usage.stored(
            [each.booked for each in self._purses if each.booked is not None]
        )
        oldest = self._now() - _UNBOOKED
        self._purses = [
            each
            for each in self._purses
            if each.booked not in stored and (each.ended_at is None or each.ended_at > oldest)
        ]


async def ask_for_more(
    tx: Transaction,
    hit: CapHit,
    *,
    task: TaskId | None,
    chat_id: ChatId,
    title: str,
    ids: Ids,
    now: datetime,
    expires_at: datetime,
) -> Approval:
    """The one request to extend this cap by its own amount: whoever else is stopped by the same
    cap joins it. `payload["tasks"]` are those that go on when it is granted."""
    about = f"{hit.scope}:{hit.subject}:{hit.day}"
    waiting = await asked_for(tx, about, now=now)
    if waiting is not None:
        tasks = [*waiting.payload.get("tasks", ())]
        if task is None or task in tasks:
            return waiting
        payload = {**waiting.payload, "tasks": [*tasks, task]}
        await amend(tx, waiting.id, payload)
        return replace(waiting, payload=payload)
    more = await _more(tx, hit)
    new = NewApproval(
        kind=ApprovalKind.BUDGET,
        chat_id=chat_id,
        title=title,
        expires_at=min(expires_at, hit.until + _AFTERWARDS) if hit.until else expires_at,
        task_id=task,
        subject=about,
        command_hash=_hash_of(about, more),
        payload={**_facts(hit, more), "tasks": [task] if task else []},
    )
    return await add_approval(tx, new, ids=ids, now=now)


async def grant(tx: Transaction, approval: Approval) -> None:
    """Allow as much again as the request names. Granting the same one again changes nothing."""
    payload = approval.payload
    await add_grant(
        tx,
        Grant(
            approval_id=approval.id,
            scope=Scope(payload["scope"]),
            subject=str(payload["subject"]),
            day=str(payload["day"]),
            cap=Cap(micros=int(payload["more_micros"]), tokens=int(payload["more_tokens"])),
        ),
        now=approval.decided_at or approval.created_at,
    )


async def _more(tx: Transaction, hit: CapHit) -> Cap:
    """The cap's own amount again: what it allows without what was granted already."""
    whose = (Scope(hit.scope), hit.subject, hit.day)
    before = await granted(tx, *whose)
    own = Cap(
        micros=max(0, hit.cap_micros - before.micros),
        tokens=max(0, hit.cap_tokens - before.tokens),
    )
    # Nothing left of it: somebody has extended the cap since it was hit.
    return own or await largest_grant(tx, *whose)


def _facts(hit: CapHit, more: Cap) -> dict[str, Any]:
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


def _hash_of(about: str, more: Cap) -> str:
    what = json.dumps([about, more.micros, more.tokens])
    return sha256(what.encode()).hexdigest()


def _used(cost: Decimal | None, usage: Usage) -> _Used:
    return _Used(micros=in_micros(cost) or 0, tokens=_tokens(usage))


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens


def in_micros(cost: Decimal | None) -> int | None:
    """Never less than it was, so that a sum of many is not either."""
    if cost is None:
        return None
    return int((cost * MICROS).to_integral_value(rounding=ROUND_CEILING))


def _micros(own: Decimal | None, rates: tuple[Decimal, Decimal] | None, most: int) -> int:
    """What a run has cost once its next call has cost the most it may."""
    read, each = rates or (Decimal(0), Decimal(0))
    whole = (own or Decimal(0)) * MICROS + read + each * most
    return int(whole.to_integral_value(rounding=ROUND_CEILING))


def _tokens_in(
    room: Cap,
    own: Decimal | None,
    rates: tuple[Decimal, Decimal] | None,
    input_tokens: int,
    spent: Usage,
) -> int:
    """How many tokens of an answer fit into what is left."""
    by_tokens = room.tokens - _tokens(spent) - input_tokens
    if rates is None:
        # Of a model without a known price only tokens can be counted.
        return by_tokens
    read, each = rates
    left = room.micros - (own or Decimal(0)) * MICROS - read
    if left < 0:
        return -1
    return min(by_tokens, int(left / each)) if each else by_tokens
