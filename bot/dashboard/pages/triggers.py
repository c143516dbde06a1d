"""Triggers: what starts workflows by itself, when it did so last, and adding one."""

from __future__ import annotations

import hashlib
from typing import Any

from starlette.datastructures import FormData
from starlette.responses import RedirectResponse, Response

from bot.dashboard.pages.layout import render_page
from bot.dashboard.pages.workflows import PATH as WORKFLOWS
from bot.dashboard.problems import as_told
from bot.dashboard.request import DashboardRequest, form_source, form_text, new_source
from cards import formats
from cards.views.triggers import trigger_line
from handlers.errors import UserError
from handlers.middleware import explain_error
from handlers.ports_autonomy import TriggerView
from handlers.triggers import OWN_FIELDS, new_trigger
from handlers.workflow_inputs import split_named_values
from storage.records.triggers import TriggerKind
from storage.records.workflows import WorkflowRefused

PATH = f"{WORKFLOWS}/-/triggers"
_MAX_LISTED = 100
_MAX_NOTE = 200


async def change_triggers(request: DashboardRequest) -> Response:
    form = await request.form()
    triggers, prefix = request.services.triggers, form_text(form, "trigger")
    match form_text(form, "order"):
        case "add":
            return await _add(request, form)
        case "on" | "off" as order:
            await triggers.set_enabled(prefix, enabled=order == "on")
        case "remove":
            await triggers.remove(prefix)
        case "token":
            _, address = await triggers.renew_token(prefix)
            return await show_triggers(request, address=address)
        case _:
            raise UserError("form_incomplete", fields=request.words("dashboard.triggers.title"))
    return RedirectResponse(PATH, status_code=303)


async def _add(request: DashboardRequest, form: FormData) -> Response:
    """The address of a webhook is in this answer only. What was refused is kept in its form."""
    named = form_text(form, "kind")
    if named not in set(TriggerKind):
        raise UserError("form_incomplete", fields=request.words("dashboard.triggers.title"))
    kind = TriggerKind(named)
    filled = {name: form_text(form, name) for name in ("workflow", *OWN_FIELDS[kind], "inputs")}
    free, inputs = split_named_values(filled["inputs"])
    settings = {name: filled[name] for name in OWN_FIELDS[kind]}
    new = new_trigger(request.command(), kind, filled["workflow"], inputs | settings)
    if free:
        problem = request.words(
            "dashboard.triggers.inputs_format", text=formats.single_line(free, 60)
        )
        return await show_triggers(request, kind=kind, filled=filled, problem=problem)
    digest = hashlib.sha256(repr((kind, *filled.values())).encode()).hexdigest()[:12]
    began = request.now
    if await request.deps.first_time(f"{form_source(form)}:{digest}") < began:
        # Sent twice: it is there already.
        return RedirectResponse(PATH, status_code=303)
    try:
        _, address = await request.services.triggers.add(new)
    except (UserError, WorkflowRefused) as error:
        told = explain_error(as_told(error, request.words), request.words, "")
        problem = f"{told.title}. {told.hint}"
        return await show_triggers(request, kind=kind, filled=filled, problem=problem)
    if address:
        return await show_triggers(request, address=address)
    return RedirectResponse(PATH, status_code=303)


async def show_triggers(
    request: DashboardRequest,
    *,
    address: str = "",
    kind: TriggerKind | None = None,
    filled: dict[str, str] | None = None,
    problem: str = "",
) -> Response:
    """`address` is that of a webhook that was just made; `filled` is a form of this `kind` that was
    refused for this `problem`."""
    views = await request.services.triggers.list()
    catalog = await request.services.workflows.list_workflows()
    return render_page(
        request,
        "triggers",
        rows=[_row(each, request) for each in views[:_MAX_LISTED]],
        count=len(views),
        address=address,
        workflows=[each.name for each in catalog.workflows],
        forms=[
            {
                "kind": each.value,
                "own": OWN_FIELDS[each],
                "filled": filled if filled is not None and each is kind else {},
                "problem": problem if each is kind else "",
            }
            for each in TriggerKind
        ],
        new_source=new_source(),
        failure=(problem,) if problem else (),
    )


def _row(view: TriggerView, request: DashboardRequest) -> dict[str, Any]:
    trigger, last = view.trigger, view.last
    return {
        "id": trigger.id,
        "text": trigger_line(trigger, request.words),
        "inputs": " · ".join(f"{name}={text}" for name, text in trigger.inputs.items()),
        "enabled": trigger.enabled,
        "is_webhook": trigger.kind is TriggerKind.WEBHOOK,
        "fired_at": last.fired_at if last else None,
        "task_id": last.task_id if last else None,
        "note": formats.single_line(last.note, _MAX_NOTE) if last else "",
    }
