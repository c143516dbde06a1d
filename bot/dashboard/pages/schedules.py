"""Schedules: what is planned, the next four weeks, what has fired, and adding one by words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from starlette.datastructures import FormData
from starlette.responses import RedirectResponse, Response

from bot.dashboard.pages.layout import render_page
from bot.dashboard.request import DashboardRequest, form_source, form_text, new_source
from cards import formats
from cards.render.web import render
from cards.views.schedules import due_text, firing_outcome, schedule_card
from cards.views.timings import timing_text
from handlers.errors import UserError
from handlers.ports_autonomy import ScheduleView, TimedRequest
from handlers.schedules import change_schedule, propose_request
from storage.errors import WrongState
from storage.records.schedules import OneTime, Schedule, ScheduleId, ScheduleState

PATH = "/dashboard/schedule"
_DAYS = 28
_WEEK = 7
_ROWS = 5
"""Of the calendar: four weeks touch five."""
_PAGE_SIZE = 20
_MAX_ENTRIES = 3
"""On one day of the calendar; more are counted."""
_MAX_SHORT_TITLE = 40
_MAX_TITLE = 120
_MAX_TEXT = 2_000
_LOGGED = 50
_SHOWN_FIRINGS = 3
_MAX_AGE = timedelta(hours=1)
_CHANGES = {"confirm", "pause", "resume", "run", "skip", "delete"}


async def show_schedules(request: DashboardRequest) -> Response:
    today = request.now.astimezone(request.deps.zone).date()
    until = datetime.combine(today + timedelta(days=_DAYS), datetime.min.time(), request.deps.zone)
    views = await request.services.schedules.list(
        by=request.person, chat=request.chat.id, until=until
    )
    last = max(0, len(views) - 1) // _PAGE_SIZE
    page = min(last, request.number("page"))
    frequent = [each for each in views if each.more_until]
    return render_page(
        request,
        "schedules",
        rows=[_row(each, request) for each in views[page * _PAGE_SIZE :][:_PAGE_SIZE]],
        count=len(views),
        newer=page - 1 if page else None,
        later=page + 1 if page < last else None,
        weekdays=request.words("schedule.weekdays").split(),
        weeks=_weeks([each for each in views if not each.more_until], today, request.deps.zone),
        frequent=[_row(each, request) for each in frequent[:_PAGE_SIZE]],
        new_source=new_source(),
    )


async def add_schedule(request: DashboardRequest) -> Response:
    """Propose a schedule; the next page shows what was understood."""
    form = await request.form()
    text, schedules = form_text(form, "text")[:_MAX_TEXT], request.services.schedules
    if not text:
        raise UserError("form_incomplete", fields=request.words("dashboard.schedules.text"))
    asked = schedules.read_request(text)
    if asked is None:
        timing, subject = schedules.split_timing(text)
        asked = TimedRequest(timing=timing, subject=subject, asks_reminder=False)
    if not asked.subject.strip():
        raise UserError("form_incomplete", fields=request.words("dashboard.schedules.what"))
    view = await propose_request(request.command(form_source(form)), asked)
    return RedirectResponse(f"{PATH}/{view.schedule.id}", status_code=303)


async def show_schedule(request: DashboardRequest) -> Response:
    view = await _find(request)
    words, schedule = request.words, view.schedule
    log = await request.services.schedules.log(schedule, _LOGGED)
    return render_page(
        request,
        "schedule",
        schedule=schedule,
        title_text=formats.single_line(schedule.title, _MAX_TITLE),
        card=render(schedule_card(schedule, view.upcoming, words), words).html,
        orders=_orders(schedule),
        proposed=schedule.state is ScheduleState.PROPOSED,
        firings=[
            {
                "due_at": firing.due_at,
                "due": due_text(firing.due_at, schedule, words),
                "outcome": firing_outcome(firing, task, words),
                "task_id": firing.task_id,
            }
            for firing, task in log
        ],
        new_source=new_source(),
        asked_at=request.now.isoformat(),
        due_at=view.upcoming[0].isoformat() if view.upcoming else "",
    )


async def steer_schedule(request: DashboardRequest) -> Response:
    view = await _find(request)
    form = await request.form()
    order, known = form_text(form, "order"), view.schedule.id
    if view.schedule.state is ScheduleState.ENDED:
        raise WrongState("schedule", known, view.schedule.state)
    if order == "decline":
        await request.services.schedules.decline(known, by=request.person, chat=request.chat.id)
    elif order in _CHANGES:
        command = request.command(form_source(form))
        heard_at = _page_time(form, request.now)
        await change_schedule(
            replace(command, heard_at=heard_at), order, known, due_at=_parse_time(form, "due_at")
        )
    else:
        raise UserError("form_incomplete", fields=request.words("dashboard.schedules.orders"))
    gone = order in {"decline", "delete"}
    return RedirectResponse(PATH if gone else f"{PATH}/{known}", status_code=303)


def _orders(schedule: Schedule) -> Sequence[str]:
    """The actions that the schedule's card offers."""
    match schedule.state:
        case ScheduleState.PROPOSED:
            return ("confirm", "decline")
        case ScheduleState.ACTIVE if isinstance(schedule.timing, OneTime):
            return ("run", "delete")
        case ScheduleState.ACTIVE:
            return ("pause", "run", "skip", "delete")
        case ScheduleState.PAUSED:
            return ("resume", "run", "delete")
        case _:
            return ()


def _row(view: ScheduleView, request: DashboardRequest) -> dict[str, Any]:
    schedule, words = view.schedule, request.words
    paused = schedule.state is ScheduleState.PAUSED
    return {
        "id": schedule.id,
        "title": formats.single_line(schedule.title, _MAX_TITLE),
        "when": timing_text(schedule.timing, words, ZoneInfo(schedule.zone)),
        "state": words("schedule.state_paused") if paused else "",
        "next": [due_text(each, schedule, words) for each in view.upcoming[:_SHOWN_FIRINGS]],
        "last": firing_outcome(view.last, view.last_task, words) if view.last else "",
    }


def _weeks(
    views: Sequence[ScheduleView], today: date, zone: ZoneInfo
) -> Sequence[Sequence[dict[str, Any]]]:
    """The days of the calendar by weeks, with what fires on each."""
    by_day = defaultdict[date, list[tuple[datetime, Schedule]]](list)
    for view in views:
        for due in view.upcoming:
            by_day[due.astimezone(zone).date()].append((due.astimezone(zone), view.schedule))
    monday = today - timedelta(days=today.weekday())
    weeks: list[list[dict[str, Any]]] = []
    for row in range(_ROWS):
        days = [monday + timedelta(days=row * _WEEK + n) for n in range(_WEEK)]
        weeks.append([_day(each, today, _in_order(by_day[each])) for each in days])
    return [week for week in weeks if any(day["shown"] for day in week)]


def _in_order(
    firings: Sequence[tuple[datetime, Schedule]],
) -> Sequence[tuple[datetime, Schedule]]:
    return sorted(firings, key=lambda each: (each[0], each[1].id))


def _day(day: date, today: date, firings: Sequence[tuple[datetime, Schedule]]) -> dict[str, Any]:
    return {
        "date": day.isoformat(),
        "text": day.strftime("%m-%d"),
        "shown": today <= day < today + timedelta(days=_DAYS),
        "is_today": day == today,
        "entries": [
            {
                "time": at.strftime("%H:%M"),
                "id": schedule.id,
                "title": formats.single_line(schedule.title, _MAX_SHORT_TITLE),
            }
            for at, schedule in firings[:_MAX_ENTRIES]
        ],
        "more": max(0, len(firings) - _MAX_ENTRIES),
    }


def _page_time(form: FormData, now: datetime) -> datetime:
    """The time at which the page was created, so that a form that is sent twice runs once; now if
    that time is not recent."""
    at = _parse_time(form, "asked_at")
    return at if at is not None and now - _MAX_AGE <= at <= now else now


def _parse_time(form: FormData, name: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(form_text(form, name))
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


async def _find(request: DashboardRequest) -> ScheduleView:
    """Raises NotFound also for one that may not be seen."""
    wanted = ScheduleId(request.http.path_params["schedule_id"])
    return await request.services.schedules.find(wanted, by=request.person, chat=request.chat.id)
