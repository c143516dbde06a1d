"""Tasks: listed, shown and moved."""

from __future__ import annotations

from dataclasses import replace

from cards import formats
from cards.model import Card
from cards.plain import events_data, page_data, view_data
from cards.views import marks
from cards.views.work.task_lists import (
    LOG_LINES,
    PAGE,
    detail_card,
    list_card,
    logs_card,
)
from handlers.chat import cut_short
from handlers.errors import Usage, UserError
from handlers.parsing import priority_in
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.work import agenda
from handlers.work.moved import moved
from handlers.work.naming import found_task, id_and_rest
from storage.records.tasks import Control, Priority, Task, TaskStatus

commands = Commands("tasks")

_LISTED = 100
"""Tasks a program is told of at once; people turn pages."""


@commands("list", usage="[status]", aliases=("tasks", "ls", "列表", "任务列表"), immediate=True)
async def list_tasks(request: Request) -> Reply:
    """List tasks, unfinished ones first."""
    wanted = TaskStatus.named(request.args) if request.args else None
    many = await request.services.tasks.page(
        by=request.person, chat=request.chat.id, status=wanted, page=1, size=_LISTED
    )
    shown = replace(many, tasks=many.tasks[:PAGE], pages=max(1, -(-many.total // PAGE)))
    card = list_card(shown, request.words, now=request.now, status=wanted)
    return Reply(card=card, data=page_data(many))


@commands("get", usage="id", aliases=("show", "详情", "查看"), immediate=True)
async def get_task(request: Request) -> Reply:
    """Show one task in full."""
    return await show_task(request, id_and_rest(request, "get")[0])


@commands("logs", usage="id", aliases=("日志",), immediate=True)
async def get_logs(request: Request) -> Reply:
    """Show what happened in a task."""
    return await show_logs(request, id_and_rest(request, "logs")[0])


@commands("pause", usage="id [reason]", aliases=("暂停",), immediate=True)
async def pause(request: Request) -> Reply:
    """Pause a task at its next safe point."""
    first, reason = id_and_rest(request, "pause")
    task = await found_task(request, first)
    text = await pause_task(request, task.id, reason)
    lines = [text, request.words("moved.reason", reason=reason) if reason else ""]
    lines.append(request.words("moved.paused_hint", id=task.id))
    return await moved(request, task, "\n".join(filter(None, lines)))


@commands("resume", usage="[id] [answer]", aliases=("continue", "继续", "恢复"), immediate=True)
async def resume(request: Request) -> Reply:
    """Go on with a task, an answer reaches its worker; without an id, see where you stand."""
    if not request.args:
        return await agenda.recap(request)
    first, said = id_and_rest(request, "resume")
    task = await found_task(request, first)
    return await moved(request, task, await resume_task(request, task.id, said))


@commands("retry", usage="id", aliases=("重试",), immediate=True)
async def retry(request: Request) -> Reply:
    """Try a failed or stopped task again, keeping finished steps."""
    task = await found_task(request, id_and_rest(request, "retry")[0])
    return await moved(request, task, await retry_task(request, task.id))


@commands(
    "priority",
    usage="id urgent|important|normal",
    aliases=("prio", "优先级"),
    immediate=True,
)
async def priority(request: Request) -> Reply:
    """Change how urgent a task is."""
    wanted, rest = priority_in(request.args)
    if not rest:
        raise Usage("priority")
    first, *others = rest.split()
    if wanted is None and not others:
        raise Usage("priority")
    task = await found_task(request, first)
    if wanted is None:
        raise UserError("unknown_priority", word=formats.line(" ".join(others), 40))
    return await moved(request, task, await prioritise_task(request, task.id, wanted))


@commands("stop", usage="[id]", aliases=("cancel", "停止", "取消"), immediate=True)
async def stop(request: Request) -> Reply:
    """Stop a task or, without an id, the answer being written."""
    if not request.args:
        return cut_short(request)
    task = await found_task(request, id_and_rest(request, "stop")[0])
    return await moved(request, task, await stop_task(request, task.id))


async def list_page(request: Request, status: str, page: int) -> Card:
    """A page of what this person may see here. A status nobody knows is ignored."""
    wanted = TaskStatus.named(status) if status else None
    found = await request.services.tasks.page(
        by=request.person, chat=request.chat.id, status=wanted, page=page, size=PAGE
    )
    return list_card(found, request.words, now=request.now, status=wanted)


async def show_task(request: Request, prefix: str) -> Reply:
    task = await found_task(request, prefix)
    view = await request.services.tasks.view(task.id)
    card = detail_card(view, request.words, now=request.now, zone=request.zone)
    return Reply(card=card, data=view_data(view))


async def show_logs(request: Request, prefix: str) -> Reply:
    task = await found_task(request, prefix)
    events = await request.services.tasks.events(task.id, LOG_LINES)
    card = logs_card(task, events, request.words, zone=request.zone)
    return Reply(card=card, data=events_data(task, events))


async def pause_task(request: Request, task_id: str, reason: str = "") -> str:
    """Pause it and say what that means now."""
    task = await request.services.tasks.pause(
        await found_task(request, task_id), by=request.person, source=request.source, reason=reason
    )
    pausing = task.status is TaskStatus.RUNNING and task.control is Control.PAUSE
    return request.words("moved.pausing" if pausing else "moved.paused")


async def resume_task(request: Request, task_id: str, said: str = "") -> str:
    task = await found_task(request, task_id)
    if not said and _is_on_its_way(task):
        return request.words("moved.on_its_way")
    await request.services.tasks.resume(task, by=request.person, source=request.source, said=said)
    return request.words("moved.resumed")


async def stop_task(request: Request, task_id: str) -> str:
    task = await found_task(request, task_id)
    await request.services.tasks.stop(task, by=request.person, source=request.source)
    return request.words("moved.stopped")


async def retry_task(request: Request, task_id: str) -> str:
    task = await found_task(request, task_id)
    if _is_on_its_way(task):
        return request.words("moved.on_its_way")
    await request.services.tasks.retry(task, by=request.person, source=request.source)
    return request.words("moved.retried")


async def prioritise_task(request: Request, task_id: str, wanted: Priority) -> str:
    task = await found_task(request, task_id)
    await request.services.tasks.set_priority(
        task, wanted, by=request.person, source=request.source
    )
    name = request.words(f"priority.{wanted}")
    return request.words("moved.prioritised", mark=marks.PRIORITY[wanted], priority=name)


def _is_on_its_way(task: Task) -> bool:
    """Nothing keeps it from being worked on, so there is nothing to take up."""
    going = task.status is TaskStatus.RUNNING and task.control is Control.RUN
    return going or task.status is TaskStatus.PENDING
