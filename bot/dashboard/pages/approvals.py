"""Approvals: what waits for you in full, your decisions, and what was decided of late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import RedirectResponse, Response

from bot.dashboard.api.approvals import find_approval
from bot.dashboard.pages.input_fields import field_rows, field_texts
from bot.dashboard.pages.layout import render_page
from bot.dashboard.request import DashboardRequest, form_source, form_text, new_source
from cards import formats
from cards.actions import DecideApproval
from cards.render.web import render
from cards.views.approvals import (
    approval_card,
    decided_text,
    decision_buttons,
    form_of,
    question_options,
)
from handlers.approvals import already_settled_reply, check_may_decide, settle_approval
from handlers.errors import UserError
from handlers.workflow_inputs import WorkflowInputValues, parse_inputs
from storage.errors import WrongState
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import PersonId
from storage.records.tasks import TaskId

PATH = "/dashboard/approvals"
_MAX_LISTED = 100
_MAX_SETTLED = 20
_MAX_SHOWN_BYTES = 12_000
"""Of all cards in the list; further requests are only named there."""
_MAX_TITLE = 120
_MAX_AT_TASK = 10


async def show_approvals(request: DashboardRequest) -> Response:
    services, who = request.services, request.person
    waiting = await services.approvals.list_waiting(by=who, chat=None)
    shown: list[dict[str, Any]] = []
    size = 0
    for approval in waiting[:_MAX_LISTED]:
        facts = await _facts(approval, request) if size < _MAX_SHOWN_BYTES else {}
        size += len(facts.get("card", "").encode())
        is_full = bool(facts) and size <= _MAX_SHOWN_BYTES
        shown.append(facts if is_full else _row(approval, request))
    settled = await services.approvals.list_settled(by=who, limit=_MAX_SETTLED)
    names = await _names(request, settled)
    return render_page(
        request,
        "approvals",
        waiting=shown,
        waiting_count=len(waiting),
        settled=[
            {
                **_row(each, request),
                "outcome": decided_text(each, request.words),
                "at": each.decided_at or each.expires_at,
                "by": names.get(each.decided_by, "") if each.decided_by else "",
            }
            for each in settled
        ],
        new_source=new_source(),
    )


async def show_approval(request: DashboardRequest) -> Response:
    approval = await find_approval(request, request.http.path_params["approval_id"])
    return render_page(
        request,
        "approval",
        each=await _facts(approval, request),
        notice="",
        new_source=new_source(),
    )


async def decide(request: DashboardRequest) -> Response:
    """Values that don't fit their fields, and decisions that come too late, are told on the
    request's page."""
    form = await request.form()
    approval = await find_approval(request, request.http.path_params["approval_id"])
    command, decision, reason = request.command(form_source(form)), form_text(form, "decision"), ""
    if decision == "answer":
        reason = form_text(form, "option") or form_text(form, "reason")
        if approval.kind is not ApprovalKind.QUESTION or not reason:
            raise UserError("form_incomplete", fields=request.words("tools.answer"))
        approve, scope = True, ""
    else:
        offered = {_value(each) for each in _decisions(approval, request)}
        if decision not in offered:
            raise UserError("form_incomplete", fields=request.words("dashboard.approvals.decision"))
        approve, scope = decision != "reject", decision.partition(":")[2]
        reason = form_text(form, "reason")
    await check_may_decide(command, approval.id, scope)
    values = None
    if approve and (fields := form_of(approval)):
        texts = field_texts(form, fields)
        parsed = parse_inputs(fields, texts)
        if approval.state is ApprovalState.WAITING and not parsed.is_complete:
            return await _refuse(approval, request, 422, filled=texts, refused=parsed)
        values = parsed.values
    try:
        await settle_approval(
            command, approval, approve=approve, reason=reason, scope=scope, values=values
        )
    except WrongState:
        late = await already_settled_reply(command, approval.id)
        settled = await request.services.approvals.find(approval.id)
        return await _refuse(settled, request, 409, notice=late.toast)
    at_task = bool(form_text(form, "at_task")) and approval.task_id
    path = f"/dashboard/tasks/{approval.task_id}" if at_task else PATH
    return RedirectResponse(path, status_code=303)


async def waiting_for_task(request: DashboardRequest, task_id: TaskId) -> Sequence[dict[str, Any]]:
    """List what waits for the reader's decision at this task, for `decision.html`."""
    waiting = await request.services.approvals.list_waiting(by=request.person, chat=None)
    own = [each for each in waiting if each.task_id == task_id][:_MAX_AT_TASK]
    return [await _facts(each, request) | {"at_task": True} for each in own]


async def _refuse(
    approval: Approval,
    request: DashboardRequest,
    status: int,
    *,
    notice: str = "",
    filled: Mapping[str, str] | None = None,
    refused: WorkflowInputValues | None = None,
) -> Response:
    facts = await _facts(approval, request)
    if refused is not None:
        facts["fields"] = field_rows(form_of(approval), request.words, filled, refused)
    return render_page(
        request, "approval", each=facts, notice=notice, new_source=new_source(), status_code=status
    )


async def _facts(approval: Approval, request: DashboardRequest) -> dict[str, Any]:
    """The complete card, and the possible decisions."""
    words = request.words
    names = await _names(request, (approval,))
    card = approval_card(
        approval,
        words,
        zone=request.deps.zone,
        decider=names.get(approval.decided_by, "") if approval.decided_by else "",
        deciders=[names[each] for each in approval.approvers],
        has_controls=False,
    )
    waits = approval.state is ApprovalState.WAITING and approval.can_be_decided_by(request.person)
    asks = approval.kind is ApprovalKind.QUESTION
    buttons = _decisions(approval, request) if waits else ()
    return {
        **_row(approval, request),
        "card": render(card, words).html,
        "options": question_options(approval) if asks and waits else (),
        "asks": asks,
        "fields": field_rows(form_of(approval), words) if waits else (),
        "buttons": [
            {"value": _value(each), "label": each[0]}
            for each in buttons
            if not asks or not each[1].approve
        ],
    }


def _decisions(
    approval: Approval, request: DashboardRequest
) -> Sequence[tuple[str, DecideApproval]]:
    return [
        (each.label, each.action)
        for each in decision_buttons(approval, request.words)
        if isinstance(each.action, DecideApproval)
    ]


def _value(decision: tuple[str, DecideApproval]) -> str:
    _, action = decision
    if not action.approve:
        return "reject"
    return f"approve:{action.scope}" if action.scope else "approve"


def _row(approval: Approval, request: DashboardRequest) -> dict[str, Any]:
    return {
        "id": approval.id,
        "kind": request.words(f"approval.kinds.{approval.kind}"),
        "title": formats.single_line(approval.title, _MAX_TITLE) or approval.id,
        "task_id": approval.task_id,
        "created_at": approval.created_at,
        "card": "",
        "at_task": False,
    }


async def _names(request: DashboardRequest, approvals: Sequence[Approval]) -> dict[PersonId, str]:
    """The names of those who may decide or have decided."""
    found = {each for approval in approvals for each in (*approval.approvers, approval.decided_by)}
    people = request.services.people
    return {each: (await people.get(each)).name for each in found if each is not None}
