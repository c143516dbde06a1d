"""What to do now, where to go on, and the plan with its subtasks."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import TypeVar

from cards.plain import log_data, task_data, view_data
from cards.views.work.agenda import next_card, plan_card, recap_card
from cards.views.work.task_lists import moved_card
from handlers.errors import Usage, UserError
from handlers.flags import flags_of
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.work.logs import noted_reply
from handlers.work.naming import found_task, id_and_rest, steps_in
from storage.errors import NotFound
from storage.records.notebook import Agenda, Found, Marked, Recap
from storage.records.tasks import Task, TaskStatus

commands = Commands("method")

_ADD = {"add", "添加", "新增", "加"}
_DONE = {"done", "finish", "完成"}
_PHASE = {"phase", "stage", "阶段", "进展"}
_SUMMARY = re.compile(r"(?:^|\s)[-–—]{1,2}(?:s|summary)(?:\s+|=)", re.IGNORECASE)
_LISTED = 20
_MOST_SUBTASKS = 50

_T = TypeVar("_T")


@commands("next", usage="[--self]", aliases=("下一步", "现在做什么"), immediate=True)
async def next_task(request: Request) -> Reply:
    """Show what to do now, and what comes after it."""
    outside = True if "self" in flags_of(request.args, bare=("self",)).options else None
    agenda = await request.services.notebook.agenda(
        by=request.person, chat=request.chat.id, outside=outside
    )
    return Reply(card=next_card(agenda, request.words), data=agenda_data(agenda))


@commands("plan", usage="id [text]", aliases=("计划", "规划"), verbatim=True)
async def plan(request: Request) -> Reply:
    """Show a task's plan and subtasks, or write its plan."""
    first, text = id_and_rest(request, "plan")
    task = await found_task(request, first)
    if not text:
        view = await request.services.tasks.view(task.id)
        return Reply(card=plan_card(view, request.words), data=view_data(view))
    noted = await request.services.notebook.plan(
        task, text, by=request.person, source=request.source
    )
    return noted_reply(request, noted, _who_plans(request, task))


@commands(
    "subtask",
    usage="add id first → second | done id name [-s summary] | phase id name text",
    aliases=("sub", "子任务"),
    verbatim=True,
)
async def subtask(request: Request) -> Reply:
    """Add subtasks to a task's plan, say how one goes, or that it is done."""
    what, rest = id_and_rest(request, "subtask")
    first, *others = rest.split(maxsplit=1) or [""]
    said = "".join(others).strip()
    if not first or not said:
        raise Usage("subtask")
    word = what.casefold()
    if word not in _ADD | _DONE | _PHASE:
        raise Usage("subtask")
    task = await found_task(request, first)
    if word in _ADD:
        return await _add(request, task, said)
    marked = _done(request, task, said) if word in _DONE else _phase(request, task, said)
    return await marked


async def recap(request: Request) -> Reply:
    """The five questions, about the task to take up."""
    found = await request.services.notebook.recap(by=request.person, chat=request.chat.id)
    if found is None:
        raise UserError("nothing_to_take_up")
    return Reply(card=recap_card(found, request.words, now=request.now), data=recap_data(found))


def agenda_data(agenda: Agenda) -> dict[str, object]:
    going_on = agenda.first is not None and agenda.first.status is TaskStatus.RUNNING
    advice = "keep" if going_on else "switch" if agenda.first else "nothing"
    return {
        "advice": advice,
        "task": task_data(agenda.first) if agenda.first else None,
        "current": task_data(agenda.current) if agenda.current else None,
        "queue": [task_data(task) for task in agenda.queue],
    }


def recap_data(found: Recap) -> dict[str, object]:
    return {
        "task": view_data(found.view),
        "where": {"status": found.task.status.value, "stage": found.task.stage},
        "going": {"plan": found.plan, "left": [step.title for step in found.steps_left]},
        "goal": found.task.instruction,
        "learned": [log_data(entry) for entry in found.learned],
        "done": {
            "steps": [step.title for step in found.steps_done],
            "logs": [log_data(entry) for entry in found.done],
        },
        "recalled": [hit_data(hit) for hit in found.recalled],
    }


def hit_data(hit: Found) -> dict[str, object]:
    return {**log_data(hit.entry), "title": hit.task.title}


async def _add(request: Request, task: Task, said: str) -> Reply:
    titles = steps_in(said, _MOST_SUBTASKS)
    if not titles:
        raise Usage("subtask")
    if any(title.casefold().removeprefix("task-") == task.id for title in titles):
        raise UserError("own_parent")
    changed = await request.services.notebook.add_subtasks(
        task, titles, by=request.person, source=request.source
    )
    text = request.words("agenda.added", n=len(titles))
    view = await request.services.tasks.view(changed.id)
    return Reply(card=moved_card(changed, text, request.words), data=view_data(view))


async def _done(request: Request, task: Task, said: str) -> Reply:
    name, summary = _name_and_summary(said)
    marked = await _named(
        request,
        task,
        request.services.notebook.finish_subtask(
            task, name, summary, by=request.person, source=request.source
        ),
    )
    key = "agenda.subtask_already" if marked.already else "agenda.subtask_done"
    return _marked(request, marked, request.words(key, name=marked.title))


async def _phase(request: Request, task: Task, said: str) -> Reply:
    name = ""
    if said.startswith('"'):
        given = flags_of(f"-n {said}", valued=("n",))
        name, said = given.options["n"], given.text
    marked = await _named(
        request,
        task,
        request.services.notebook.stage_subtask(
            task, said, by=request.person, source=request.source, name=name
        ),
    )
    if marked.already:
        return _marked(request, marked, request.words("agenda.subtask_already", name=marked.title))
    text = request.words("agenda.subtask_staged", name=marked.task.stage)
    locked = "" if task.outside else request.words("agenda.subtask_locked")
    return _marked(request, marked, "\n\n".join(filter(None, (text, locked))))


async def _named(request: Request, task: Task, marking: Awaitable[_T]) -> _T:
    """A name that is none of the subtasks' is answered with those there are."""
    try:
        return await marking
    except NotFound as missing:
        if missing.noun != "subtask":
            raise
        view = await request.services.tasks.view(task.id)
        if not view.steps:
            raise UserError("no_subtasks", id=task.id) from missing
        titles = [f"{n}. {step.title}" for n, step in enumerate(view.steps[:_LISTED], 1)]
        raise UserError("no_such_subtask", name=missing.key, names=" · ".join(titles)) from missing


def _marked(request: Request, marked: Marked, text: str) -> Reply:
    words, task = request.words, marked.task
    if task.status is TaskStatus.COMPLETED and not marked.already:
        text = f"{text}\n\n{words('agenda.subtask_last')}"
    elif marked.left:
        text = f"{text}\n\n{words('agenda.left', n=marked.left)}"
    data = {
        **task_data(task),
        "subtask": marked.title,
        "left": marked.left,
        "already": marked.already,
    }
    return Reply(card=moved_card(task, text, words), data=data)


def _name_and_summary(said: str) -> tuple[str, str]:
    if said.startswith('"'):
        given = flags_of(f"-n {said}", valued=("n", "s", "summary"))
        summary = given.options.get("s", given.options.get("summary", ""))
        return given.options["n"], f"{summary} {given.text}".strip()
    found = _SUMMARY.search(said)
    if found is None:
        return said, ""
    given = flags_of(f"-s {said[found.end() :]}", valued=("s",))
    return said[: found.start()].strip(), f"{given.options['s']} {given.text}".strip()


def _who_plans(request: Request, task: Task) -> str:
    """What a written plan does where Shiftboss does the work."""
    if task.outside or task.status.is_final:
        return ""
    key = "logbook.plan_only_log" if task.graph_version else "logbook.plan_told"
    return request.words(key, id=task.id)
