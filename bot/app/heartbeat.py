"""Builds the heartbeat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from bot.app.parts import ScheduleServices
from bot.app.repositories import RepositorySet
from bot.config.settings import Settings
from bot.engine.agent.budget import SpendingCaps
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.worker_briefing import BOSS_FOLDER
from bot.engine.agent.worker_context import WorkerContextBuilder
from bot.engine.autonomy.heartbeat.hours import ActiveHours
from bot.engine.autonomy.heartbeat.run import HeartbeatRunner, HeartbeatSituation
from bot.engine.autonomy.heartbeat.service import NAME, HeartbeatService
from bot.transports.ports import Clock
from cards import formats
from storage.heartbeat import HeartbeatRepo
from storage.records.people import Chat
from storage.records.usage import BudgetScope

_FILE = "HEARTBEAT.md"
_SOON = timedelta(days=1)
_MAX_LINES, _MAX_LINE = 10, 120


def build_heartbeat(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    schedule: ScheduleServices,
    gateway: ModelGateway,
    context_builder: WorkerContextBuilder,
    caps: SpendingCaps,
    model: Callable[[], str],
    hours: ActiveHours,
) -> HeartbeatService:
    """Adds it to the parts that schedules run."""
    runs = HeartbeatRepo(store.db)
    situation = _situation_reader(store, clock, schedule)
    runner = HeartbeatRunner(
        db=store.db,
        runs=runs,
        calls=store.tool_calls,
        key_values=store.key_values,
        gateway=gateway,
        context_builder=context_builder,
        poster=schedule.firer.poster,
        describe_situation=situation,
        workspace=settings.home / "workspaces" / NAME,
        model=model,
        now=clock.now,
        local_time=lambda: clock.now().astimezone(settings.zone),
    )
    heartbeat = _build_service(
        settings, store, clock, schedule=schedule, runner=runner, caps=caps, hours=hours
    )
    schedule.parts[NAME] = heartbeat.run_scheduled
    return heartbeat


def _build_service(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    schedule: ScheduleServices,
    runner: HeartbeatRunner,
    caps: SpendingCaps,
    hours: ActiveHours,
) -> HeartbeatService:
    async def find_chat() -> Chat | None:
        found = await runner.runs.find_owner_chat()
        return None if found is None else await store.chats.get(found)

    async def spent_and_cap() -> tuple[int, int]:
        cap = caps.cap_for(BudgetScope.HEARTBEAT, "", clock.now())
        spent = await store.usage.sum_for_cap(cap.scope, cap.subject, cap.since)
        return spent.cost_micros, cap.cap.micros

    return HeartbeatService(
        db=store.db,
        runs=runner.runs,
        schedules=schedule.service.schedules,
        key_values=store.key_values,
        builtin=schedule.builtin,
        firer=schedule.firer,
        runner=runner,
        poster=runner.poster,
        path=settings.home / BOSS_FOLDER / _FILE,
        every=timedelta(minutes=settings.heartbeat_minutes),
        hours=hours,
        hours_text=settings.heartbeat_hours,
        find_chat=find_chat,
        language_of=store.chat_language,
        spent_and_cap=spent_and_cap,
        now=clock.now,
        on_change=schedule.service.on_change,
    )


def _situation_reader(
    store: RepositorySet, clock: Clock, schedule: ScheduleServices
) -> Callable[[Chat], Awaitable[HeartbeatSituation]]:
    async def describe(chat: Chat) -> HeartbeatSituation:
        assert chat.person_id is not None
        owner = await store.people.get(chat.person_id)
        waiting = await store.approvals.list_waiting(by=owner, chat=None)
        now = clock.now()
        views = await schedule.service.list(by=owner, chat=chat.id)
        due = [
            (each.schedule.next_due, each.schedule.title)
            for each in views
            if each.schedule.next_due is not None and each.schedule.next_due < now + _SOON
        ]
        return HeartbeatSituation(
            waiting=_lines([each.title for each in waiting]),
            due=_lines([f"{_minute(at)} {title}" for at, title in due]),
        )

    return describe


def _minute(at: datetime) -> str:
    return at.isoformat(timespec="minutes")


def _lines(texts: Sequence[str]) -> Sequence[str]:
    return [formats.single_line(each, _MAX_LINE) for each in texts[:_MAX_LINES]]
