"""Reports on demand and by schedule."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from bot.engine.autonomy.reports.report_builder import ReportBuilder
from bot.engine.schedule.firing import DueTimes, ServiceFailure, was_asked_for
from bot.engine.tasks.access import TaskAccess
from bot.engine.workflow.presentation.pictures import REPORTS_FOLDER, store_picture
from cards.catalog import catalog_for
from cards.courier import Courier
from cards.views.reports import report_card
from storage.db import Database
from storage.errors import NotFound
from storage.people import PeopleRepo
from storage.records.autonomy import ReportPeriod, ReportPictures, WorkReport
from storage.records.messages import DeliveryUrgency
from storage.records.people import ChatId, Language, Person, PersonId
from storage.records.schedules import (
    DELETED,
    CronTiming,
    NewSchedule,
    Schedule,
    ScheduleKind,
    ScheduleState,
    ServiceBody,
)
from storage.schedules import ScheduleRepo

log = logging.getLogger(__name__)

REPORT_SERVICE = "report"
_MIN_STEPS = 20
"""Steps below which a heat map would show chance."""
_MIN_COST_DAYS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportService:
    """Satisfies `handlers.ports_autonomy.ReportPort`. `run_scheduled` is a `ScheduledService`.
    `on_change` is called after a commit that changed a due time."""

    home: Path
    db: Database
    builder: ReportBuilder
    schedules: ScheduleRepo
    due_times: DueTimes
    people: PeopleRepo
    access: TaskAccess
    courier: Courier
    language_of: Callable[[ChatId, PersonId, str], Awaitable[Language]]
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    on_change: Callable[[], None]

    async def report(
        self, period: ReportPeriod, *, by: Person, chat: ChatId, until: datetime
    ) -> WorkReport:
        seen = await self.access.visibility_for(by, chat)
        return await self.builder.build(period, seen=seen, until=until)

    async def draw(self, report: WorkReport, language: Language) -> ReportPictures:
        return await asyncio.to_thread(self._draw, report, language)

    def _draw(self, report: WorkReport, language: Language) -> ReportPictures:
        from bot.engine.autonomy.reports.charts import draw_cost_chart, draw_heat_map

        heat = cost = ""
        try:
            if report.step_count >= _MIN_STEPS:
                picture = draw_heat_map(report.heat, language).png()
                heat = store_picture(self.home, REPORTS_FOLDER, picture, ".png")
            if sum(each.micros > 0 for each in report.days) >= _MIN_COST_DAYS:
                picture = draw_cost_chart(report.days).png()
                cost = store_picture(self.home, REPORTS_FOLDER, picture, ".png")
        except OSError as error:
            log.warning("cannot store the pictures of a report: %s", error)
        return ReportPictures(heat=heat, cost=cost)

    async def schedule(
        self, period: ReportPeriod, timing: CronTiming, *, title: str, by: Person, chat: ChatId
    ) -> Schedule:
        new = NewSchedule(
            kind=ScheduleKind.JOB,
            title=title,
            timing=timing,
            zone=self.builder.zone.key,
            body=ServiceBody(name=REPORT_SERVICE, options={"period": period.value}),
            owner_id=by.id,
            chat_id=chat,
            source=_source(period, by, chat),
            respects_quiet_hours=True,
        )
        async with self.db.write() as tx:
            made = await self.schedules.create(tx, new, new_id=self.new_id, now=self.now())
            changed = replace(made, timing=timing, zone=new.zone)
            updated = await self.schedules.update(
                tx,
                made,
                state=ScheduleState.ACTIVE,
                reason="",
                timing=timing,
                zone=new.zone,
                next_due=self.due_times.next_due(changed, self.now()),
            )
        self.on_change()
        assert updated is not None, "the row was read in this transaction"
        return updated

    async def stop(self, *, by: Person, chat: ChatId) -> Sequence[Schedule]:
        stopped = []
        for period in ReportPeriod:
            found = await self.schedules.find_by_source(_source(period, by, chat))
            if found is None or found.state is ScheduleState.ENDED:
                continue
            async with self.db.write() as tx:
                await self.schedules.update(
                    tx, found, state=ScheduleState.ENDED, reason=DELETED, next_due=None
                )
            stopped.append(found)
        self.on_change()
        return stopped

    async def run_scheduled(self, schedule: Schedule, due_at: datetime) -> None:
        """Send the report to the schedule's chat, unless nothing happened and nobody asked for it
        now. What its person may see is decided now."""
        period = _period(schedule)
        try:
            by = await self.people.get(schedule.owner_id)
        except NotFound as error:
            raise ServiceFailure("schedule.paused_person") from error
        report = await self.report(period, by=by, chat=schedule.chat_id, until=due_at)
        if report.is_quiet and not was_asked_for(due_at):
            return
        language = await self.language_of(schedule.chat_id, schedule.owner_id, schedule.title)
        card = report_card(
            report,
            await self.draw(report, language),
            catalog_for(language),
            zone=self.builder.zone,
            is_scheduled=True,
        )
        await self.courier.send(
            schedule.chat_id,
            card,
            key=f"report:{schedule.id}:{due_at.isoformat()}",
            urgency=DeliveryUrgency.NOTICE,
        )


def _source(period: ReportPeriod, by: Person, chat: ChatId) -> str:
    return f"report:{period}:{chat}:{by.id}"


def _period(schedule: Schedule) -> ReportPeriod:
    options: Any = schedule.body.options if isinstance(schedule.body, ServiceBody) else {}
    return ReportPeriod(options.get("period", ReportPeriod.DAY))
