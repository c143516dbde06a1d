"""Workflows that come with the program, and workflows as files to take in and hand out."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from bot.dashboard.pages.layout import render_page
from bot.dashboard.pages.workflows import PATH, read_text
from bot.dashboard.request import DashboardRequest, form_source, form_text, new_source
from cards import formats
from cards.views.diagnostics import diagnostic_text
from cards.views.workflow_exchange import import_lines
from cards.views.workflows import input_line
from handlers.errors import UserError
from handlers.workflow_exchange import apply_import
from storage.records.workflows import WorkflowRefused

GALLERY = f"{PATH}/-/gallery"
IMPORT = f"{PATH}/-/import"
_MAX_FORM_BYTES = 4 * 1024 * 1024
_MAX_TITLE = 120
_VIA = "page"


async def show_gallery(request: DashboardRequest) -> Response:
    """All, and with `show` one of them with its diagram and a form to install it."""
    words, exchange = request.words, request.services.workflow_exchange
    found = await exchange.list_gallery(words.language)
    facts: dict[str, Any] = {"shown": None}
    if name := request.http.query_params.get("show", ""):
        item = await exchange.find_in_gallery(name, words.language)
        checked = await request.services.workflows.check(item.text, words.language)
        facts = {
            "shown": item.workflow,
            "svg": checked.svg,
            "inputs": [input_line(each, words) for each in item.workflow.inputs],
        }
    return render_page(
        request,
        "workflow_gallery",
        rows=[each.workflow for each in found],
        new_source=new_source(),
        **facts,
    )


async def install_from_gallery(request: DashboardRequest) -> Response:
    form = await request.form()
    name, as_name = form_text(form, "name"), form_text(form, "as_name")
    language = request.words.language
    item = await request.services.workflow_exchange.find_in_gallery(name, language)
    command = request.command(form_source(form))
    plan = await apply_import(command, item.document, via="gallery", as_name=as_name)
    return RedirectResponse(f"{PATH}/{quote(plan.name)}", status_code=303)


async def show_import(request: DashboardRequest) -> Response:
    return _import_page(request)


async def run_import(request: DashboardRequest) -> Response:
    """Shows what the document would do; with `order=import` does it."""
    form = await request.form(_MAX_FORM_BYTES)
    text, as_name = read_text(form), form_text(form, "as_name")
    if not text.strip():
        raise UserError("form_incomplete", fields=request.words("dashboard.workflow_import.text"))
    command = request.command(form_source(form))
    try:
        if form_text(form, "order") == "import":
            plan = await apply_import(
                command,
                text,
                via=_VIA,
                as_name=as_name,
                replace=bool(form_text(form, "replace")),
                expected=form_text(form, "hash"),
            )
            return RedirectResponse(f"{PATH}/{quote(plan.name)}", status_code=303)
        plan = await request.services.workflow_exchange.plan_import(text, as_name=as_name)
    except WorkflowRefused as refused:
        if not refused.errors:
            raise
        problems = [diagnostic_text(each, request.words) for each in refused.errors]
        return _import_page(request, text=text, as_name=as_name, problems=problems, status=422)
    return _import_page(
        request,
        text=text,
        as_name=as_name,
        plan=plan,
        lines="\n".join(import_lines(plan, request.words)),
    )


def _import_page(
    request: DashboardRequest,
    *,
    text: str = "",
    as_name: str = "",
    problems: list[str] | None = None,
    status: int = 200,
    **facts: Any,
) -> Response:
    facts = {"plan": None, "lines": "", **facts}
    return render_page(
        request,
        "workflow_import",
        text=text,
        as_name=as_name,
        problems=problems or [],
        new_source=new_source(),
        **facts,
        status_code=status,
    )


async def send_export(request: DashboardRequest) -> Response:
    """The workflow with all that it runs, as a file."""
    name = request.http.path_params["name"]
    found = await request.services.workflow_exchange.export(name, with_dependencies=True)
    file = quote(f"{formats.single_line(found.name, _MAX_TITLE)}.workflow.yaml", safe="")
    headers = {
        "cache-control": "no-store",
        "content-disposition": f"attachment; filename*=utf-8''{file}",
        "x-content-type-options": "nosniff",
    }
    return Response(found.text, media_type="application/yaml", headers=headers)
