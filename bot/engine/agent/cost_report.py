"""Reports spending and what the caps leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from bot.engine.agent.budget import AccountCap, SpendingCaps
from storage.heartbeat import HeartbeatRepo
from storage.records.people import ChatId, Person, PersonRole
from storage.records.tasks import Task, TaskId
from storage.records.usage import (
    BudgetScope,
    CapUsage,
    CostLine,
    CostPeriod,
    CostQuery,
    CostReport,
    SpendingCap,
    TaskCost,
)
from storage.usage import BudgetRepo, UsageFilter, UsageRepo

_MAX_LISTED_TASKS = 10


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
        task_since: Callable[[TaskId], Awaitable[datetime | None]] | None = None,
    ) -> None:
        """`task_since` is the time from which on a task's usage counts for its cap."""
        self._task_since = task_since
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
        since = await self._task_since(task.id) if self._task_since else None
        caps = self._caps.with_task_cap(task.cap, since)
        limit = caps.cap_for(BudgetScope.TASK, task.id, self._now())
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
