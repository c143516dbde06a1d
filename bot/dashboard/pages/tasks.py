"""Tasks: the list and the board with filter and search, and a page for each task."""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from starlette.datastructures import FormData
from starlette.responses import FileResponse, RedirectResponse, Response

from bot.dashboard.pages.approvals import waiting_for_task
from bot.dashboard.pages.layout import render_page
from bot.dashboard.request import DashboardRequest, form_source, form_text, new_source
from cards import formats
from cards.formats import drop_surrogates
from cards.model import CardTone, error_card
from cards.render.web import render
from cards.views.backends import strip_offline_note
from cards.views.dry_runs import evaluation_card
from cards.views.task_card import can_start_anyway, result_files, task_card
from cards.views.task_parts import (
    NODE_ICONS,
    STATUS_ICONS,
    is_worth_saving,
    priority_label,
    status_label,
)
from cards.views.tasks import event_line
from cards.views.traces import span_duration, span_name
from cards.views.workflows import run_diff_card
from handlers import tasks as commands
from handlers.errors import UserError
from handlers.middleware import explain_error
from handlers.parsing import MessageDirectives
from handlers.request import Request
from handlers.task_runs import rerun_task, run_diff_error
from handlers.workflows import save_task_workflow, suggest_name
from storage.errors import NotFound
from storage.records.tasks import RerunRefused, Task, TaskId, TaskPriority, TaskStatus, TaskView
from storage.records.traces import Trace
from storage.records.workflows import WorkflowRefused

_OPEN = (
    *(TaskStatus.PENDING, TaskStatus.RUNNING, TaskStatus.WAITING, TaskStatus.PAUSED),
    TaskStatus.BLOCKED,
)
_ENDED = (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED)
_FILTERS: dict[str, tuple[TaskStatus, ...]] = {"open": _OPEN, "ended": _ENDED, "all": ()}
_COLUMNS: dict[str, tuple[TaskStatus, ...]] = {
    "queued": (TaskStatus.PENDING,),
    "running": (TaskStatus.RUNNING,),
    "waiting": (TaskStatus.WAITING, TaskStatus.PAUSED, TaskStatus.BLOCKED),
    "ended": _ENDED,
}
_PAGE_SIZE = 50
_COLUMN_SIZE = 25
_MAX_SEARCH = 200
_MAX_TITLE = 120
_MAX_EVENTS = 60
_MAX_SPANS = 150
_MAX_INSTRUCTION = 4_000
_MAX_FILES = 50
_MAX_NODES = 300
_MAX_EXPRESSION = 2_000
_FILES = "files/"
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
"""Those that cannot contain scripts."""
_TEXTS = frozenset({"text/plain", "text/markdown", "text/csv", "application/json"})
_WIDTH = 1000
"""Of a trace, in units of its picture."""


async def show_tasks(request: DashboardRequest) -> Response:
    query = request.http.query_params
    chosen = query.get("show", "")
    shown = chosen if chosen in _FILTERS else "open"
    text = formats.clean_line(query.get("text", ""))[:_MAX_SEARCH].strip()
    facts: dict[str, Any] = {
        "shown": shown,
        "text": text,
        "filters": list(_FILTERS),
        "new_source": new_source(),
        "priorities": [(each.value, priority_label(each, request.words)) for each in TaskPriority],
    }
    if query.get("view") == "board":
        columns = {
            name: [_row(each, request) for each in await _list(request, statuses, text)]
            for name, statuses in _COLUMNS.items()
        }
        return render_page(
            request, "tasks", **facts, view="board", columns=columns, most=_COLUMN_SIZE
        )
    found = await request.services.tasks.list_newest(
        by=request.person,
        chat=request.chat.id,
        statuses=_FILTERS[shown],
        text=text,
        before=_read_place(query.get("before", "")),
        limit=_PAGE_SIZE + 1,
    )
    rows = [_row(each, request) for each in found[:_PAGE_SIZE]]
    older = ""
    if len(found) > _PAGE_SIZE:
        last = found[_PAGE_SIZE - 1]
        place = f"{last.created_at.isoformat()}~{last.id}"
        older = "?" + urlencode({"show": shown, "text": text, "before": place})
    return render_page(request, "tasks", **facts, view="table", rows=rows, older=older)


async def create_task(request: DashboardRequest) -> Response:
    form = await request.form()
    command = request.command(form_source(form))
    text = form_text(form, "text")
    if not text:
        raise UserError("form_incomplete", fields=request.words("dashboard.tasks.instruction"))
    priority = TaskPriority.parse(form_text(form, "priority")) or TaskPriority.IMPORTANT
    new = await commands.new_task(
        command, text, priority, MessageDirectives(), source=command.source
    )
    task = await request.services.tasks.create(new)
    return RedirectResponse(f"/dashboard/tasks/{task.id}", status_code=303)


async def show_task(request: DashboardRequest) -> Response:
    task = await _find(request)
    services, words = request.services, request.words
    view = await services.tasks.view(task.id)
    card = task_card(view, words, now=request.now, zone=request.deps.zone)
    events = await services.tasks.events(task.id, _MAX_EVENTS)
    trace = await services.traces.get_task_trace(task.id)
    costs = await services.costs.report_task(view.task)
    return render_page(
        request,
        "task",
        task=view.task,
        status=status_label(view.task.status, words),
        priority=priority_label(view.task.priority, words),
        card=render(card, words).html,
        waiting=await waiting_for_task(request, task.id),
        instruction=formats.truncate(view.task.instruction, _MAX_INSTRUCTION),
        actions=_actions(view),
        workflow_name=suggest_name(task) if is_worth_saving(view) else "",
        priorities=[(each.value, priority_label(each, words)) for each in TaskPriority],
        new_source=new_source(),
        files=_file_links(view),
        may_rerun=bool(task.graph_version)
        and not task.outside
        and task.status is not TaskStatus.RUNNING,
        percent=view.percent,
        nodes=[
            (each, NODE_ICONS[each.status], min(each.depth, 6))
            for each in (await services.tasks.list_nodes(task))[:_MAX_NODES]
        ],
        has_plan=bool(view.task.graph_version),
        has_workflow=view.workflow is not None,
        changes=await _changes(task, request) if "changes" in request.http.query_params else "",
        **await _value(task, request),
        events=[event_line(each, words, request.deps.zone) for each in reversed(events)],
        bars=_bars(trace, request),
        spans_left_out=max(0, len(trace.spans) - _MAX_SPANS),
        width=_WIDTH,
        cost=formats.spent_cost(costs.total, words),
        tokens=formats.spent_tokens(costs.total, words),
    )


async def show_plan_picture(request: DashboardRequest) -> Response:
    """Loaded as an image, which runs no scripts."""
    task = await _find(request)
    picture = await request.services.workflows.draw_task_plan(task, request.words.language)
    headers = {
        "cache-control": "no-store",
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    }
    return Response(picture, media_type="image/svg+xml", headers=headers)


async def send_file(request: DashboardRequest) -> Response:
    """One of the task's results, or a file that came with its message."""
    task = await _find(request)
    path = f"{_FILES}{request.http.path_params['path']}"
    view = await request.services.tasks.view(task.id)
    found = await request.deps.find_file(path) if path in _files(view) else None
    if found is None:
        raise NotFound("file", formats.single_line(path.rpartition("/")[2], _MAX_TITLE))
    media = mimetypes.guess_type(found.name)[0] or ""
    shown = media in _IMAGES or media in _TEXTS
    name = quote(found.name.encode("utf-8", "replace"), safe="")
    headers = {
        "cache-control": "no-store",
        "content-disposition": f"{'inline' if shown else 'attachment'}; filename*=utf-8''{name}",
        "content-security-policy": "default-src 'none'; sandbox",
        "x-content-type-options": "nosniff",
    }
    if media in _TEXTS:
        media = "text/plain; charset=utf-8"
    return FileResponse(found, media_type=media or "application/octet-stream", headers=headers)


async def steer_task(request: DashboardRequest) -> Response:
    task = await _find(request)
    form = await request.form()
    command = request.command(form_source(form))
    if form_text(form, "order") == "save_workflow":
        name = form_text(form, "name") or suggest_name(task)
        await save_task_workflow(command, task.id, name, card_key="")
        return RedirectResponse(f"/dashboard/workflows/{quote(name, safe='')}", status_code=303)
    await _steer(command, task, form)
    return RedirectResponse(f"/dashboard/tasks/{task.id}", status_code=303)


async def _steer(  # noqa: C901 - one arm per order
    command: Request, task: Task, form: FormData
) -> None:
    text = form_text(form, "text")
    match form_text(form, "order"):
        case "pause":
            await commands.pause_task(command, task, text)
        case "resume":
            await commands.resume_task(command, task, text)
        case "stop":
            await commands.stop_task(command, task)
        case "retry":
            await commands.retry_task(command, task)
        case "rerun" if text:
            await rerun_task(command, task, text)
        case "start_anyway":
            await commands.start_task_anyway(command, task)
        case "priority":
            priority = TaskPriority.parse(form_text(form, "priority")) or task.priority
            await commands.set_task_priority(command, task, priority)
        case "message" if text:
            await command.services.tasks.send_message(task, text, **command.author)
        case "inject" if text:
            titles = tuple(filter(None, map(str.strip, text.splitlines())))
            await commands.inject_steps(command, task, titles)
        case "replan":
            await command.services.tasks.replan(task, text, **command.author)
        case _:
            raise UserError("form_incomplete", fields=command.words("dashboard.task.text"))


async def _changes(task: Task, request: DashboardRequest) -> str:
    """Show the differences to the present workflow on request: comparing takes reading and checking
    its file."""
    try:
        diff = await request.services.workflows.diff_with_run(task)
    except WorkflowRefused as refused:
        error = run_diff_error(task, refused, request.words)
        told = explain_error(error, request.words, "")
        return render(error_card(told.title, told.hint, tone=CardTone.WARN), request.words).html
    return render(run_diff_card(task, diff, request.words), request.words).html


async def _value(task: Task, request: DashboardRequest) -> dict[str, Any]:
    """Evaluate the expression in the address, in the scope of the node there if one is named."""
    query, words = request.http.query_params, request.words
    expression, node = (query.get(key, "").strip()[:_MAX_EXPRESSION] for key in ("eval", "node"))
    if not expression:
        return {"expression": "", "eval_node": node, "value": ""}
    try:
        found = await request.services.run_expressions.evaluate(
            task, expression, words.language, node
        )
    except RerunRefused as refused:
        told = explain_error(refused, words, "")
        card = error_card(told.title, told.hint, tone=CardTone.WARN)
    else:
        card = evaluation_card(found, words)
    return {"expression": expression, "eval_node": node, "value": render(card, words).html}


def _files(view: TaskView) -> Sequence[str]:
    """Paths in the data directory: results, newest first, then files sent along."""
    return tuple(dict.fromkeys((*result_files(view.steps), *view.task.files)))


def _file_links(view: TaskView) -> Sequence[tuple[str, str]]:
    """The name and address of each file."""
    root = f"/dashboard/tasks/{view.task.id}/files/"
    return [
        (formats.single_line(each.rpartition("/")[2], _MAX_TITLE), root + quote(path))
        for each in _files(view)[:_MAX_FILES]
        if (path := drop_surrogates(each.removeprefix(_FILES))) != each
    ]


def _actions(view: TaskView) -> Sequence[str]:
    """The actions that the task allows now, as on its card."""
    task = view.task
    if task.status.is_final:
        return () if task.status is TaskStatus.COMPLETED else ("retry",)
    if task.status is TaskStatus.BLOCKED:
        return ("resume", "retry", "stop")
    halted = task.status in {TaskStatus.PAUSED, TaskStatus.BLOCKED} or task.is_pausing
    first = "resume" if halted else "pause"
    return (first, "stop", *(("start_anyway",) if can_start_anyway(view) else ()))


def _row(task: Task, request: DashboardRequest) -> dict[str, Any]:
    words = request.words
    return {
        "id": task.id,
        "title": formats.single_line(task.title, _MAX_TITLE),
        "icon": STATUS_ICONS[task.status],
        "status": words(f"status.{task.status}"),
        "priority": priority_label(task.priority, words),
        "created_at": task.created_at,
        "reason": formats.single_line(strip_offline_note(task.status_reason), _MAX_TITLE),
    }


def _bars(trace: Trace, request: DashboardRequest) -> Sequence[dict[str, Any]]:
    """One bar for each span of the trace: its start and length, in parts of `_WIDTH`."""
    start = trace.root.started_at
    whole = max(trace.root.seconds(trace.taken_at), 0.001)
    bars: list[dict[str, Any]] = []
    for span in trace.spans[:_MAX_SPANS]:
        begun = (span.started_at - start).total_seconds() / whole
        seconds = span.seconds(trace.taken_at)
        x = min(_WIDTH - 2, max(0, round(begun * _WIDTH)))
        bars.append(
            {
                "name": span_name(span, request.words),
                "depth": min(span.depth, 6),
                "kind": span.kind.value,
                "failed": span.state.is_failure,
                "x": x,
                "width": max(2, min(_WIDTH - x, round(seconds / whole * _WIDTH))),
                "took": span_duration(seconds, request.words),
            }
        )
    return bars


async def _list(
    request: DashboardRequest, statuses: Sequence[TaskStatus], text: str
) -> Sequence[Task]:
    return await request.services.tasks.list_newest(
        by=request.person,
        chat=request.chat.id,
        statuses=statuses,
        text=text,
        limit=_COLUMN_SIZE + 1,
    )


async def _find(request: DashboardRequest) -> Task:
    """Raises NotFound also for a task that may not be seen."""
    task_id = request.http.path_params["task_id"]
    return await request.services.tasks.find(task_id, by=request.person, chat=request.chat.id)


def _read_place(text: str) -> tuple[datetime, TaskId] | None:
    """Where a page of the list begins; what is no place begins at the newest."""
    at, _, task_id = text.partition("~")
    try:
        time = datetime.fromisoformat(at)
    except ValueError:
        return None
    return (time, TaskId(task_id)) if time.tzinfo is not None else None
