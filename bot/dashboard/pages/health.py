"""Health: the self-check, problems that last, channels, the doctor, and the newest log lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import RedirectResponse, Response

from bot.dashboard.pages.layout import render_page
from bot.dashboard.request import DashboardRequest, form_source, form_text, new_source
from cards import formats
from cards.render.web import render
from cards.views.self_checks import GRADE_SYMBOLS, finding_text, next_step_text, repair_line
from cards.views.system import status_card
from handlers.errors import UserError
from handlers.self_check import start_repair
from storage.errors import NotFound
from storage.records.autonomy import HealthReport, Incident

_PATH = "/dashboard/health"
_MAX_LINES = 60
_MAX_LINE = 240
_MAX_INCIDENTS = 30
_MAX_ID = 2**62


async def show_health(request: DashboardRequest) -> Response:
    return await _render(request, examined=None)


async def act_on_health(request: DashboardRequest) -> Response:
    form = await request.form()
    command = request.command(form_source(form))
    match form_text(form, "order"):
        case "check":
            await request.services.self_check.check()
        case "doctor" | "doctor_fix" as word:
            report = await request.services.doctor.examine(
                by=request.person, fix=word == "doctor_fix"
            )
            return await _render(request, examined=report)
        case "repair":
            which = form_text(form, "which")
            if not (which.isascii() and which.isdecimal() and int(which[:20]) < _MAX_ID):
                raise NotFound("page", which[:20])
            reply = await start_repair(command, int(which))
            if task_id := (reply.data or {}).get("task"):
                return RedirectResponse(f"/dashboard/tasks/{task_id}", status_code=303)
        case _:
            raise UserError("form_incomplete", fields=request.words("dashboard.health.title"))
    return RedirectResponse(_PATH, status_code=303)


async def _render(request: DashboardRequest, *, examined: HealthReport | None) -> Response:
    services, words = request.services, request.words
    status = await services.system.status(by=request.person)
    card = status_card(status, words, now=request.now, zone=request.deps.zone)
    reports = await services.self_check.list_reports(1)
    incidents = await services.self_check.list_open()
    lines = await request.deps.read_log(_MAX_LINES)
    return render_page(
        request,
        "health",
        new_source=new_source(),
        status=render(card, words).html,
        report=_report(reports[0], request) if reports else None,
        examined=_report(examined, request) if examined else None,
        incidents=[_incident(each, request) for each in incidents[:_MAX_INCIDENTS]],
        log=[formats.truncate(formats.clean_line(each), _MAX_LINE) for each in lines],
    )


def _report(report: HealthReport, request: DashboardRequest) -> dict[str, Any]:
    words = request.words
    return {
        "at": report.at,
        "score": report.score,
        "grade": words(f"self.grade.{report.grade}"),
        "symbol": GRADE_SYMBOLS[report.grade],
        "repairs": [repair_line(each, words) for each in report.repairs],
        "checks": [
            {
                "name": words(f"self.check.{each.name}"),
                "symbol": GRADE_SYMBOLS[each.grade],
                "score": each.score,
                "findings": _findings(each.findings, request),
            }
            for each in report.results
        ],
    }


def _findings(findings: Sequence[Any], request: DashboardRequest) -> Sequence[str]:
    """Remarks have no next step."""
    words = request.words
    return [
        f"{finding_text(each, words)} → {next_step_text(each, words)}"
        if each.points
        else finding_text(each, words)
        for each in findings
    ]


def _incident(incident: Incident, request: DashboardRequest) -> dict[str, Any]:
    return {
        "id": incident.id,
        "problem": finding_text(incident.finding, request.words),
        "next_step": next_step_text(incident.finding, request.words),
        "since": incident.opened_at,
        "task_id": incident.task_id,
        "asks_task": incident.finding.asks_task and incident.task_id is None,
    }
