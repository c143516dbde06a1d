"""What was spent, and how much of it the caps still allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from bot.engine.agent.budget import Caps, Limit
from storage.budgets import BudgetRepo
from storage.records.money import Cap, CapLeft, Scope
from storage.records.people import ChatId, Person, Role
from storage.records.status import CostLine, CostQuery, CostReport, Period, TaskCost
from storage.records.tasks import Spent, Task
from storage.usage import Span, UsageRepo


class CostService:
    """Satisfies `handlers.ports.Costs`."""

    def __init__(
        self, usage: UsageRepo, grants: BudgetRepo, caps: Caps, now: Callable[[], datetime]
    ) -> None:
        self._usage = usage
        self._grants = grants
        self._caps = caps
        self._now = now

    async def report(
        self, *, by: Person, chat: ChatId, query: CostQuery | None = None
    ) -> CostReport:
        query = query or CostQuery()
        owner = by.role is Role.OWNER
        wanted = self._span(query, by, chat)
        models = await self._usage.by_model(wanted)
        named = owner and query.named
        caps = await self._all_left(by, chat)
        periods = (Period.TODAY, Period.WEEK, Period.MONTH)
        today, week, month = [
            await self._usage.sum(self._span(CostQuery(period=each, model=query.model), by, chat))
            for each in periods
        ]
        return CostReport(
            query=query,
            whole=await self._usage.sum(wanted),
            today=today,
            week=week,
            month=month,
            models=tuple(models),
            purposes=tuple(await self._usage.by_purpose(wanted)),
            chats=tuple(await self._usage.by_chat(wanted)) if named else (),
            people=tuple(await self._usage.by_person(wanted)) if named else (),
            caps=caps,
            unseen=_unseen(models, self._counts_money),
        )

    async def of_task(self, task: Task) -> TaskCost:
        span = Span(task=task.id)
        models = await self._usage.by_model(span)
        limit = self._caps.limit(Scope.TASK, task.id, self._now())
        return TaskCost(
            task=task,
            whole=await self._usage.sum(span),
            models=tuple(models),
            purposes=tuple(await self._usage.by_purpose(span)),
            caps=(await self._left(limit),) if limit.cap else (),
            unseen=_unseen(models, self._counts_money),
        )

    @property
    def _counts_money(self) -> bool:
        return any(cap.micros for cap in self._caps.of.values())

    def _span(self, query: CostQuery, by: Person, chat: ChatId) -> Span:
        return Span(
            since=self._begin(query),
            person=None if by.role is Role.OWNER else by.id,
            chat=chat,
            model=query.model,
        )

    def _begin(self, query: CostQuery) -> datetime | None:
        local = self._now().astimezone(self._caps.zone)
        day = local.replace(hour=0, minute=0, second=0, microsecond=0)
        match query.period:
            case Period.TODAY:
                return day
            case Period.WEEK:
                return day - timedelta(days=day.weekday())
            case Period.MONTH:
                return day.replace(day=1)
            case Period.DAYS:
                return day - timedelta(days=max(0, query.days - 1))
            case Period.ALL:
                return None

    async def _all_left(self, by: Person, chat: ChatId) -> tuple[CapLeft, ...]:
        """What all have spent together is for owners to know."""
        subjects = {Scope.PERSON: by.id, Scope.CHAT: chat}
        if by.role is Role.OWNER:
            subjects |= {Scope.DAY: ""}
        limits = self._caps.on(subjects, self._now())
        return tuple([await self._left(limit) for limit in limits])

    async def _left(self, limit: Limit) -> CapLeft:
        spent = await self._usage.charged(limit.scope, limit.subject, limit.since)
        more = await self._grants.granted(limit.scope, limit.subject, limit.day)
        cap = limit.cap
        return CapLeft(
            scope=limit.scope,
            allowed=Cap(
                micros=cap.micros + more.micros if cap.micros else 0,
                tokens=cap.tokens + more.tokens if cap.tokens else 0,
            ),
            granted=more,
            used=Cap(micros=spent.cost_micros, tokens=_tokens(spent)),
        )


def _unseen(models: Sequence[CostLine], counts_money: bool) -> tuple[str, ...]:
    """The models that a cap on money does not see."""
    return tuple(line.name for line in models if counts_money and line.spent.unpriced)


def _tokens(spent: Spent) -> int:
    return spent.input_tokens + spent.output_tokens
