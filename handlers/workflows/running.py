"""A named workflow run: with what was typed, or what a form brought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cards import formats
from cards.plain import view_data
from cards.views.errors import notice_card
from cards.views.work.tasks import task_card
from cards.views.workflows.forms import input_form
from cards.views.workflows.shelf import input_line
from cards.workflow_actions import FillWorkflow
from handlers.errors import Usage, UserError
from handlers.flags import flags_of
from handlers.request import Reply, Request
from handlers.work.persons import chosen_for_task
from handlers.work.projects import workplace
from handlers.workflows.values import MOST_TEXT, Given, Wrong, given, pairs_in
from storage.records.messages import Urgency
from storage.records.tasks import NewTask, Priority
from storage.records.workers.workflows import NamedWorkflow, Value, WorkflowInput

_TITLE = 80
_SHOWN = 60
_FLAGS = ("p", "priority", "d", "dir")


async def run(request: Request, name: str, rest: str) -> Reply:
    """With all it asks for it starts; else the form for what is missing is shown."""
    if not name:
        raise Usage("workflow")
    workflow = await request.services.workflows.find(name)
    flags = flags_of(rest, valued=_FLAGS)
    word = flags.options.get("p", flags.options.get("priority"))
    priority = Priority.IMPORTANT if word is None else Priority.named(word)
    if priority is None:
        raise UserError("unknown_priority", word=formats.line(word or "", 40))
    free, texts = pairs_in(flags.text)
    asked = FillWorkflow(
        name=workflow.name,
        files=request.files,
        model=request.model,
        backend=request.backend,
        priority=priority,
        folder=flags.options.get("d", flags.options.get("dir", "")),
    )
    found = given(workflow.inputs, texts, free)
    if found.is_complete:
        return await _started(request, workflow, asked, found.values, source=request.origin)
    return _asking(request, workflow, asked, found)


async def pressed(request: Request, name: str) -> Reply:
    """The button: each press runs it once more."""
    workflow = await request.services.workflows.find(name)
    found, asked = given(workflow.inputs, {}), FillWorkflow(name=workflow.name)
    if found.is_complete:
        return await _started(request, workflow, asked, found.values, source=request.source)
    return _asking(request, workflow, asked, found)


async def filled(
    request: Request, action: FillWorkflow, form: Mapping[str, str], card_key: str
) -> Reply:
    """The form was sent: it stays until all of it is right, and then makes one task."""
    workflow = await request.services.workflows.find(action.name)
    # Fields of a form that was made before the workflow was changed are left out.
    asked = {each.name for each in workflow.inputs}
    sent = {name: text for name, text in form.items() if name in asked and text.strip()}
    texts = {name: text for name, text in action.known if name in asked} | sent
    found = given(workflow.inputs, texts)
    if not found.is_complete:
        again = _asking(request, workflow, action, found)
        return Reply(card=again.card, key=card_key, in_place=True, data=again.data)
    reply = await _started(request, workflow, action, found.values, source=f"start:{card_key}")
    text = request.words("workflows.started", name=workflow.name)
    await request.services.courier.send(
        request.chat.id, notice_card("", text), key=card_key, urgency=Urgency.ANSWER
    )
    return reply


async def _started(
    request: Request,
    workflow: NamedWorkflow,
    asked: FillWorkflow,
    values: Mapping[str, Value],
    *,
    source: str,
) -> Reply:
    ready = await request.services.workflows.ready(workflow.name, values)
    project_dir, in_git = await workplace(request, asked.folder)
    new = NewTask(
        title=formats.line(ready.title, _TITLE),
        instruction=ready.instruction,
        priority=asked.priority,
        chat_id=request.chat.id,
        created_by=request.person.id,
        source=source,
        reply_to=request.message_id,
        project_dir=project_dir,
        in_git=in_git,
        model=asked.model,
        backend=asked.backend,
        persona=await chosen_for_task(request, ""),
        files=asked.files,
    )
    task = await request.services.tasks.run_workflow(new, ready.body)
    if task.instruction != new.instruction:
        # The message was corrected after its task had been made.
        raise UserError("already_made", id=task.id)
    view = await request.services.tasks.view(task.id)
    card = task_card(view, request.words, now=request.now)
    return Reply(card=card, key=f"task:{task.id}", data=view_data(view))


def _asking(
    request: Request,
    workflow: NamedWorkflow,
    asked: FillWorkflow,
    found: Given,
) -> Reply:
    """One card with all that is wrong and a form for it; where a form would not help, a refusal
    that says what to type."""
    problems = problems_of(request, workflow.inputs, found)
    wanted = [each.input for each in found.wrong] + list(found.missing)
    if not wanted or found.unknown:
        told = "\n".join(f"- {each}" for each in problems)
        raise UserError("workflow_input", name=workflow.name, problems=told)
    # Asked in the order in which they were written, with what may be left out.
    open_ = [each for each in workflow.inputs if each in wanted or each.name not in found.values]
    known = tuple(found.said.items())
    action = FillWorkflow(
        name=workflow.name,
        known=known,
        files=asked.files,
        model=asked.model,
        backend=asked.backend,
        priority=asked.priority,
        folder=asked.folder,
    )
    card = input_form(workflow, open_, action, request.words, problems=problems)
    missing = [each.name for each in wanted]
    data = {"error": card.title, "missing": missing, "problems": list(problems)}
    return Reply(card=card, good=False, data=data)


def problems_of(request: Request, inputs: Sequence[WorkflowInput], found: Given) -> list[str]:
    words = request.words
    names = ", ".join(input_line(each, words) for each in inputs) or words("workflows.no_inputs")
    unknown = [
        words("workflows.unknown_input", name=formats.line(name, _SHOWN), names=names)
        for name in found.unknown
    ]
    return [*unknown, *(_problem(request, each) for each in found.wrong)]


def _problem(request: Request, wrong: Wrong) -> str:
    return request.words(
        f"workflows.wrong.{wrong.key}",
        label=formats.line(wrong.input.label, _SHOWN),
        text=formats.line(wrong.text, _SHOWN),
        options=formats.line(" / ".join(wrong.input.options), 200),
        most=MOST_TEXT,
    )
