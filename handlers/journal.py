"""Handles task logs, the agenda, plans and subtasks, and manual changes of tasks."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import TypeVar

from cards import formats
from cards.catalog import TextCatalog
from cards.json_data import log_entry_data, task_data, task_view_data
from cards.model import notice_card
from cards.views import journal as views
from cards.views.tasks import task_changed_card
from handlers.errors import UsageError, UserError
from handlers.flags import parse_flags
from handlers.parsing import (
    find_task,
    parse_number,
    split_first_word,
    split_id,
    split_steps,
    split_task,
)
from handlers.ports_workers import (
    EditableTaskField,
    InvalidFieldValue,
    JournalDraft,
    JournalFileMissing,
)
from handlers.request import CommandRegistry, Reply, Request
from storage.errors import NotFound, WrongState
from storage.records import task_logs
from storage.records.tasks import Task, TaskStatus

commands = CommandRegistry("method")

DEFAULT_LISTED = 20
MAX_FOUND = 15

MAX_LISTED = 200

_LOG_FLAGS = ("phase", "attempt", "file", "last")
_SEARCH_WORDS = {"search", "find", "搜索", "查找", "搜"}
_MAX_WORD = 40


@commands("log", aliases=("note", "记录", "记"), verbatim=True)
async def manage_logs(request: Request) -> Reply:
    first, rest = split_id(request, "log")
    if first.casefold() in _SEARCH_WORDS:
        return await _search_logs(request, rest)
    task = await find_task(request, first)
    before = parse_flags(rest, valued=_LOG_FLAGS)
    word, text = split_first_word(before.text)
    kind = task_logs.LogKind.parse(word) if word else None
    if word and kind is None:
        raise UserError("unknown_log_kind", word=formats.single_line(word, _MAX_WORD))
    after = parse_flags(text, valued=_LOG_FLAGS)
    options = {**before.options, **after.options}
    has_file = bool(request.files or options.get("file"))
    if kind is None or not (after.text or has_file):
        many = min(
            parse_number(options.get("last", str(DEFAULT_LISTED))) or DEFAULT_LISTED, MAX_LISTED
        )
        page = await request.services.journal.logs(task, kind, many)
        data = {
            "id": task.id,
            "logs": [log_entry_data(e) for e in page.entries],
            "total": page.total,
        }
        return Reply(
            card=views.logs_page_card(page, kind, request.words, zone=request.zone), data=data
        )
    jotting = JournalDraft(
        kind=kind,
        text=after.text or _file_names(request.files, options.get("file", "")),
        stage=options.get("phase", ""),
        attempt=parse_number(options.get("attempt", "0")),
        file=options.get("file", ""),
        attachments=request.files,
    )
    try:
        result = await request.services.journal.add_log(task, jotting, **request.author)
    except JournalFileMissing as missing:
        raise UserError("no_such_file", path=formats.single_line(missing.path, 200)) from missing
    return log_saved_reply(request, result)


def log_saved_reply(request: Request, result: task_logs.LogResult, hint: str = "") -> Reply:
    card = views.log_saved_card(result, request.words, hint=hint)
    return Reply(card=card, data=log_saved_data(result, request.words))


def log_saved_data(result: task_logs.LogResult, words: TextCatalog) -> dict[str, object]:
    task = result.task
    return {
        **log_entry_data(result.entry),
        "number": result.log_count,
        "errors": task.errors,
        "most_errors": task_logs.MAX_ERRORS,
        "blocked": result.blocked,
        "cut": result.is_truncated,
        "planless": result.has_no_plan,
        "warnings": views.log_warnings(result, words),
        "goal": task.instruction if result.is_reminder_due else None,
    }


async def _search_logs(request: Request, query: str) -> Reply:
    if not query:
        raise UsageError("log")
    hits = await request.services.journal.search_logs(
        query.split(), by=request.person, chat=request.chat.id, limit=MAX_FOUND
    )
    entries = [found_log_data(hit) for hit in hits]
    card = views.log_search_card(hits, query, request.words, now=request.now)
    return Reply(card=card, data={"logs": entries})


def _file_names(sent: tuple[str, ...], path: str) -> str:
    paths = [*sent, *([path] if path else [])]
    return ", ".join(path.rsplit("/", 1)[-1] for path in paths)


plan_commands = CommandRegistry("method")

_SUMMARY_FLAG = re.compile(r"(?:^|\s)[-–—]{1,2}(?:s|summary)(?:\s+|=)", re.IGNORECASE)
_MAX_SUBTASKS_NAMED = 20
_MAX_SUBTASKS = 50

_T = TypeVar("_T")


@plan_commands("next", aliases=("下一步", "现在做什么"), immediate=True)
async def show_next_task(request: Request) -> Reply:
    outside = True if "self" in parse_flags(request.args, bare=("self",)).options else None
    agenda = await request.services.journal.agenda(
        by=request.person, chat=request.chat.id, outside=outside
    )
    return Reply(card=views.next_card(agenda, request.words), data=agenda_data(agenda))


@plan_commands("plan", aliases=("计划", "规划"), verbatim=True)
async def show_or_write_plan(request: Request) -> Reply:
    task, text = await split_task(request, "plan")
    if not text:
        view = await request.services.tasks.view(task.id)
        return Reply(card=views.plan_card(view, request.words), data=task_view_data(view))
    result = await request.services.journal.write_plan(task, text, **request.author)
    return log_saved_reply(request, result, _plan_hint(request, task))


@plan_commands("subtask", aliases=("sub", "子任务"), verbatim=True)
async def manage_subtasks(request: Request) -> Reply:
    what, rest = split_id(request, "subtask")
    first, text = split_first_word(rest)
    order = _SUBTASK_ORDERS.get(what.casefold())
    if not text or order is None:
        raise UsageError("subtask")
    return await order(request, await find_task(request, first), text)


async def recap_reply(request: Request) -> Reply:
    """Recap the task to resume."""
    recap = await request.services.journal.recap(by=request.person, chat=request.chat.id)
    if recap is None:
        raise UserError("nothing_to_take_up")
    return Reply(
        card=views.recap_card(recap, request.words, now=request.now), data=recap_data(recap)
    )


def agenda_data(agenda: task_logs.TaskAgenda) -> dict[str, object]:
    going_on = agenda.first is not None and agenda.first.status is TaskStatus.RUNNING
    advice = "keep" if going_on else "switch" if agenda.first else "nothing"
    return {
        "advice": advice,
        "task": task_data(agenda.first) if agenda.first else None,
        "current": task_data(agenda.current) if agenda.current else None,
        "queue": [task_data(task) for task in agenda.queue],
    }


def recap_data(recap: task_logs.TaskRecap) -> dict[str, object]:
    return {
        "task": task_view_data(recap.view),
        "where": {"status": recap.task.status.value, "stage": recap.task.stage},
        "going": {"plan": recap.plan, "left": [step.title for step in recap.steps_left]},
        "goal": recap.task.instruction,
        "learned": [log_entry_data(entry) for entry in recap.learned],
        "done": {
            "steps": [step.title for step in recap.steps_done],
            "logs": [log_entry_data(entry) for entry in recap.done],
        },
        "recalled": [found_log_data(hit) for hit in recap.recalled],
    }


def found_log_data(hit: task_logs.LogMatch) -> dict[str, object]:
    return {**log_entry_data(hit.entry), "title": hit.task.title}


async def _add_subtasks(request: Request, task: Task, text: str) -> Reply:
    titles = split_steps(text, _MAX_SUBTASKS)
    if not titles:
        raise UsageError("subtask")
    if any(title.casefold().removeprefix("task-") == task.id for title in titles):
        raise UserError("own_parent")
    parent = await request.services.journal.add_subtasks(task, titles, **request.author)
    text = request.words("agenda.added", n=len(titles))
    view = await request.services.tasks.view(parent.id)
    return Reply(card=task_changed_card(parent, text, request.words), data=task_view_data(view))


async def _finish_subtask(request: Request, task: Task, text: str) -> Reply:
    name, summary = _split_summary(text)
    progress = await _naming_known_subtasks(
        request,
        task,
        request.services.journal.finish_subtask(task, name, summary, **request.author),
    )
    key = "agenda.subtask_already" if progress.was_already_done else "agenda.subtask_done"
    return _subtask_reply(request, progress, request.words(key, name=progress.title))


async def _set_subtask_phase(request: Request, task: Task, text: str) -> Reply:
    name = ""
    if text.startswith('"'):
        flags = parse_flags(f"-n {text}", valued=("n",))
        name, text = flags.options["n"], flags.text
    progress = await _naming_known_subtasks(
        request,
        task,
        request.services.journal.set_subtask_phase(task, text, **request.author, name=name),
    )
    if progress.was_already_done:
        return _subtask_reply(
            request, progress, request.words("agenda.subtask_already", name=progress.title)
        )
    text = request.words("agenda.subtask_staged", name=progress.task.stage)
    note = "" if task.outside else request.words("agenda.subtask_locked")
    return _subtask_reply(request, progress, "\n\n".join(filter(None, (text, note))))


async def _naming_known_subtasks(request: Request, task: Task, marking: Awaitable[_T]) -> _T:
    """Answer an unknown subtask name with the known ones."""
    try:
        return await marking
    except NotFound as missing:
        if missing.noun != "subtask":
            raise
        view = await request.services.tasks.view(task.id)
        if not view.steps:
            raise UserError("no_subtasks", id=task.id) from missing
        titles = [
            f"{n}. {step.title}" for n, step in enumerate(view.steps[:_MAX_SUBTASKS_NAMED], 1)
        ]
        raise UserError("no_such_subtask", name=missing.key, names=" · ".join(titles)) from missing


def _subtask_reply(request: Request, progress: task_logs.SubtaskProgress, text: str) -> Reply:
    words, task = request.words, progress.task
    if task.status is TaskStatus.COMPLETED and not progress.was_already_done:
        text = f"{text}\n\n{words('agenda.subtask_last')}"
    elif progress.remaining:
        text = f"{text}\n\n{words('agenda.left', n=progress.remaining)}"
    data = {
        **task_data(task),
        "subtask": progress.title,
        "left": progress.remaining,
        "already": progress.was_already_done,
    }
    return Reply(card=task_changed_card(task, text, words), data=data)


def _split_summary(text: str) -> tuple[str, str]:
    if text.startswith('"'):
        flags = parse_flags(f"-n {text}", valued=("n", "s", "summary"))
        summary = flags.options.get("s", flags.options.get("summary", ""))
        return flags.options["n"], f"{summary} {flags.text}".strip()
    flag = _SUMMARY_FLAG.search(text)
    if flag is None:
        return text, ""
    flags = parse_flags(f"-s {text[flag.end() :]}", valued=("s",))
    return text[: flag.start()].strip(), f"{flags.options['s']} {flags.text}".strip()


_SUBTASK_ORDERS = {
    **dict.fromkeys(("add", "添加", "新增", "加"), _add_subtasks),
    **dict.fromkeys(("done", "finish", "完成"), _finish_subtask),
    **dict.fromkeys(("phase", "stage", "阶段", "进展"), _set_subtask_phase),
}


def _plan_hint(request: Request, task: Task) -> str:
    """The effect of a written plan on a task that Shiftboss runs."""
    if task.outside or task.status.is_final:
        return ""
    key = "logbook.plan_only_log" if task.graph_version else "logbook.plan_told"
    return request.words(key, id=task.id)


update_commands = CommandRegistry("method")

_MAX_TASKS_FOUND = 10
_MAX_LINE = 200
_FORCE_FLAG = re.compile(r"(?:^|\s)[-–—]{1,2}(?:force|强制)\s*$")
_TOKENS_FLAG = re.compile(r"(?:^|\s)[-–—]{1,2}(?:tokens-now|t)(?:\s+|=)(\S+)\s*$", re.IGNORECASE)

_FIELD_WORDS = {
    **{field.value: field for field in EditableTaskField},
    **dict.fromkeys(("name", "任务名称", "名称", "标题"), EditableTaskField.TITLE),
    **dict.fromkeys(("原始指令", "指令"), EditableTaskField.INSTRUCTION),
    "优先级": EditableTaskField.PRIORITY,
    **dict.fromkeys(("phase", "当前阶段", "阶段"), EditableTaskField.STAGE),
}


@update_commands("done", aliases=("finish", "完成"), verbatim=True)
async def finish_task(request: Request) -> Reply:
    task, rest = await split_task(request, "done")
    summary, tokens, force = _parse_done_args(rest)
    try:
        completion = await request.services.journal.finish(
            task, **request.author, summary=summary, tokens_now=tokens, force=force
        )
    except WrongState as wrong:
        if task.status.is_final:
            raise
        state = request.words(f"status.{wrong.state}")
        raise UserError("done_needs_force", id=task.id, state=state) from wrong
    data = {
        **task_data(completion.task),
        "already": completion.was_already_done,
        "has_plan": completion.has_plan,
        "has_milestone": completion.has_milestone,
        "tokens": completion.tokens,
    }
    text = _closing_text(request, completion, counted=tokens is not None)
    return Reply(card=task_changed_card(completion.task, text, request.words), data=data)


@update_commands("phase", aliases=("阶段",), verbatim=True)
async def set_task_phase(request: Request) -> Reply:
    task, text = await _find_task_and_text(request, "phase")
    progress = await request.services.journal.set_phase(task, text, **request.author)
    words, urgent = request.words, progress.more_urgent
    stage = formats.escape_markdown(progress.task.stage, _MAX_LINE)
    lines = [words("agenda.staged", id=task.id, stage=stage)]
    if urgent is None:
        lines.append(words("agenda.go_on"))
    else:
        lines.append(words("agenda.more_urgent", task=views.task_line(urgent, words), id=task.id))
    data = {**task_data(progress.task), "urgent": task_data(urgent) if urgent else None}
    return Reply(card=task_changed_card(progress.task, "\n\n".join(lines), words), data=data)


@update_commands("block", aliases=("阻塞",), verbatim=True)
async def block_task(request: Request) -> Reply:
    task, reason = await _find_task_and_text(request, "block")
    try:
        updated_task = await request.services.journal.block_task(task, reason, **request.author)
    except WrongState as wrong:
        if wrong.state != TaskStatus.RUNNING:
            raise
        raise UserError("block_running", id=task.id) from wrong
    return _changed_reply(
        request, updated_task, "agenda.blocked", reason=formats.escape_markdown(reason, _MAX_LINE)
    )


@update_commands("interrupt", aliases=("中断", "放下"), verbatim=True)
async def interrupt_task(request: Request) -> Reply:
    task, note = await _find_task_and_text(request, "interrupt")
    updated_task = await request.services.journal.interrupt(task, note, **request.author)
    key = "interrupting" if updated_task.status is TaskStatus.RUNNING else "interrupted"
    return _changed_reply(
        request, updated_task, f"agenda.{key}", note=formats.escape_markdown(note, _MAX_LINE)
    )


@update_commands("token", aliases=("tokens", "令牌"))
async def record_token_count(request: Request) -> Reply:
    task, word = await _find_task_and_text(request, "token")
    tokens = parse_number(word)
    updated_task = await request.services.journal.record_token_count(task, tokens, **request.author)
    return _changed_reply(request, updated_task, "agenda.tokens", n=tokens)


@update_commands("update", aliases=("更新", "修改"), verbatim=True)
async def update_task(request: Request) -> Reply:
    task, rest = await _find_task_and_text(request, "update")
    word, *others = rest.split(maxsplit=1)
    field, value = _FIELD_WORDS.get(word.casefold()), "".join(others).strip()
    if field is None:
        raise UserError("unknown_field", word=formats.single_line(word, 40))
    name = request.words(f"agenda.field.{field}")
    try:
        updated_task = await request.services.journal.update_field(
            task, field, value, **request.author
        )
    except InvalidFieldValue as bad:
        excerpt = formats.single_line(value, 40) or "–"
        raise UserError("bad_value", field=name, value=excerpt) from bad
    return _changed_reply(request, updated_task, "agenda.amended", field=name)


@update_commands("delete", aliases=("remove", "删除"))
async def delete_task(request: Request) -> Reply:
    first, _ = split_id(request, "delete")
    journal = request.services.journal
    # A repeat after a crash: the task is already deleted.
    gone = await journal.find_changed_by(request.source)
    if gone is None:
        task = await find_task(request, first)
        gone = await journal.delete(task, **request.author)
    text = request.words("agenda.deleted", title=formats.escape_markdown(gone.title, _MAX_LINE))
    return Reply(card=notice_card("", text), data=task_data(gone))


@update_commands("search", aliases=("find", "搜索", "查找"), immediate=True)
async def search_tasks(request: Request) -> Reply:
    if not request.args:
        raise UsageError("search")
    tasks = await request.services.journal.search_tasks(
        request.args.split(), by=request.person, chat=request.chat.id, limit=_MAX_TASKS_FOUND
    )
    card = views.task_search_card(tasks, request.args, request.words)
    return Reply(card=card, data={"tasks": [task_data(task) for task in tasks]})


def _parse_done_args(rest: str) -> tuple[str, int | None, bool]:
    """Summary, tokens and force; flags may stand anywhere, the rest is the summary."""
    flags = parse_flags(rest, valued=("s", "summary", "t", "tokens-now"), bare=("force",))
    options, text = flags.options, flags.text
    force, tokens = "force" in options, options.get("tokens-now", options.get("t"))
    while not flags.terminated and text:
        if flag := _FORCE_FLAG.search(text):
            force = True
        elif flag := _TOKENS_FLAG.search(text):
            tokens = flag[1]
        else:
            break
        text = text[: flag.start()].strip()
    summary = options.get("s", options.get("summary", ""))
    return f"{summary} {text}".strip(), None if tokens is None else parse_number(tokens), force


def _closing_text(request: Request, completion: task_logs.TaskCompletion, *, counted: bool) -> str:
    words, task = request.words, completion.task
    if completion.was_already_done:
        return words("agenda.done_already")
    lines = [words("agenda.done")]
    if completion.tokens is not None:
        lines.append(words("agenda.done_tokens", count=formats.compact_number(completion.tokens)))
    elif counted:
        lines.append(words("agenda.done_unknown", id=task.id))
    if not completion.has_plan:
        lines.append(words("agenda.done_no_plan", id=task.id))
    if not completion.has_milestone:
        lines.append(words("agenda.done_no_milestone", id=task.id))
    return "\n\n".join(lines)


async def _find_task_and_text(request: Request, command: str) -> tuple[Task, str]:
    if not split_id(request, command)[1]:
        raise UsageError(command)
    return await split_task(request, command)


def _changed_reply(request: Request, task: Task, key: str, **facts: object) -> Reply:
    text = request.words(key, **facts)
    return Reply(card=task_changed_card(task, text, request.words), data=task_data(task))
