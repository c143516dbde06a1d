"""Tasks: made, by a command, by a form, or by consent to a proposal."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cards import formats
from cards.actions import StartTask
from cards.plain import view_data
from cards.views.chat import started_card
from cards.views.work.agenda import outside_card
from cards.views.work.task_lists import ask_card
from cards.views.work.tasks import task_card
from handlers.access.ready import check_able
from handlers.errors import UserError
from handlers.flags import flags_of
from handlers.parsing import Directives, directives_of
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.work import agenda
from handlers.work.persons import chosen_for_task
from handlers.work.projects import workplace
from storage.records.messages import Urgency
from storage.records.personas import DEFAULT
from storage.records.tasks import NewTask, Priority, TaskView

commands = Commands("tasks")

_TITLE = 80
_SELF = "self"
_RUN_FLAGS = ("p", "priority", "title", "d", "dir", "persona")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ordered:
    """What /run was given. `folder` is the one it is to work in, `persona` who is to do it, if it
    names them."""

    text: str
    title: str
    priority: Priority
    chosen: Directives
    folder: str = ""
    outside: bool = False
    persona: str = ""


@commands(
    "run",
    usage="[-p urgent|important|normal] [-d folder] [--persona name] [--title name] [--self] text",
    aliases=("task", "新任务", "任务", "执行", "运行"),
    verbatim=True,
)
async def run(request: Request) -> Reply:
    """Queue a task and start it as soon as a slot is free."""
    ordered = _ordered(request)
    if not ordered.text and ordered.persona:
        who = await chosen_for_task(request, ordered.persona)
        raise UserError("persona_only", name=who or DEFAULT)
    if not ordered.text:
        return Reply(card=ask_card(request.words))
    return await _made(request, ordered)


async def start_proposed(request: Request, action: StartTask, value: str, card_key: str) -> Reply:
    """Consent to a proposal: its card becomes the record of that, and the task's card follows.
    The proposal's card makes one task, whichever of its controls was used."""
    priority = Priority.named(value) or action.priority
    new = NewTask(
        title=formats.line(action.title or action.text, _TITLE),
        instruction=action.text,
        priority=priority,
        chat_id=request.chat.id,
        created_by=request.person.id,
        source=f"start:{card_key}",
        reply_to=action.message_id,
        model=action.model,
        backend=action.backend,
        files=action.files,
    )
    return await _started(request, new, card_key)


async def submit_form(request: Request, text: str, priority: str, card_key: str) -> Reply:
    """The form for a new task was sent."""
    wanted = Priority.named(priority) or Priority.IMPORTANT
    new = _new(request, text, wanted, Directives(), source=f"start:{card_key}")
    return await _started(request, new, card_key)


def _ordered(request: Request) -> _Ordered:
    """What /run was given: `@model` may come before or after the flags; after `--` nothing is
    understood any more."""
    pick = request.services.models.pick
    text, before = directives_of(request.args, pick, bare=False)
    given = flags_of(text, valued=_RUN_FLAGS, bare=(_SELF,))
    text, after = given.text, Directives()
    if not given.ended:
        text, after = directives_of(text, pick, bare=False)
    outside = Directives(model=request.model, backend=request.backend)
    word = given.options.get("p", given.options.get("priority"))
    wanted = Priority.IMPORTANT if word is None else Priority.named(word)
    if wanted is None:
        raise UserError("unknown_priority", word=formats.line(word or "", 40))
    return _Ordered(
        text=text,
        title=given.options.get("title", ""),
        folder=given.options.get("d", given.options.get("dir", "")),
        priority=wanted,
        chosen=next((each for each in (after, before) if each != Directives()), outside),
        outside=_SELF in given.options,
        persona=given.options.get("persona", ""),
    )


async def _made(request: Request, ordered: _Ordered) -> Reply:
    await check_able(request, ordered.chosen.backend)
    new = await _placed(
        request,
        _new(
            request,
            ordered.text,
            ordered.priority,
            ordered.chosen,
            source=request.origin,
            title=ordered.title,
        ),
        ordered.folder,
        ordered.persona,
    )
    if ordered.outside:
        # Nobody works on it here: it holds no folder.
        new = replace(new, outside=True, project_dir="", in_git=False)
    task = await request.services.tasks.create(new)
    if task.instruction != new.instruction:
        # The message was corrected after its task had been made.
        raise UserError("already_made", id=task.id)
    view = await request.services.tasks.view(task.id)
    if task.outside:
        return await _kept_here(request, view)
    card = task_card(view, request.words, now=request.now)
    return Reply(card=card, key=f"task:{task.id}", data=view_data(view))


async def _kept_here(request: Request, view: TaskView) -> Reply:
    """Whoever does the work is told how, and what is known already; its live card follows."""
    hits = await request.services.notebook.recall(view.task)
    card = outside_card(view.task, hits, request.words, now=request.now)
    recalled = [agenda.hit_data(hit) for hit in hits]
    return Reply(card=card, data={**view_data(view), "recalled": recalled})


async def _placed(request: Request, new: NewTask, folder: str = "", persona: str = "") -> NewTask:
    """With the folder it works in, and who does it."""
    project_dir, in_git = await workplace(request, folder)
    who = await chosen_for_task(request, persona)
    return replace(new, project_dir=project_dir, in_git=in_git, persona=who)


async def _started(request: Request, new: NewTask, card_key: str) -> Reply:
    task = await request.services.tasks.create(await _placed(request, new))
    await request.services.courier.send(
        request.chat.id,
        started_card(task.title, task.id, request.words),
        key=card_key,
        urgency=Urgency.ANSWER,
    )
    view = await request.services.tasks.view(task.id)
    return Reply(
        card=task_card(view, request.words, now=request.now),
        key=f"task:{task.id}",
        toast=request.words("moved.started"),
    )


def _new(
    request: Request,
    text: str,
    priority: Priority,
    chosen: Directives,
    *,
    source: str,
    title: str = "",
) -> NewTask:
    return NewTask(
        title=formats.line(title or text, _TITLE),
        instruction=text,
        priority=priority,
        chat_id=request.chat.id,
        created_by=request.person.id,
        source=source,
        reply_to=request.message_id,
        model=chosen.model,
        backend=chosen.backend,
        files=request.files,
    )
