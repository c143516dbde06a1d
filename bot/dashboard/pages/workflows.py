"""Workflows: the list with their last runs, a page for each, and the editor."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from starlette.datastructures import FormData
from starlette.responses import RedirectResponse, Response

from bot.dashboard.pages.input_fields import field_rows, field_texts
from bot.dashboard.pages.layout import render_page
from bot.dashboard.request import DashboardRequest, form_source, form_text, new_source
from cards import formats
from cards.actions import SubmitWorkflowInputs
from cards.model import Card
from cards.render.web import render
from cards.views.diagnostics import MAX_DIAGNOSTICS, diagnostic_text, in_text_order
from cards.views.dry_runs import cases_card, dry_run_card
from cards.views.prompts import prompt_diff_card
from cards.views.task_parts import STATUS_ICONS, priority_label
from cards.views.workflow_versions import can_roll_back, version_summary
from cards.views.workflows import invalid_workflow_card
from handlers.errors import UserError
from handlers.workflow_inputs import WorkflowInputValues, parse_inputs
from handlers.workflow_versions import (
    find_texts,
    parse_version,
    restore_version,
    store_workflow,
)
from handlers.workflows import (
    refusal_error,
    remove_workflow,
    start_workflow,
)
from storage.records.prompt_versions import PromptVersion, WorkflowVersions
from storage.records.tasks import Task, TaskPriority
from storage.records.workflows import (
    Diagnostic,
    InvalidWorkflowFile,
    NamedWorkflow,
    WorkflowCheck,
    WorkflowRefusalReason,
    WorkflowRefused,
    WorkflowSource,
)

PATH = "/dashboard/workflows"
NEW = "-"
"""Stands for a new one in an address: no workflow can have this name."""
MAX_TEXT = 100_000
"""Characters that the editor takes: a check of them takes about a second at most."""
_MAX_FORM_BYTES = 2 * 1024 * 1024
_PAGE_SIZE = 50
_MAX_BROKEN = 20
_FAULTS_OF_ONE = 5
_RUNS = 20
_MAX_TITLE = 120
_MAX_ABOUT = 240
_MAX_DESCRIPTION = 2_000
_VERSIONS = 5
_VIA = "page"


async def show_workflows(request: DashboardRequest) -> Response:
    catalog = await request.services.workflows.list_workflows()
    last = max(0, len(catalog.workflows) - 1) // _PAGE_SIZE
    page = min(last, request.number("page"))
    shown = catalog.workflows[page * _PAGE_SIZE :][:_PAGE_SIZE]
    runs = await _list_runs(request, [each.name for each in shown], 1)
    return render_page(
        request,
        "workflows",
        rows=[_row(each, runs.get(each.name, ()), request) for each in shown],
        count=len(catalog.workflows),
        broken=[_broken_row(each, request) for each in catalog.invalid[:_MAX_BROKEN]],
        foreign=[
            {"file": each.file, "text": diagnostic_text(each, request.words)}
            for each in catalog.foreign[:_MAX_BROKEN]
        ],
        left_out=catalog.left_out + max(0, len(catalog.invalid) - _MAX_BROKEN),
        newer=page - 1 if page else None,
        later=page + 1 if page < last else None,
        folder=catalog.folder,
    )


async def change_workflow(request: DashboardRequest) -> Response:
    """Runs it, dry-runs it, runs its test cases or deletes it."""
    name, form = request.http.path_params["name"], await request.form()
    command = request.command(form_source(form))
    match form_text(form, "order"):
        case "run":
            return await _run(request, name, form)
        case "dry-run":
            return await _dry_run(request, name, form)
        case "test":
            report = await request.services.dry_runs.test(name, request.words.language)
            return await show_workflow(request, tried=cases_card(report, request.words))
        case "delete" if form_text(form, "sure"):
            await remove_workflow(command, name, based_on=form_text(form, "hash") or "?")
            return RedirectResponse(PATH, status_code=303)
        case _:
            raise UserError("form_incomplete", fields=request.words("dashboard.workflow.sure"))


async def show_versions(request: DashboardRequest) -> Response:
    """All versions, with what `new` changes in `old`, or in the version it was made from."""
    name = request.http.path_params["name"]
    history = await request.services.workflow_history.list_versions(name)
    numbers = [each for key in ("old", "new") if (each := request.number(key))]
    old, new = find_texts(history, numbers)
    diff = prompt_diff_card(name, old, new, request.words)
    return render_page(
        request,
        "workflow_versions",
        file_name=name,
        versions=[_version_row(history, each, request) for each in history.versions],
        exists=history.in_use is not None,
        diff=render(diff, request.words).html,
        old=old[0],
        new=new[0],
        new_source=new_source(),
    )


async def restore_from_page(request: DashboardRequest) -> Response:
    name, form = request.http.path_params["name"], await request.form()
    number = parse_version(name, form_text(form, "version"))
    await restore_version(request.command(form_source(form)), name, number, via=_VIA)
    return RedirectResponse(f"{PATH}/{quote(name)}", status_code=303)


async def show_editor(request: DashboardRequest) -> Response:
    """For a new one, `copy` names the workflow that it begins as; for another, `version` the number
    of a version whose text is put in."""
    name, query = request.http.path_params["name"], request.http.query_params
    if name == NEW:
        copied = query.get("copy", "")
        text = (await _read(request, copied)).text if copied else ""
        text = text or request.words("dashboard.workflow_editor.starter")
        return await _editor_page(request, name, text)
    source = await _read(request, name)
    text = source.text
    if number := request.number("version"):
        version = (await request.services.workflow_history.list_versions(name)).find(number)
        text = version.content if version else text
    return await _editor_page(
        request, name, text, based_on=source.hash, unsaved=text != source.text
    )


async def save_from_editor(request: DashboardRequest) -> Response:
    """Answers `check` with the same page, `live` with its judgement alone, and `save` with the
    page of the workflow, or with the reason against it. The text is kept in any case."""
    name, form = request.http.path_params["name"], await request.form(_MAX_FORM_BYTES)
    text, based_on = read_text(form), form_text(form, "hash")
    order, named = form_text(form, "order"), form_text(form, "name") if name == NEW else name
    if order == "live":
        return render_page(request, "workflow_check", **await _judge(request, text))
    draft: dict[str, Any] = {"based_on": based_on, "named": named, "unsaved": True}
    if order != "save" or len(text) > MAX_TEXT:
        return await _editor_page(
            request, name, text, status=422 if order == "save" else 200, **draft
        )
    try:
        await store_workflow(
            request.command(form_source(form)),
            named,
            text,
            via=_VIA,
            reason=formats.single_line(form_text(form, "reason"), _MAX_ABOUT),
            based_on=based_on,
        )
    except WorkflowRefused as refused:
        return await _refuse(request, name, text, refused, draft)
    return RedirectResponse(f"{PATH}/{quote(named)}", status_code=303)


async def _refuse(
    request: DashboardRequest,
    name: str,
    text: str,
    refused: WorkflowRefused,
    draft: dict[str, Any],
) -> Response:
    match refused.reason:
        case WorkflowRefusalReason.BROKEN:
            return await _editor_page(request, name, text, status=422, **draft)
        case WorkflowRefusalReason.CHANGED | WorkflowRefusalReason.EXISTS if name != NEW:
            try:
                theirs = await _read(request, name)
            except WorkflowRefused as gone:
                if gone.reason is not WorkflowRefusalReason.UNKNOWN:
                    raise
                theirs = None
            draft["based_on"] = theirs.hash if theirs else ""
            key = "changed" if theirs else "deleted"
            problem = request.words(f"dashboard.workflow_editor.{key}")
            if refused.detail:
                problem += " " + request.words("dashboard.workflow_editor.kept", n=refused.detail)
            other = theirs.text if theirs else ""
            return await _editor_page(
                request, name, text, status=409, problem=problem, theirs=other, **draft
            )
        case WorkflowRefusalReason.EXISTS:
            problem = request.words("dashboard.workflow_editor.taken")
            return await _editor_page(request, name, text, status=409, problem=problem, **draft)
        case _:
            error = refusal_error(refused, request.words)
            problem = request.words(f"error.{error.key}.hint", **error.facts)
            return await _editor_page(request, name, text, status=422, problem=problem, **draft)


async def _run(request: DashboardRequest, name: str, form: FormData) -> Response:
    workflow = await request.services.workflows.find(name)
    texts = field_texts(form, workflow.inputs)
    inputs = parse_inputs(workflow.inputs, texts)
    if not inputs.is_complete:
        return await show_workflow(request, filled=texts, refused=inputs)
    # Back, other values and Run again is another run; the same form twice is not.
    digest = hashlib.sha256(repr(sorted(inputs.values.items())).encode()).hexdigest()[:12]
    source = f"{form_source(form)}:{digest}"
    priority = TaskPriority.parse(form_text(form, "priority")) or TaskPriority.IMPORTANT
    task, _ = await start_workflow(
        request.command(source),
        SubmitWorkflowInputs(name=workflow.name, priority=priority),
        inputs.values,
        source=source,
    )
    return RedirectResponse(f"/dashboard/tasks/{task.id}", status_code=303)


async def _dry_run(request: DashboardRequest, name: str, form: FormData) -> Response:
    workflow, given = await request.services.workflows.find(name), read_text(form, "given")
    texts = field_texts(form, workflow.inputs)
    inputs = parse_inputs(workflow.inputs, texts)
    if not inputs.is_complete:
        return await show_workflow(
            request, filled=texts, refused=inputs, given=given, is_trial=True
        )
    try:
        run = await request.services.dry_runs.dry_run(
            workflow.name, inputs.values, given[:MAX_TEXT], request.words.language
        )
    except WorkflowRefused as refused:
        if refused.reason is not WorkflowRefusalReason.BROKEN:
            raise
        card, status = invalid_workflow_card(workflow.name, refused.errors, request.words), 422
    else:
        card, status = dry_run_card(run, request.words), 200
    page = await show_workflow(request, filled=texts, given=given, tried=card, is_trial=True)
    page.status_code = status
    return page


async def show_workflow(
    request: DashboardRequest,
    *,
    filled: Mapping[str, str] | None = None,
    refused: WorkflowInputValues | None = None,
    given: str = "",
    tried: Card | None = None,
    is_trial: bool = False,
) -> Response:
    """`filled` are inputs, `given` the outputs that a dry run was given. `refused` inputs were
    to be run, or to be tried if `is_trial`. `tried` is what a trial has shown."""
    words = request.words
    source = await _read(request, request.http.path_params["name"])
    judged = await _judge(request, source.text)
    workflow: NamedWorkflow | None = judged["workflow"]
    inputs = workflow.inputs if workflow else ()
    history = await request.services.workflow_history.list_versions(source.name)
    runs = (await _list_runs(request, [source.name], _RUNS)).get(source.name, ())
    return render_page(
        request,
        "workflow",
        **judged,
        source=source,
        title_text=formats.single_line(workflow.title if workflow else "", _MAX_TITLE)
        or source.name,
        about=formats.truncate(workflow.description if workflow else "", _MAX_DESCRIPTION),
        fields=field_rows(inputs, words, filled, None if is_trial else refused),
        trial_fields=field_rows(inputs, words, filled, refused if is_trial else None),
        is_trial=is_trial,
        given=given,
        tried=render(tried, words).html if tried is not None else "",
        runs=[_run_row(each, request) for each in runs],
        priorities=[(each.value, priority_label(each, words)) for each in TaskPriority],
        chosen=TaskPriority.IMPORTANT.value,
        versions=[_version_row(history, each, request) for each in history.versions[:_VERSIONS]],
        version_count=len(history.versions),
        new_source=new_source(),
        status_code=200 if refused is None else 422,
    )


async def _editor_page(
    request: DashboardRequest,
    name: str,
    text: str,
    *,
    based_on: str = "",
    named: str = "",
    unsaved: bool = False,
    problem: str = "",
    theirs: str = "",
    status: int = 200,
) -> Response:
    """`theirs` is the text that somebody else has saved meanwhile."""
    return render_page(
        request,
        "workflow_editor",
        **await _judge(request, text),
        file_name=name,
        is_new=name == NEW,
        named=named,
        text=text,
        based_on=based_on,
        unsaved=unsaved,
        problem=problem,
        theirs=theirs,
        most=MAX_TEXT,
        new_source=new_source(),
        status_code=status,
    )


async def _judge(request: DashboardRequest, text: str) -> dict[str, Any]:
    """The facts of a check, for templates."""
    words = request.words
    if len(text) > MAX_TEXT:
        fault = Diagnostic(code="too_long", facts={"most": MAX_TEXT})
        checked = WorkflowCheck(workflow=InvalidWorkflowFile(name="", errors=(fault,)))
    else:
        checked = await request.services.workflows.check(text, words.language)
    workflow = checked.workflow if isinstance(checked.workflow, NamedWorkflow) else None
    return {
        "workflow": workflow,
        "faults": _faults(checked.diagnostics, request, MAX_DIAGNOSTICS),
        "fault_count": len(checked.diagnostics),
        "svg": checked.svg,
    }


def _faults(
    errors: Sequence[Diagnostic], request: DashboardRequest, most: int
) -> Sequence[dict[str, Any]]:
    return [
        {
            "line": each.line,
            "column": each.column,
            "severity": each.severity.value,
            "text": diagnostic_text(each, request.words),
        }
        for each in in_text_order(errors)[:most]
    ]


def _row(
    workflow: NamedWorkflow, runs: Sequence[Task], request: DashboardRequest
) -> dict[str, Any]:
    title = formats.single_line(workflow.title, _MAX_TITLE)
    about = formats.single_line(workflow.description, _MAX_ABOUT)
    return {
        "name": workflow.name,
        "href": f"{PATH}/{quote(workflow.name)}",
        "about": " · ".join(filter(None, (title if title != workflow.name else "", about))),
        "file": workflow.file,
        "steps": request.words("workflows.steps", n=len(workflow.steps)),
        "run": _run_row(runs[0], request) if runs else None,
    }


def _broken_row(invalid: InvalidWorkflowFile, request: DashboardRequest) -> dict[str, Any]:
    # What is wrong with the file itself is not mended by editing its text.
    in_text = not any(request.words.has(f"workflows.fault.{each.code}") for each in invalid.errors)
    return {
        "file": formats.single_line(invalid.file, _MAX_TITLE),
        "href": f"{PATH}/{quote(invalid.name)}/edit" if in_text else "",
        "faults": _faults(invalid.errors, request, _FAULTS_OF_ONE),
        "more": max(0, len(invalid.errors) - _FAULTS_OF_ONE),
    }


def _run_row(task: Task, request: DashboardRequest) -> dict[str, Any]:
    return {
        "id": task.id,
        "title": formats.single_line(task.title, _MAX_TITLE),
        "status": f"{STATUS_ICONS[task.status]} {request.words(f'status.{task.status}')}",
        "created_at": task.created_at,
    }


def _version_row(
    history: WorkflowVersions, version: PromptVersion, request: DashboardRequest
) -> dict[str, Any]:
    return {
        "number": version.number,
        "text": version_summary(history, version, request.words, request.deps.zone),
        "can_roll_back": can_roll_back(history, version),
    }


async def _list_runs(
    request: DashboardRequest, names: Sequence[str], limit: int
) -> Mapping[str, Sequence[Task]]:
    return await request.services.tasks.list_workflow_runs(
        by=request.person, chat=request.chat.id, names=names, limit=limit
    )


async def _read(request: DashboardRequest, name: str) -> WorkflowSource:
    return await request.services.workflows.read_source(name)


def read_text(form: FormData, field: str = "text") -> str:
    """As it was typed, with plain line ends: what is not allowed in it is told, not dropped."""
    value = form.get(field, "")
    text = value if isinstance(value, str) else ""
    return text.replace("\r\n", "\n").replace("\r", "\n")
