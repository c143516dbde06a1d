"""Workflows kept, checked and thrown away."""

from __future__ import annotations

import re

from cards import formats
from cards.views.workflows.data import bad_data, workflow_data
from cards.views.workflows.forms import name_form
from cards.views.workflows.shelf import confirm_card, deleted_card, judged_card, saved_card
from handlers.errors import Usage, UserError
from handlers.flags import flags_of
from handlers.ports import Forbidden
from handlers.request import Reply, Request
from handlers.work.naming import found_task
from storage.records.people import Role
from storage.records.tasks import Task, TaskStatus
from storage.records.workers.workflows import (
    BadWorkflow,
    NamedWorkflow,
    WhyNoWorkflow,
    WorkflowRefused,
)

_WORD = re.compile(r"[\w-]{1,64}")
_FENCED = re.compile(r"\s*```[^\n]*\n(?P<text>.*?)\n?```\s*", re.DOTALL)
_UNFIT = re.compile(r"[^\w]+")
_SURE = {"yes", "确定", "是"}
_LONGEST = 40


async def save(request: Request, rest: str) -> Reply:
    """A text or file that came with the message, or the plan of a finished task."""
    demand_owner(request)
    before = flags_of(rest, bare=("replace",))
    name, more = split(before.text)
    after = flags_of(more, bare=("replace",))
    if not name:
        raise Usage("workflow")
    text = await _text(request, name, more if not after.options else after.text)
    replace = "replace" in {*before.options, *after.options}
    return await _saved(request, name, text, replace=replace)


async def ask_name(request: Request, task_id: str) -> Reply:
    """The button on a finished task's card."""
    task = _finished(await found_task(request, task_id), "NAME")
    return Reply(card=name_form(task, request.words, suggested=name_for(task)))


async def keep(request: Request, task_id: str, name: str, card_key: str) -> Reply:
    """That form was sent."""
    task = _finished(await found_task(request, task_id), name or "NAME")
    name = name or name_for(task)
    text = await request.services.workflows.text_of_task(task, name)
    saved = await _saved(request, name, text, replace=False)
    return Reply(card=saved.card, key=card_key, in_place=True, data=saved.data)


async def validate(request: Request, rest: str) -> Reply:
    """By name, or a text or file that was sent."""
    words, workflows = request.words, request.services.workflows
    if not rest and not request.files:
        raise Usage("workflow")
    if request.files:
        judged = await workflows.judged(await workflows.text_of(request.files[0]))
    elif _WORD.fullmatch(rest):
        judged = await _judged_by_name(request, rest)
    else:
        judged = await workflows.judged(unfenced(rest))
    if isinstance(judged, BadWorkflow):
        card = judged_card(judged, words)
        return Reply(card=card, good=False, data=bad_data(judged, words))
    return Reply(
        card=judged_card(judged, words), data={**workflow_data(judged), "good": True, "faults": []}
    )


async def delete(request: Request, rest: str) -> Reply:
    """Asked first, unless whoever types it says that they are sure."""
    demand_owner(request)
    name, sure = split(rest)
    if not name:
        raise Usage("workflow")
    shelf = await request.services.workflows.shelf()
    if name not in {*(each.name for each in shelf.workflows), *(each.name for each in shelf.bad)}:
        raise WorkflowRefused(WhyNoWorkflow.UNKNOWN, name)
    if sure.strip().casefold() in _SURE:
        return await deleted(request, name)
    return Reply(card=confirm_card(name, request.words))


async def deleted(request: Request, name: str, card_key: str = "") -> Reply:
    """One that is gone already is deleted: the same order may be carried out again."""
    try:
        await request.services.workflows.delete(name)
    except WorkflowRefused as error:
        if error.reason is not WhyNoWorkflow.UNKNOWN:
            raise
    card = deleted_card(name, request.words)
    return Reply(
        card=card, key=card_key, in_place=bool(card_key), data={"name": name, "deleted": True}
    )


def name_for(task: Task) -> str:
    """What a task's title makes of a name."""
    plain = _UNFIT.sub("-", task.title.casefold().replace("_", "-")).strip("-")
    return plain[:_LONGEST].strip("-") or task.id


def demand_owner(request: Request) -> None:
    if not request.person.role.allows(Role.OWNER):
        raise Forbidden


def split(text: str) -> tuple[str, str]:
    """The first word, and what follows it with its lines as they are."""
    first, *rest = text.strip().split(maxsplit=1) or [""]
    after = text.strip()[len(first) :] if rest else ""
    return first, after.strip(" \t").strip("\r\n")


def unfenced(text: str) -> str:
    """Without the fences in which people put what is to stay as it is."""
    found = _FENCED.fullmatch(text)
    return found["text"] if found else text


async def _saved(request: Request, name: str, text: str, *, replace: bool) -> Reply:
    saved = await request.services.workflows.save(name, text, replace=replace)
    return Reply(card=saved_card(saved, request.words), data=workflow_data(saved))


async def _text(request: Request, name: str, more: str) -> str:
    if request.files:
        return await request.services.workflows.text_of(request.files[0])
    if more and not _WORD.fullmatch(more):
        return unfenced(more)
    if more:
        task = _finished(await found_task(request, more), name)
    else:
        task = await _last_finished(request, name)
    return await request.services.workflows.text_of_task(task, name)


def _finished(task: Task, name: str) -> Task:
    if task.status is not TaskStatus.COMPLETED:
        raise UserError("workflow_not_done", name=formats.line(name, 64), id=task.id)
    return task


async def _last_finished(request: Request, name: str) -> Task:
    done = await request.services.tasks.page(
        by=request.person, chat=request.chat.id, status=TaskStatus.COMPLETED, page=1, size=1
    )
    if not done.tasks:
        raise UserError("workflow_none_done", name=formats.line(name, 64))
    return done.tasks[0]


async def _judged_by_name(request: Request, name: str) -> NamedWorkflow | BadWorkflow:
    shelf = await request.services.workflows.shelf()
    every: tuple[NamedWorkflow | BadWorkflow, ...] = (*shelf.bad, *shelf.workflows)
    named = next((each for each in every if each.name == name), None)
    return named or await request.services.workflows.find(name)
