"""What is asked before a workflow runs, and what a kept one is to be called."""

from __future__ import annotations

from collections.abc import Sequence

from cards import formats
from cards.model import Block, Card, FieldKind, Form, FormField, Note, Option, Text, Tone
from cards.views.workflows.shelf import fits, run_line, shown_value
from cards.words import Words
from cards.workflow_actions import FillWorkflow, KeepWorkflow
from storage.records.tasks import Task
from storage.records.workers.workflows import NamedWorkflow, WorkflowInput

NAME = "name"
_LABEL = 60
_MOST = 12


def input_form(
    workflow: NamedWorkflow,
    asked: Sequence[WorkflowInput],
    action: FillWorkflow,
    words: Words,
    *,
    problems: Sequence[str] = (),
) -> Card:
    """Asks for these; `problems` are what was wrong with what was given."""
    blocks: list[Block] = []
    if problems:
        blocks.append(Text(markdown="\n".join(f"- ⚠️ {each}" for each in problems)))
    blocks.append(Text(markdown=words("workflows.form_text", name=workflow.name)))
    blocks.append(
        Form(
            fields=tuple(_field(each, words) for each in asked[:_MOST]),
            submit=words("workflows.button.start"),
            action=action,
        )
    )
    wanted = [each for each in asked if each.is_open]
    blocks.append(Note(markdown=words("workflows.form_hint", line=run_line(workflow, wanted))))
    title = words("workflows.form_title", title=formats.line(workflow.title or workflow.name, 80))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def name_form(task: Task, words: Words, *, suggested: str) -> Card:
    field = FormField(
        name=NAME, label=words("workflows.name_label"), required=False, placeholder=suggested
    )
    form = Form(
        fields=(field,),
        submit=words("workflows.button.keep"),
        action=KeepWorkflow(task_id=task.id),
    )
    title = words("workflows.keep_title")
    text = words("workflows.keep_text", title=formats.line(task.title, 80), name=suggested)
    hint = Note(markdown=words("workflows.keep_hint", id=task.id))
    return Card(
        title=title, tone=Tone.INFO, blocks=(Text(markdown=text), form, hint), summary=title
    )


def _field(each: WorkflowInput, words: Words) -> FormField:
    label = formats.line(each.label, _LABEL)
    options: tuple[Option, ...] = ()
    if each.kind == "choice":
        options = tuple(Option(label=formats.line(o, 60), value=o) for o in each.options)
    elif each.kind == "bool":
        options = (
            Option(label=words("workflows.yes"), value="yes"),
            Option(label=words("workflows.no"), value="no"),
        )
    return FormField(
        name=each.name,
        label=label,
        field=FieldKind.CHOICE if options else FieldKind.LINE,
        required=each.is_open,
        placeholder=_placeholder(each, words),
        options=options,
    )


def _placeholder(each: WorkflowInput, words: Words) -> str:
    if each.default is None:
        # What may be chosen is listed already.
        return "" if each.kind in {"choice", "bool"} else fits(each, words)
    return formats.line(str(shown_value(each.default, words)), 80)
