"""Handles tasks: creation, listing, control, messages and plan changes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cards import formats
from cards.actions import StartTask
from cards.json_data import task_data, task_events_data, task_page_data, task_view_data
from cards.model import Card, TextBlock
from cards.views import task_parts
from cards.views import tasks as views
from cards.views.chat import task_started_card
from cards.views.journal import tracked_task_card
from cards.views.task_card import task_card
from handlers import journal
from handlers.chat import check_backend_usable, stop_answer
from handlers.errors import UsageError, UserError
from handlers.flags import parse_flags
from handlers.parsing import (
    MessageDirectives,
    find_priority,
    find_task,
    split_directives,
    split_id,
    split_steps,
    split_task,
)
from handlers.personas import persona_for_task
from handlers.projects import resolve_workspace
from handlers.request import CommandRegistry, Reply, Request
from storage.errors import WrongState
from storage.records.messages import DeliveryUrgency
from storage.records.tasks import (
    NewTask,
    RerunRefused,
    Task,
    TaskControl,
    TaskPriority,
    TaskStatus,
    TaskView,
)
from storage.records.workers import DEFAULT_PERSONA


async def task_changed_reply(request: Request, task: Task, text: str) -> Reply:
    """The result of a change in words, with the task's current data."""
    view = await request.services.tasks.view(task.id)
    data = {"told": text, **task_data(view.task)}
    return Reply(card=views.task_changed_card(task, text, request.words), data=data)


creation_commands = CommandRegistry("tasks")

_MAX_TITLE = 80
_SELF_FLAG = "self"
_RUN_FLAGS = ("p", "priority", "title", "d", "dir", "persona")


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunOptions:
    """The parsed arguments of /run. `folder` and `persona` are empty if not given."""

    text: str
    title: str
    priority: TaskPriority
    chosen: MessageDirectives
    folder: str = ""
    outside: bool = False
    persona: str = ""


@creation_commands("run", aliases=("task", "新任务", "任务", "执行", "运行"), verbatim=True)
async def run_task(request: Request) -> Reply:
    options = _parse_run_args(request)
    if not options.text and options.persona:
        who = await persona_for_task(request, options.persona)
        raise UserError("persona_only", name=who or DEFAULT_PERSONA)
    if not options.text:
        return Reply(card=views.new_task_form(request.words))
    return await _create_task(request, options)


async def start_proposed_task(
    request: Request, action: StartTask, value: str, card_key: str
) -> Reply:
    """Start a proposed task and turn the proposal's card into a record. One proposal creates one
    task, whichever control is used."""
    new = await new_task(
        replace(request, files=action.files, message_id=action.message_id),
        action.text,
        TaskPriority.parse(value) or action.priority,
        MessageDirectives(model=action.model, backend=action.backend),
        source=f"start:{card_key}",
        title=action.title,
    )
    return await _start_task(request, new, card_key)


async def submit_task_form(request: Request, text: str, priority: str, card_key: str) -> Reply:
    """Handle the form for a new task."""
    task_priority = TaskPriority.parse(priority) or TaskPriority.IMPORTANT
    source = f"start:{card_key}"
    new = await new_task(request, text, task_priority, MessageDirectives(), source=source)
    return await _start_task(request, new, card_key)


def _parse_run_args(request: Request) -> _RunOptions:
    """Parse /run: `@model` may stand before or after the flags; nothing after `--` is parsed."""
    pick = request.services.models.resolve_choice
    text, before = split_directives(request.args, pick, allow_bare=False)
    flags = parse_flags(text, valued=_RUN_FLAGS, bare=(_SELF_FLAG,))
    text, after = flags.text, MessageDirectives()
    if not flags.terminated:
        text, after = split_directives(text, pick, allow_bare=False)
    outside = MessageDirectives(model=request.model, backend=request.backend)
    word = flags.options.get("p", flags.options.get("priority"))
    priority = TaskPriority.IMPORTANT if word is None else TaskPriority.parse(word)
    if priority is None:
        raise UserError("unknown_priority", word=formats.single_line(word or "", 40))
    return _RunOptions(
        text=text,
        title=flags.options.get("title", ""),
        folder=flags.options.get("d", flags.options.get("dir", "")),
        priority=priority,
        chosen=next((each for each in (after, before) if each != MessageDirectives()), outside),
        outside=_SELF_FLAG in flags.options,
        persona=flags.options.get("persona", ""),
    )


async def _create_task(request: Request, options: _RunOptions) -> Reply:
    await check_backend_usable(request, options.chosen.backend)
    new = await new_task(
        request,
        options.text,
        options.priority,
        options.chosen,
        source=request.origin,
        title=options.title,
        folder=options.folder,
        persona=options.persona,
    )
    if options.outside:
        # A tracked task has no worker here and holds no folder.
        new = replace(new, outside=True, project_dir="", in_git=False)
    task = await request.services.tasks.create(new)
    if task.instruction != new.instruction:
        # The message was edited after its task was created.
        raise UserError("already_made", id=task.id)
    view = await request.services.tasks.view(task.id)
    if task.outside:
        return await _tracked_task_reply(request, view)
    card = task_card(view, request.words, now=request.now)
    return Reply(card=card, key=f"task:{task.id}", data=task_view_data(view))


async def _tracked_task_reply(request: Request, view: TaskView) -> Reply:
    """Tell the person how to work on a tracked task and what is known; its live card follows."""
    hits = await request.services.journal.recall(view.task)
    card = tracked_task_card(view.task, hits, request.words, now=request.now)
    entries = [journal.found_log_data(hit) for hit in hits]
    return Reply(card=card, data={**task_view_data(view), "recalled": entries})


async def _start_task(request: Request, new: NewTask, card_key: str) -> Reply:
    task = await request.services.tasks.create(new)
    await request.services.courier.send(
        request.chat.id,
        task_started_card(task.title, task.id, request.words),
        key=card_key,
        urgency=DeliveryUrgency.ANSWER,
    )
    view = await request.services.tasks.view(task.id)
    return Reply(
        card=task_card(view, request.words, now=request.now),
        key=f"task:{task.id}",
        toast=request.words("moved.started"),
    )


async def new_task(
    request: Request,
    text: str,
    priority: TaskPriority,
    directives: MessageDirectives,
    *,
    source: str,
    title: str = "",
    folder: str = "",
    persona: str = "",
) -> NewTask:
    """A task in the requested folder and persona, else in the chat's. Its instruction says which
    files could not be fetched."""
    project_dir, in_git = await resolve_workspace(request, folder)
    names = ", ".join(f"“{formats.single_line(each, 120)}”" for each in request.missing_files)
    lost = f"\n\n[{request.words('task.missing_files', names=names)}]" if names else ""
    return NewTask(
        title=formats.single_line(title or text, _MAX_TITLE),
        instruction=text + lost,
        priority=priority,
        chat_id=request.chat.id,
        created_by=request.person.id,
        source=source,
        reply_to=request.message_id,
        model=directives.model,
        backend=directives.backend,
        files=request.files,
        project_dir=project_dir,
        in_git=in_git,
        persona=await persona_for_task(request, persona),
    )


commands = CommandRegistry("tasks")

_MAX_LISTED = 100
"""Maximum tasks listed for a program; people get pages."""


@commands("list", aliases=("tasks", "ls", "列表", "任务列表"), immediate=True)
async def list_tasks(request: Request) -> Reply:
    status = TaskStatus.parse(request.args) if request.args else None
    many = await request.services.tasks.page(
        by=request.person, chat=request.chat.id, status=status, page=1, size=_MAX_LISTED
    )
    visible_page = replace(
        many, tasks=many.tasks[: views.PAGE_SIZE], pages=max(1, -(-many.total // views.PAGE_SIZE))
    )
    card = views.task_list_card(visible_page, request.words, now=request.now, status=status)
    return Reply(card=card, data=task_page_data(many))


@commands("get", aliases=("show", "详情", "查看"), immediate=True)
async def get_task(request: Request) -> Reply:
    return await show_task(request, split_id(request, "get")[0])


@commands("logs", aliases=("日志",), immediate=True)
async def get_task_history(request: Request) -> Reply:
    return await show_task_history(request, split_id(request, "logs")[0])


@commands("pause", aliases=("暂停",), immediate=True)
async def pause_command(request: Request) -> Reply:
    task, reason = await split_task(request, "pause")
    text = await pause_task(request, task, reason)
    lines = [text, request.words("moved.reason", reason=reason) if reason else ""]
    lines.append(request.words("moved.paused_hint", id=task.id))
    return await task_changed_reply(request, task, "\n".join(filter(None, lines)))


@commands("resume", aliases=("continue", "继续", "恢复"), immediate=True)
async def resume_command(request: Request) -> Reply:
    if not request.args:
        return await journal.recap_reply(request)
    task, message = await split_task(request, "resume")
    return await task_changed_reply(request, task, await resume_task(request, task, message))


@commands("retry", aliases=("重试",), immediate=True)
async def retry_command(request: Request) -> Reply:
    task, also = await split_task(request, "retry")
    text = await retry_task(request, task, also.split())
    return await task_changed_reply(request, task, text)


@commands("priority", aliases=("prio", "优先级"), immediate=True)
async def priority_command(request: Request) -> Reply:
    priority, rest = find_priority(request.args)
    if not rest:
        raise UsageError("priority")
    first, *others = rest.split()
    if priority is None and not others:
        raise UsageError("priority")
    task = await find_task(request, first)
    if priority is None:
        raise UserError("unknown_priority", word=formats.single_line(" ".join(others), 40))
    return await task_changed_reply(request, task, await set_task_priority(request, task, priority))


@commands("stop", aliases=("cancel", "停止", "取消"), immediate=True)
async def stop_command(request: Request) -> Reply:
    if not request.args:
        stopped = stop_answer(request)
        return stopped or Reply(card=await _tasks_to_stop(request))
    task, _ = await split_task(request, "stop")
    return await task_changed_reply(request, task, await stop_task(request, task))


async def _tasks_to_stop(request: Request) -> Card:
    """The unfinished tasks seen from here, to choose from; nothing is stopped yet."""
    page = await request.services.tasks.page(
        by=request.person, chat=request.chat.id, status=None, page=1, size=views.PAGE_SIZE
    )
    if all(task.status.is_final for task in page.tasks):
        raise UserError("nothing_to_stop")
    card = views.task_list_card(page, request.words, now=request.now, status=None)
    return replace(card, blocks=(TextBlock(request.words("talk.stop_which")), *card.blocks))


async def task_list_page(request: Request, status: str, page: int) -> Card:
    """A page of the tasks this person may see here. An unknown status is ignored."""
    task_status = TaskStatus.parse(status) if status else None
    tasks = await request.services.tasks.page(
        by=request.person, chat=request.chat.id, status=task_status, page=page, size=views.PAGE_SIZE
    )
    return views.task_list_card(tasks, request.words, now=request.now, status=task_status)


async def show_task(request: Request, prefix: str) -> Reply:
    task = await find_task(request, prefix)
    view = await request.services.tasks.view(task.id)
    card = views.task_detail_card(view, request.words, now=request.now, zone=request.zone)
    return Reply(card=card, data=task_view_data(view))


async def show_task_history(request: Request, prefix: str) -> Reply:
    task = await find_task(request, prefix)
    events = await request.services.tasks.events(task.id, views.MAX_LOG_LINES)
    card = views.task_history_card(task, events, request.words, zone=request.zone)
    return Reply(card=card, data=task_events_data(task, events))


async def pause_task(request: Request, task: Task, reason: str = "") -> str:
    """Pause a task and describe the effect, as the functions below do."""
    paused = await request.services.tasks.pause(task, **request.author, reason=reason)
    return request.words("moved.pausing" if paused.is_pausing else "moved.paused")


async def resume_task(request: Request, task: Task, answer: str = "") -> str:
    if not answer and _is_already_active(task):
        return request.words("moved.on_its_way")
    await request.services.tasks.resume(task, **request.author, answer=answer)
    return request.words("moved.resumed")


async def stop_task(request: Request, task: Task) -> str:
    stopped = await request.services.tasks.stop(task, **request.author)
    return request.words("moved.stopped" if stopped.status.is_final else "moved.undoing")


async def retry_task(request: Request, task: Task, also: Sequence[str] = ()) -> str:
    """Retry a task or, with `also`, those of several that can be."""
    if also:
        return await _retry_several(
            request, [task, *[await find_task(request, id_) for id_ in also]]
        )
    if _is_already_active(task):
        return request.words("moved.on_its_way")
    await request.services.tasks.retry(task, **request.author)
    return request.words("moved.retried")


async def _retry_several(request: Request, tasks: Sequence[Task]) -> str:
    retried = 0
    for task in tasks:
        # A source stands for one command only.
        source = f"{request.source}:{task.id}"
        with suppress(WrongState, RerunRefused):
            await request.services.tasks.retry(task, by=request.person, source=source)
            retried += 1
    return request.words("moved.retried_several" if retried else "moved.retried_none", n=retried)


async def set_task_priority(request: Request, task: Task, priority: TaskPriority) -> str:
    await request.services.tasks.set_priority(task, priority, **request.author)
    return request.words(
        "moved.prioritised",
        mark=task_parts.PRIORITY_ICONS[priority],
        priority=request.words(f"priority.{priority}"),
    )


def _is_already_active(task: Task) -> bool:
    """Whether the task needs no resuming."""
    going = task.status is TaskStatus.RUNNING and task.control is TaskControl.RUN
    return going or task.status is TaskStatus.PENDING


steering_commands = CommandRegistry("steering")


@steering_commands("msg", aliases=("message", "留言", "发消息"), immediate=True)
async def message_command(request: Request) -> Reply:
    task, text = await split_task(request, "msg")
    if not text:
        return Reply(card=views.task_message_form(task, request.words))
    return await task_changed_reply(request, task, await _send_message(request, task, text))


@steering_commands("inject", aliases=("插入", "加一步"), immediate=True)
async def inject_command(request: Request) -> Reply:
    task_id, text = split_id(request, "inject")
    titles = split_steps(text)
    if not titles:
        raise UsageError("inject")
    task = await find_task(request, task_id)
    return await task_changed_reply(request, task, await inject_steps(request, task, titles))


@steering_commands("replan", aliases=("重新规划",), immediate=True)
async def replan_command(request: Request) -> Reply:
    task, why = await split_task(request, "replan")
    await request.services.tasks.replan(task, why, **request.author)
    text = request.words("moved.replanning")
    waiting = await request.services.approvals.list_waiting(by=request.person, chat=None)
    if open_ := [f"`/reject {each.id}`" for each in waiting if each.task_id == task.id]:
        text = request.words("moved.replanning_later", how=", ".join(open_))
    return await task_changed_reply(request, task, text)


@steering_commands("letin", aliases=("放行",), immediate=True)
async def start_anyway_command(request: Request) -> Reply:
    task, _ = await split_task(request, "letin")
    return await task_changed_reply(request, task, await start_task_anyway(request, task))


async def _send_message(request: Request, task: Task, text: str) -> str:
    await request.services.tasks.send_message(task, text, **request.author)
    return request.words("moved.told")


async def inject_steps(request: Request, task: Task, titles: tuple[str, ...]) -> str:
    await request.services.tasks.inject(task, titles, **request.author)
    in_rounds = await request.services.tasks.repeats_in_loop(task, titles)
    return request.words("moved.injected_each" if in_rounds else "moved.injected", n=len(titles))


async def start_task_anyway(request: Request, task: Task) -> str:
    await request.services.tasks.start_anyway(task, **request.author)
    return request.words("moved.let_in")


async def show_message_form(request: Request, task_id: str) -> Card:
    return views.task_message_form(await find_task(request, task_id), request.words)


async def submit_message_form(
    request: Request, task_id: str, text: str, delivery: str, card_key: str
) -> str:
    """Send the form's text as a message or as steps; the form becomes a record of it."""
    task = await find_task(request, task_id)
    if delivery == "step" and (titles := split_steps(text)):
        outcome = await inject_steps(request, task, titles)
    else:
        outcome = await _send_message(request, task, text)
    card = views.task_message_sent_card(task, text, outcome)
    await request.services.courier.send(
        request.chat.id, card, key=card_key, urgency=DeliveryUrgency.ANSWER
    )
    return outcome
