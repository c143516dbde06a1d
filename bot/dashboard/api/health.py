"""How Shiftboss is doing."""

from __future__ import annotations

from datetime import datetime

from bot.dashboard.api.routing import ApiCall, ApiModel, ApiRoutes
from cards.views.self_checks import finding_text, next_step_text
from cards.views.system import alert_text
from storage.records.people import Channel, PersonRole

routes = ApiRoutes("health")


class ChannelModel(ApiModel):
    """`problem` is empty while the channel works."""

    channel: Channel
    problem: str


class IncidentModel(ApiModel):
    """A problem that lasts, with what to do, in the language of the answer."""

    id: int
    check: str
    problem: str
    next_step: str
    opened_at: datetime


class HealthModel(ApiModel):
    version: str
    started_at: datetime | None
    memory_bytes: int
    model: str
    model_problem: str
    channels: list[ChannelModel]
    slots: int
    tasks: dict[str, int]
    waiting_approvals: int
    queued_messages: int
    sandbox: str
    last_backup_at: datetime | None
    incidents: list[IncidentModel]


@routes("GET", "/health", role=PersonRole.OWNER)
async def show_health(call: ApiCall) -> HealthModel:
    """Channels, model, tasks and problems that last (owners)"""
    request, words = call.request, call.request.words
    status = await request.services.system.status(by=request.person)
    incidents = await request.services.self_check.list_open()
    return HealthModel(
        version=status.version,
        started_at=status.started_at,
        memory_bytes=status.memory_bytes,
        model=status.model.name,
        model_problem=words.get_or_literal(status.model.problem) if status.model.problem else "",
        channels=[
            ChannelModel(
                channel=each.channel, problem=alert_text(each, words) if each.alert else ""
            )
            for each in status.channels
        ],
        slots=status.slots,
        tasks={str(kind): n for kind, n in status.counts.items()},
        waiting_approvals=status.waiting_approvals,
        queued_messages=status.queued_messages,
        sandbox=status.sandbox,
        last_backup_at=status.backup.last_at if status.backup else None,
        incidents=[
            IncidentModel(
                id=each.id,
                check=each.check_name,
                problem=finding_text(each.finding, words),
                next_step=next_step_text(each.finding, words),
                opened_at=each.opened_at,
            )
            for each in incidents
        ],
    )
