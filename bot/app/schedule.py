"""Builds reminders and scheduled jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.app.repositories import RepositorySet
from bot.config.settings import Settings, parse_day_hours
from bot.engine.agent.conversation.resumption import CardPoster
from bot.engine.schedule.firing import DueTimes, ScheduleFirer, TaskEnqueuer
from bot.engine.schedule.service import ScheduleService
from bot.engine.timing.day_hours import DayHours
from bot.engine.timing.due_timer import DueTimer
from bot.engine.timing.working_days import working_calendar
from bot.engine.workflow.library.named_workflows import WorkflowLibrary
from bot.engine.workspaces.projects import ProjectFolderService
from bot.engine.workspaces.worktrees import TaskWorktrees
from bot.transports.clock import Clock
from handlers.language import language_of_chat
from storage.records.people import Chat, ChatId, Language, PersonRole
from storage.schedules import ScheduleRepo


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleServices:
    """What people see of schedules, and what fires them."""

    service: ScheduleService
    firer: ScheduleFirer


def build_schedule(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    poster: CardPoster,
    tasks: TaskEnqueuer,
    timer: DueTimer,
    on_tasks: Callable[[], None],
) -> ScheduleServices:
    folders = build_project_folders(settings, store)

    async def in_git(folder: Path) -> bool:
        return (await folders.folder_kind(str(folder))).in_git

    async def owner_chats() -> Sequence[tuple[ChatId, Language]]:
        chats = await store.chats.list_private(PersonRole.OWNER)
        return [(each.id, await language_of(each)) for each in chats]

    async def language_of(chat: Chat) -> Language:
        fixed = settings.fixed_language
        return fixed or await language_of_chat(store.people, chat) or Language.ENGLISH

    schedules = ScheduleRepo(store.db)
    due_times = DueTimes(
        calendar=working_calendar(settings.holidays), quiet_hours=_quiet_hours(settings)
    )
    firer = ScheduleFirer(
        db=store.db,
        schedules=schedules,
        task_repo=store.work.tasks,
        people=store.people,
        tasks=tasks,
        workflows=WorkflowLibrary(settings.home, store.work.graphs),
        poster=poster,
        due_times=due_times,
        services={},
        language_of=store.task_language.resolve,
        owner_chats=owner_chats,
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
        on_change=lambda: timer.wake(ScheduleFirer.name),
    )
    return ScheduleServices(service=service, firer=firer)


def build_project_folders(settings: Settings, store: RepositorySet) -> ProjectFolderService:
    trees = TaskWorktrees(settings.home, store.adoption.is_adopted)
    return ProjectFolderService(settings.home, trees.find_repository, store.adoption)


def _quiet_hours(settings: Settings) -> DayHours | None:
    hours = parse_day_hours(settings.quiet_hours)
    if hours is None:
        return None
    return DayHours(start=hours[0], end=hours[1], zone=settings.zone)
