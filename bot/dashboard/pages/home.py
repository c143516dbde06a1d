"""The first page: what runs, what waits for you, what today costs, and what is wrong."""

from __future__ import annotations

from starlette.responses import Response

from bot.dashboard.pages.layout import render_page
from bot.dashboard.request import DashboardRequest
from cards import formats
from cards.views.self_checks import finding_text
from cards.views.system import alert_text
from storage.records.system import SystemStatus
from storage.records.tasks import TaskStatus
from storage.records.usage import CostPeriod, CostQuery

_MAX_TASKS = 20
_MAX_APPROVALS = 20


async def show_home(request: DashboardRequest) -> Response:
    services, who = request.services, request.person
    running = await services.tasks.page(
        by=who, chat=request.chat.id, status=TaskStatus.RUNNING, page=1, size=_MAX_TASKS
    )
    waiting = await services.approvals.list_waiting(by=who, chat=None)
    costs = await services.costs.report(
        by=who, chat=request.chat.id, query=CostQuery(period=CostPeriod.TODAY)
    )
    status = await services.system.status(by=who)
    return render_page(
        request,
        "home",
        running=running.tasks,
        running_count=running.total,
        waiting=waiting[:_MAX_APPROVALS],
        waiting_count=len(waiting),
        cost_today=formats.spent_cost(costs.today, request.words),
        tokens_today=formats.spent_tokens(costs.today, request.words),
        problems=await _problems(request, status),
        has_model=status.model.name != "offline",
    )


async def _problems(request: DashboardRequest, status: SystemStatus) -> list[str]:
    words = request.words
    channels = [alert_text(each, words) for each in status.channels if each.alert]
    model = [words.get_or_literal(status.model.problem)] if status.model.problem else []
    incidents = await request.services.self_check.list_open()
    return [*channels, *model, *(finding_text(each.finding, words) for each in incidents)]
