"""Builds reminders, scheduled jobs and the heartbeat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from bot.app.parts import ScheduleServices
from bot.app.repositories import RepositorySet
from bot.config.settings import Settings
from bot.config.values import parse_day_hours
from bot.engine.agent.budget import SpendingCaps
from bot.engine.agent.conversation.turn_taking import CardPoster
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.worker_briefing import BOSS_FOLDER
from bot.engine.agent.worker_context import WorkerContextBuilder
from bot.engine.autonomy.drive import GOALS
from bot.engine.autonomy.heartbeat.run import HeartbeatRunner, HeartbeatSituation
from bot.engine.autonomy.heartbeat.service import NAME, ActiveHours, HeartbeatService
from bot.engine.autonomy.self_check import SELF_CHECK
from bot.engine.schedule.builtin import BuiltinSchedule, BuiltinSchedules
from bot.engine.schedule.firing import DueTimes, ScheduledService, ScheduleFirer, TaskEnqueuer
from bot.engine.schedule.service import ScheduleService
from bot.engine.schedule.triggers import TriggerService
from bot.engine.timing import DayHours, DueTimer, working_calendar
from bot.engine.workflow.named_workflows import WorkflowLibrary
from bot.engine.workspaces.projects import ProjectFolderService
from bot.engine.workspaces.task_workspaces import TaskWorktrees
from bot.transports.ports import Clock
from bot.transports.web.ports import LOCAL_PLACE, LOCAL_SENDER
from cards import formats
from storage.heartbeat import HeartbeatRepo
from storage.records.autonomy import GoalName
from storage.records.messages import ChatAddress
from storage.records.people import Channel, Chat, ChatId, ChatKind, PersonId
from storage.records.schedules import ScheduleKind
from storage.records.usage import BudgetScope
from storage.schedules import ScheduleRepo
from storage.shared_files import SharedFiles
from storage.triggers import TriggerRepo


def build_schedule(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    poster: CardPoster,
    tasks: TaskEnqueuer,
    workflows: WorkflowLibrary,
    timer: DueTimer,
    on_tasks: Callable[[], None],
    files: SharedFiles,
) -> ScheduleServices:
    folders = build_project_folders(settings, store)

    async def in_git(folder: Path) -> bool:
        return (await folders.folder_kind(str(folder))).in_git

    schedules = ScheduleRepo(store.db)
    due_times = DueTimes(
        calendar=working_calendar(settings.holidays),
        quiet_hours=parse_hours(settings, settings.quiet_hours),
    )
    parts: dict[str, ScheduledService] = {}
    firer = ScheduleFirer(
        db=store.db,
        schedules=schedules,
        task_repo=store.work.tasks,
        people=store.people,
        tasks=tasks,
        workflows=workflows,
        poster=poster,
        due_times=due_times,
        services=parts,
        language_of=store.task_language.resolve,
        owner_chats=store.list_owner_chats,
        in_git=in_git,
        now=clock.now,
        on_tasks=on_tasks,
    )
    service = ScheduleService(
        db=store.db,
        schedules=schedules,
        tasks=store.work.tasks,
        firer=firer,
        due_times=due_times,
        get_chat=store.people.get_chat,
        zone=settings.zone,
        now=clock.now,
        new_id=store.ids.short_id,
        on_change=partial(timer.wake, ScheduleFirer.name),
    )
    builtin = _build_builtin(settings, store, clock, service)
    triggers = _build_triggers(settings, store, clock, firer, workflows, files=files)
    return ScheduleServices(
        service=service, firer=firer, builtin=builtin, triggers=triggers, parts=parts
    )


def _build_triggers(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    firer: ScheduleFirer,
    workflows: WorkflowLibrary,
    *,
    files: SharedFiles,
) -> TriggerService:
    return TriggerService(
        db=store.db,
        triggers=TriggerRepo(store.db),
        task_repo=store.work.tasks,
        people=store.people,
        tasks=firer.tasks,
        workflows=workflows,
        home=settings.home,
        files=files,
        web_url=settings.web_url or f"http://127.0.0.1:{settings.web_port}",
        now=clock.now,
        new_id=store.ids.short_id,
        on_tasks=firer.on_tasks,
    )


def _build_builtin(
    settings: Settings, store: RepositorySet, clock: Clock, service: ScheduleService
) -> BuiltinSchedules:
    return BuiltinSchedules(
        db=store.db,
        schedules=service.schedules,
        due_times=service.due_times,
        wanted=builtin_schedules(settings),
        get_anchor=partial(_get_anchor, store, clock),
        zone=settings.zone.key,
        now=clock.now,
        new_id=store.ids.short_id,
        on_change=service.on_change,
    )


_GOALS = {GoalName.HEALTH_CHECK, GoalName.EVOLVE, GoalName.CLEANUP}
"""Those that this version can pursue."""


def builtin_schedules(settings: Settings) -> Sequence[BuiltinSchedule]:
    """The parts of the program that run by a schedule, as the settings want them."""
    minutes = settings.self_check_minutes
    self_check = BuiltinSchedule(
        name=SELF_CHECK,
        kind=ScheduleKind.CHECK,
        timing=timedelta(minutes=minutes) if minutes else None,
    )
    minutes = settings.heartbeat_minutes
    heartbeat = BuiltinSchedule(
        name="heartbeat",
        kind=ScheduleKind.HEARTBEAT,
        timing=timedelta(minutes=minutes) if minutes else None,
    )
    return (self_check, heartbeat, *(each.schedule for each in GOALS if each.name in _GOALS))


_ANCHOR = ChatAddress(channel=Channel.WEB, chat="builtin", kind=ChatKind.GROUP)
"""No chat of a person, so that nobody seems to have written. Nothing is ever sent there."""


async def _get_anchor(store: RepositorySet, clock: Clock) -> tuple[PersonId, ChatId]:
    """The local owner and a chat of the program itself, created if necessary."""
    owner = await store.people.find_by_account(LOCAL_PLACE.channel, LOCAL_SENDER.external_id)
    assert owner is not None
    async with store.db.write() as tx:
        chat = await store.chats.get_or_create(tx, _ANCHOR, LOCAL_SENDER, clock.now())
    return owner.id, chat.id


def build_project_folders(settings: Settings, store: RepositorySet) -> ProjectFolderService:
    trees = TaskWorktrees(settings.home, store.adoption.is_adopted)
    return ProjectFolderService(settings.home, trees.find_repository, store.adoption)


def parse_hours(settings: Settings, text: str) -> DayHours | None:
    """Hours of each day in the Boss's zone; None for an empty text."""
    hours = parse_day_hours(text)
    if hours is None:
        return None
    return DayHours(start=hours[0], end=hours[1], zone=settings.zone)


def heartbeat_hours(settings: Settings) -> ActiveHours:
    return ActiveHours(
        active=parse_hours(settings, settings.heartbeat_hours),
        quiet=parse_hours(settings, settings.quiet_hours),
    )


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
