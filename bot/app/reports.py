"""Builds the reports on past work."""

from __future__ import annotations

from bot.app.parts import ScheduleServices
from bot.app.repositories import RepositorySet
from bot.config.settings import Settings
from bot.engine.autonomy.reports.report_builder import ReportBuilder
from bot.engine.autonomy.reports.service import REPORT_SERVICE, ReportService
from bot.engine.tasks.access import TaskAccess
from bot.transports.ports import Clock
from cards.courier import Courier
from storage.reports import ReportRepo


def build_reports(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    courier: Courier,
    schedule: ScheduleServices,
) -> ReportService:
    """Also lets schedules run them."""
    service = schedule.service
    reports = ReportService(
        home=settings.home,
        db=store.db,
        builder=ReportBuilder(reports=ReportRepo(store.db), zone=settings.zone),
        schedules=service.schedules,
        due_times=service.due_times,
        people=store.people,
        access=TaskAccess(store.people.get_chat),
        courier=courier,
        language_of=store.task_language.resolve,
        now=clock.now,
        new_id=store.ids.short_id,
        on_change=service.on_change,
    )
    schedule.parts[REPORT_SERVICE] = reports.run_scheduled
    return reports
