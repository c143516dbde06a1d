"""Moving a task by hand: its stage, its end, what holds it up, and what was wrong about it."""

from __future__ import annotations

import re

from cards import formats
from cards.plain import task_data
from cards.views.errors import notice_card
from cards.views.work.agenda import found_tasks_card, task_line
from cards.views.work.task_lists import moved_card
from handlers.errors import Usage, UserError
from handlers.flags import flags_of
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.services.notebook import BadValue, Field
from handlers.work.naming import found_task, id_and_rest, number_of
from storage.errors import WrongState
from storage.records.notebook import Closed
from storage.records.tasks import Task, TaskStatus

commands = Commands("method")

_FOUND = 10
_LINE = 200
_FORCE = re.compile(r"(?:^|\s)[-–—]{1,2}(?:force|强制)\s*$")
_TOKENS = re.compile(r"(?:^|\s)[-–—]{1,2}(?:tokens-now|t)(?:\s+|=)(\S+)\s*$", re.IGNORECASE)

_FIELDS = {
    **{field.value: field for field in Field},
    **dict.fromkeys(("name", "任务名称", "名称", "标题"), Field.TITLE),
    **dict.fromkeys(("原始指令", "指令"), Field.INSTRUCTION),
    "优先级": Field.PRIORITY,
    **dict.fromkeys(("phase", "当前阶段", "阶段"), Field.STAGE),
}


@commands(
    "done",
    usage="id [-s summary] [--tokens-now n] [--force]",
    aliases=("finish", "完成"),
    verbatim=True,
)
async def done(request: Request) -> Reply:
    """Say that a task is finished."""
    first, rest = id_and_rest(request, "done")
    task = await found_task(request, first)
    summary, tokens, force = _ending(rest)
    try:
        closed = await request.services.notebook.finish(
            task,
            by=request.person,
            source=request.source,
            summary=summary,
            tokens_now=tokens,
            force=force,
        )
    except WrongState as wrong:
        if task.status.is_final:
            raise
        state = request.words(f"status.{wrong.state}")
        raise UserError("done_needs_force", id=task.id, state=state) from wrong
    data = {
        **task_data(closed.task),
        "already": closed.already,
        "has_plan": closed.has_plan,
        "has_milestone": closed.has_milestone,
        "tokens": closed.tokens,
    }
    text = _closed(request, closed, counted=tokens is not None)
    return Reply(card=moved_card(closed.task, text, request.words), data=data)


@commands("phase", usage="id text", aliases=("阶段",), verbatim=True)
async def phase(request: Request) -> Reply:
    """Say where a task stands, and hear whether something more important waits."""
    task, text = await _task_and_text(request, "phase")
    staged = await request.services.notebook.stage(
        task, text, by=request.person, source=request.source
    )
    words, urgent = request.words, staged.urgent
    said = formats.verbatim(staged.task.stage, _LINE)
    lines = [words("agenda.staged", id=task.id, stage=said)]
    if urgent is None:
        lines.append(words("agenda.go_on"))
    else:
        lines.append(words("agenda.more_urgent", task=task_line(urgent, words), id=task.id))
    data = {**task_data(staged.task), "urgent": task_data(urgent) if urgent else None}
    return Reply(card=moved_card(staged.task, "\n\n".join(lines), words), data=data)


@commands("block", usage="id reason", aliases=("阻塞",), verbatim=True)
async def block(request: Request) -> Reply:
    """Say that a task cannot go on without a person, and why."""
    task, reason = await _task_and_text(request, "block")
    try:
        moved = await request.services.notebook.block(
            task, reason, by=request.person, source=request.source
        )
    except WrongState as wrong:
        if wrong.state != TaskStatus.RUNNING:
            raise
        raise UserError("block_running", id=task.id) from wrong
    return _moved(request, moved, "agenda.blocked", reason=formats.verbatim(reason, _LINE))


@commands("interrupt", usage="id note", aliases=("中断", "放下"), verbatim=True)
async def interrupt(request: Request) -> Reply:
    """Put a task aside with a note of where it stands."""
    task, note = await _task_and_text(request, "interrupt")
    moved = await request.services.notebook.interrupt(
        task, note, by=request.person, source=request.source
    )
    key = "interrupting" if moved.status is TaskStatus.RUNNING else "interrupted"
    return _moved(request, moved, f"agenda.{key}", note=formats.verbatim(note, _LINE))


@commands("token", usage="id n", aliases=("tokens", "令牌"))
async def token(request: Request) -> Reply:
    """Note how many tokens your own session has used as a task begins."""
    task, word = await _task_and_text(request, "token")
    tokens = number_of(word)
    moved = await request.services.notebook.snap_tokens(
        task, tokens, by=request.person, source=request.source
    )
    return _moved(request, moved, "agenda.tokens", n=tokens)


@commands("update", usage="id field value", aliases=("更新", "修改"), verbatim=True)
async def update(request: Request) -> Reply:
    """Put a task's title, instruction, priority or stage right."""
    task, rest = await _task_and_text(request, "update")
    word, *others = rest.split(maxsplit=1)
    field, value = _FIELDS.get(word.casefold()), "".join(others).strip()
    if field is None:
        raise UserError("unknown_field", word=formats.line(word, 40))
    name = request.words(f"agenda.field.{field}")
    try:
        moved = await request.services.notebook.amend(
            task, field, value, by=request.person, source=request.source
        )
    except BadValue as bad:
        wrong = formats.line(value, 40) or "–"
        raise UserError("bad_value", field=name, value=wrong) from bad
    return _moved(request, moved, "agenda.amended", field=name)


@commands("delete", usage="id", aliases=("remove", "删除"))
async def delete(request: Request) -> Reply:
    """Take a task that is not being worked on out of sight."""
    first, _ = id_and_rest(request, "delete")
    notebook = request.services.notebook
    # Handled again after a crash, it has taken the task out of sight already.
    gone = await notebook.moved_by(request.source)
    if gone is None:
        task = await found_task(request, first)
        gone = await notebook.delete(task, by=request.person, source=request.source)
    text = request.words("agenda.deleted", title=formats.verbatim(gone.title, _LINE))
    return Reply(card=notice_card("", text), data=task_data(gone))


@commands("search", usage="words", aliases=("find", "搜索", "查找"), immediate=True)
async def search(request: Request) -> Reply:
    """Find tasks by what they and their logs say."""
    if not request.args:
        raise Usage("search")
    tasks = await request.services.notebook.search_tasks(
        request.args.split(), by=request.person, chat=request.chat.id, limit=_FOUND
    )
    card = found_tasks_card(tasks, request.args, request.words)
    return Reply(card=card, data={"tasks": [task_data(task) for task in tasks]})


def _ending(rest: str) -> tuple[str, int | None, bool]:
    """Summary, tokens and force, wherever the flags stand; what is no flag is the summary."""
    given = flags_of(rest, valued=("s", "summary", "t", "tokens-now"), bare=("force",))
    options, text = given.options, given.text
    force, tokens = "force" in options, options.get("tokens-now", options.get("t"))
    while not given.ended and text:
        if found := _FORCE.search(text):
            force = True
        elif found := _TOKENS.search(text):
            tokens = found[1]
        else:
            break
        text = text[: found.start()].strip()
    summary = options.get("s", options.get("summary", ""))
    return f"{summary} {text}".strip(), None if tokens is None else number_of(tokens), force


def _closed(request: Request, closed: Closed, *, counted: bool) -> str:
    words, task = request.words, closed.task
    if closed.already:
        return words("agenda.done_already")
    lines = [words("agenda.done")]
    if closed.tokens is not None:
        lines.append(words("agenda.done_tokens", count=formats.count(closed.tokens)))
    elif counted:
        lines.append(words("agenda.done_unknown", id=task.id))
    if not closed.has_plan:
        lines.append(words("agenda.done_no_plan", id=task.id))
    if not closed.has_milestone:
        lines.append(words("agenda.done_no_milestone", id=task.id))
    return "\n\n".join(lines)


async def _task_and_text(request: Request, command: str) -> tuple[Task, str]:
    first, text = id_and_rest(request, command)
    if not text:
        raise Usage(command)
    return await found_task(request, first), text


def _moved(request: Request, task: Task, key: str, **facts: object) -> Reply:
    text = request.words(key, **facts)
    return Reply(card=moved_card(task, text, request.words), data=task_data(task))
