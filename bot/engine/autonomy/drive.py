"""Pursues the program's own goals, within a budget and outside the quiet hours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from bot.engine.agent.budget import MICROS_PER_DOLLAR
from bot.engine.autonomy.self_check import SelfCheckService
from bot.engine.schedule.builtin import STOPPED, BuiltinSchedule, BuiltinSchedules
from bot.engine.schedule.firing import ScheduledService, ServiceFailure
from cards.catalog import catalog_for
from cards.views.self_checks import diagnosis_instruction, diagnosis_title
from storage.db import Database, Transaction
from storage.records.autonomy import DriveStatus, GoalName, GoalState, GoalStatus, Incident
from storage.records.people import Chat, Language
from storage.records.schedules import Schedule, ScheduleKind, ScheduleState
from storage.records.tasks import NewTask, Task, TaskPriority
from storage.records.usage import SpendingCap, parse_cap
from storage.schedules import ScheduleRepo
from storage.self_checks import SelfCheckRepo
from storage.tasks import TaskRepo
from storage.usage import UsageFilter, UsageRepo

TASK_SOURCE = "self-drive:"
_SERIOUS = 20
"""Points from which a problem is looked into without being asked."""
_SHOWN_TASKS = 5
_MIN_SHARE = 20
"""A task needs this part of the budget: a twentieth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """`starts_on` is False for one that an owner must enable."""

    name: GoalName
    every: timedelta
    starts_on: bool = True

    @property
    def service(self) -> str:
        return f"goal:{self.name}"

    @property
    def schedule(self) -> BuiltinSchedule:
        return BuiltinSchedule(
            name=self.service,
            kind=ScheduleKind.GOAL,
            timing=self.every,
            respects_quiet_hours=True,
            starts_off=not self.starts_on,
        )


GOALS = (
    Goal(name=GoalName.HEALTH_CHECK, every=timedelta(hours=4)),
    Goal(name=GoalName.EVOLVE, every=timedelta(hours=8)),
    Goal(name=GoalName.CLEANUP, every=timedelta(hours=6), starts_on=False),
)
"""The most important first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveService:
    """The goals, as owners see and change them. Schedules fire them, one run of a goal at a time.
    `runs` pursue those that this version has."""

    runs: Mapping[GoalName, Callable[[], Awaitable[None]]]
    builtin: BuiltinSchedules
    schedules: ScheduleRepo
    budget: DriveBudget
    tasks: TaskRepo

    @property
    def services(self) -> dict[str, ScheduledService]:
        return {each.service: partial(_pursue, self.runs[each.name]) for each in self._available}

    async def get_status(self) -> DriveStatus:
        return DriveStatus(
            goals=tuple([await self._status_of(each) for each in GOALS]),
            used=await self.budget.get_used(),
            cap=self.budget.cap(),
            tasks=tuple(await self.tasks.list_by_source(TASK_SOURCE, limit=_SHOWN_TASKS)),
        )

    async def stop(self) -> DriveStatus:
        """Stop a goal until it is started again or Shiftboss restarts. Running work ends."""
        for goal in self._available:
            await self.builtin.stop(goal.service)
        return await self.get_status()

    async def start(self) -> DriveStatus:
        """Start a stopped goal; disabled goals stay disabled."""
        for goal in self._available:
            if (await self.builtin.get(goal.service)).reason == STOPPED:
                await self.builtin.switch(goal.service, on=True)
        return await self.get_status()

    async def enable(self, name: GoalName) -> DriveStatus:
        goal = next((each for each in self._available if each.name is name), None)
        if goal is not None:
            was_stopped = (await self.get_status()).is_stopped
            await self.builtin.switch(goal.service, on=True)
            if was_stopped:
                await self.builtin.stop(goal.service)
        return await self.get_status()

    async def disable(self, name: GoalName) -> DriveStatus:
        goal = next((each for each in self._available if each.name is name), None)
        if goal is not None:
            # One that is only stopped would go on with the next start.
            await self.builtin.switch(goal.service, on=True)
            await self.builtin.switch(goal.service, on=False)
        return await self.get_status()

    @property
    def _available(self) -> Sequence[Goal]:
        return [each for each in GOALS if each.name in self.runs]

    async def _status_of(self, goal: Goal) -> GoalStatus:
        if goal.name not in self.runs:
            return GoalStatus(name=goal.name, every=goal.every, state=GoalState.UNAVAILABLE)
        schedule = await self.builtin.get(goal.service)
        last = await self.schedules.list_firings(schedule.id, 1)
        return GoalStatus(
            name=goal.name,
            every=goal.every,
            state=_state_of(schedule),
            next_due=schedule.next_due,
            last=last[0] if last else None,
        )


def _state_of(schedule: Schedule) -> GoalState:
    if schedule.state is ScheduleState.ACTIVE:
        return GoalState.ON
    return GoalState.STOPPED if schedule.reason == STOPPED else GoalState.DISABLED


async def _pursue(
    run: Callable[[], Awaitable[None]], _schedule: Schedule, _due_at: datetime
) -> None:
    await run()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveBudget:
    """The budget of a day for tasks of drive. An unfinished task counts with its whole cap, so that
    tasks beside each other stay within it too."""

    cap: Callable[[], SpendingCap]
    tasks: TaskRepo
    usage: UsageRepo
    zone: ZoneInfo
    now: Callable[[], datetime]

    async def get_used(self) -> SpendingCap:
        local = self.now().astimezone(self.zone)
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
        micros = tokens = 0
        for task in await self.tasks.list_by_source(TASK_SOURCE, since=midnight):
            spent = await self.usage.sum(UsageFilter(task=task.id))
            reserved = SpendingCap() if task.status.is_final else parse_cap(task.cap)
            micros += max(spent.cost_micros, reserved.micros)
            tokens += max(spent.input_tokens + spent.output_tokens, reserved.tokens)
        return SpendingCap(micros=micros, tokens=tokens)

    async def get_task_cap(self) -> str:
        """The cap of the next task, empty without a limit. Raises ServiceFailure if too little
        is left."""
        used = await self.get_used()
        parts: list[str] = []
        allowed = self.cap()
        for cap, spent, form in (
            (allowed.micros, used.micros, _dollars),
            (allowed.tokens, used.tokens, _tokens),
        ):
            if not cap:
                continue
            if cap - spent < cap // _MIN_SHARE:
                raise ServiceFailure("self.drive_no_budget")
            parts.append(form(cap - spent))
        return ", ".join(parts)


def _dollars(micros: int) -> str:
    return f"{micros / MICROS_PER_DOLLAR:.6f} USD"


def _tokens(number: int) -> str:
    return f"{number} tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDiagnosis:
    """Has a worker look into serious problems that nobody looks into yet: it explains them, and
    repairs nothing. `report_to` is an owner's private chat with its language, None if there is
    none. `can_work` tells whether there is a model to ask."""

    self_check: SelfCheckService
    repo: SelfCheckRepo
    db: Database
    budget: DriveBudget
    report_to: Callable[[], Awaitable[tuple[Chat, Language] | None]]
    can_work: Callable[[], bool]
    create_task: Callable[[Transaction, NewTask], Awaitable[Task]]
    on_task: Callable[[], None]

    async def __call__(self) -> None:
        await self.self_check.check()
        if not _serious(await self.repo.list_open()):
            return
        place = await self.report_to()
        if place is None or not self.can_work():
            return
        chat, language = place
        if chat.person_id is None:
            return
        cap = await self.budget.get_task_cap()
        words = catalog_for(language)
        async with self.db.write() as tx:
            # Somebody may have had a task made meanwhile.
            problems = _serious(await self.repo.list_open(tx))
            if not problems:
                return
            new = NewTask(
                title=diagnosis_title(problems, words),
                instruction=diagnosis_instruction(problems, words),
                # What somebody asks for goes first.
                priority=TaskPriority.NORMAL,
                chat_id=chat.id,
                created_by=chat.person_id,
                source=f"{TASK_SOURCE}{'-'.join(str(each.id) for each in problems)}"[:200],
                cap=cap,
                use_memory=False,
            )
            task = await self.create_task(tx, new)
            for each in problems:
                await self.repo.update(tx, replace(each, task_id=task.id))
        self.on_task()


def _serious(incidents: Sequence[Incident]) -> Sequence[Incident]:
    return [
        each
        for each in incidents
        if each.finding.points >= _SERIOUS and each.task_id is None and each.absent_since is None
    ]
