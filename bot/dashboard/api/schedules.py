"""Schedules: reminders and jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, assert_never

from pydantic import AwareDatetime, StringConstraints

from bot.dashboard.api.routing import (
    ApiCall,
    ApiModel,
    ApiRoutes,
    PageQuery,
    Words,
    read_time_cursor,
    time_cursor,
)
from cards.views.timings import timing_text
from handlers.errors import UserError
from handlers.ports_autonomy import ScheduleView
from handlers.schedules import propose_request
from storage.records.schedules import FiringState, ScheduleId, ScheduleKind, ScheduleState

routes = ApiRoutes("schedules")
_LOG_LINES = 50


class ScheduleModel(ApiModel):
    """`timing` is in words, in the language of the answer."""

    id: str
    kind: ScheduleKind
    state: ScheduleState
    title: str
    timing: str
    zone: str
    owner_id: str
    next_due: datetime | None
    upcoming: list[datetime]
    created_at: datetime


class ScheduleList(ApiModel):
    """`next` is the cursor of the next page, null on the last one."""

    schedules: list[ScheduleModel]
    next: str | None


class NewScheduleBody(ApiModel):
    """`text` says what and when, such as `every weekday at 8:30 send me the news` or `remind me
    tomorrow at 9 to call Ann`. Without `confirm` it is only proposed and fires when confirmed."""

    text: Annotated[Words, StringConstraints(min_length=1, max_length=2_000, pattern=r"\S")]
    confirm: bool = True


class ChangeBody(ApiModel):
    """`due_at` is the firing to skip, one of `upcoming`; without it the next one. A firing is
    skipped once, however often it is asked."""

    action: Literal["confirm", "pause", "resume", "run", "skip"]
    due_at: AwareDatetime | None = None


class FiringModel(ApiModel):
    id: int
    due_at: datetime
    state: FiringState
    fired_at: datetime
    ended_at: datetime | None
    task_id: str | None
    note: str


class FiringList(ApiModel):
    firings: list[FiringModel]


@routes("GET", "/schedules")
async def list_schedules(call: ApiCall, query: PageQuery) -> ScheduleList:
    """Schedules that you may see, newest first"""
    request = call.request
    found = await request.services.schedules.list_newest(
        by=request.person,
        chat=request.chat.id,
        before=read_time_cursor(query.cursor),
        limit=query.limit + 1,
    )
    shown = found[: query.limit]
    last = shown[-1].schedule if len(found) > len(shown) else None
    return ScheduleList(
        schedules=[_model(call, each) for each in shown],
        next=time_cursor(last.created_at, last.id) if last else None,
    )


@routes("POST", "/schedules", status=201)
async def create_schedule(call: ApiCall, body: NewScheduleBody) -> ScheduleModel:
    """Create a reminder or job from plain words"""
    asked = call.request.services.schedules.read_request(body.text)
    if asked is None or not asked.subject.strip():
        raise UserError("usage", command="schedule", usage=call.request.words("help.remind.usage"))
    proposed = await propose_request(call.command, asked)
    view = await _find(call, proposed.schedule.id)
    if body.confirm and view.schedule.state is ScheduleState.PROPOSED:
        request = call.request
        view = await request.services.schedules.confirm(
            view.schedule.id, by=request.person, chat=request.chat.id
        )
    return _model(call, view)


@routes("GET", "/schedules/{schedule_id}")
async def show_schedule(call: ApiCall, schedule_id: str) -> ScheduleModel:
    """A schedule with its next firings"""
    return _model(call, await _find(call, schedule_id))


@routes("POST", "/schedules/{schedule_id}/actions")
async def change_schedule(call: ApiCall, schedule_id: str, body: ChangeBody) -> ScheduleModel:
    """Confirm, pause, resume, run now, or skip the next time"""
    request, schedules = call.request, call.request.services.schedules
    known = (await _find(call, schedule_id)).schedule.id
    by, chat = request.person, request.chat.id
    match body.action:
        case "confirm":
            view = await schedules.confirm(known, by=by, chat=chat)
        case "pause":
            view = await schedules.pause(known, by=by, chat=chat)
        case "resume":
            view = await schedules.resume(known, by=by, chat=chat)
        case "run":
            view = await schedules.run_now(known, by=by, chat=chat, at=await call.first_time())
        case "skip":
            view = await schedules.skip_next(
                known, by=by, chat=chat, at=await call.first_time(), due_at=body.due_at
            )
        case _:
            assert_never(body.action)
    return _model(call, view)


@routes("DELETE", "/schedules/{schedule_id}")
async def delete_schedule(call: ApiCall, schedule_id: str) -> None:
    """Delete a schedule; tasks that it made stay"""
    request = call.request
    known = (await _find(call, schedule_id)).schedule.id
    await request.services.schedules.delete(known, by=request.person, chat=request.chat.id)


@routes("GET", "/schedules/{schedule_id}/firings")
async def list_firings(call: ApiCall, schedule_id: str) -> FiringList:
    """The newest fifty firings"""
    view = await _find(call, schedule_id)
    log = await call.request.services.schedules.log(view.schedule, _LOG_LINES)
    return FiringList(firings=[FiringModel.model_validate(firing) for firing, _ in log])


async def _find(call: ApiCall, schedule_id: str) -> ScheduleView:
    request = call.request
    return await request.services.schedules.find(
        ScheduleId(schedule_id), by=request.person, chat=request.chat.id
    )


def _model(call: ApiCall, view: ScheduleView) -> ScheduleModel:
    made, request = view.schedule, call.request
    return ScheduleModel(
        id=made.id,
        kind=made.kind,
        state=made.state,
        title=made.title,
        timing=timing_text(made.timing, request.words, request.deps.zone),
        zone=made.zone,
        owner_id=made.owner_id,
        next_due=made.next_due,
        upcoming=list(view.upcoming),
        created_at=made.created_at,
    )
