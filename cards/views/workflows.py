"""Renders named workflows, their errors and input forms, and JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cards import formats, model
from cards.actions import (
    DeleteWorkflow,
    RunWorkflow,
    SaveTaskAsWorkflow,
    ShowWorkflow,
    SubmitWorkflowInputs,
)
from cards.catalog import TextCatalog
from cards.model import notice_card
from cards.views.diagnostics import diagnostic_data, diagnostic_lines, diagnostic_text
from storage.records.tasks import Task
from storage.records.workflows import (
    ChangeKind,
    DefinitionChange,
    Diagnostic,
    InvalidWorkflowFile,
    NamedWorkflow,
    RunDiff,
    WorkflowCatalog,
    WorkflowDrawing,
    WorkflowInput,
)


def workflows_data(shelf: WorkflowCatalog, words: TextCatalog) -> dict[str, Any]:
    return {
        "workflows": [checked_workflow_data(each, words) for each in shelf.workflows],
        "broken": [invalid_workflow_data(each, words) for each in shelf.invalid],
        "foreign": [diagnostic_data(each, words) for each in shelf.foreign],
        "left_out": shelf.left_out,
    }


def workflow_data(workflow: NamedWorkflow) -> dict[str, Any]:
    return {
        "name": workflow.name,
        "file": workflow.file,
        "title": workflow.title,
        "description": workflow.description,
        "inputs": [
            {
                "name": each.name,
                "title": each.title,
                "type": each.kind,
                "options": list(each.options),
                "default": each.default,
                "required": each.must_be_given,
            }
            for each in workflow.inputs
        ],
        "nodes": [
            {"id": each.id, "title": each.title, "type": each.type} for each in workflow.steps
        ],
        "outputs": list(workflow.outputs),
    }


def checked_workflow_data(workflow: NamedWorkflow, words: TextCatalog) -> dict[str, Any]:
    """A valid workflow with its warnings."""
    found = [diagnostic_data(each, words) for each in workflow.warnings]
    return {**workflow_data(workflow), "good": True, "diagnostics": found}


def invalid_workflow_data(bad: InvalidWorkflowFile, words: TextCatalog) -> dict[str, Any]:
    return {
        "name": bad.name,
        "file": bad.file,
        "good": False,
        "diagnostics": [diagnostic_data(each, words) for each in bad.errors],
    }


_MAX_LISTED = 40
_MAX_BUTTONS = 6
_MAX_LINE = 160
_MAX_SUMMARY = 1_000
_MAX_STEPS = 60
_MAX_MERMAID = 3_000
_MAX_LISTED_FAULTS = 8


def workflows_card(shelf: WorkflowCatalog, words: TextCatalog, *, folder: str) -> model.Card:
    """`folder` is where the reader may put files."""
    blocks: list[model.Block] = []
    if shelf.workflows:
        rows = [_workflow_row(each, words) for each in shelf.workflows[:_MAX_LISTED]]
        blocks.append(model.TextBlock("\n".join(rows)))
    if shelf.invalid:
        rows = [row for each in shelf.invalid[:_MAX_LISTED] for row in _bad_rows(each, words)]
        blocks.append(model.TextBlock("\n".join((words("workflows.broken"), "", *rows))))
    if not blocks:
        blocks.append(model.TextBlock(words("workflows.none", folder=folder)))
    if shelf.foreign:
        foreign = [
            f"- `{formats.single_line(each.file, 80)}`: {diagnostic_text(each, words)}"
            for each in shelf.foreign[:_MAX_LISTED_FAULTS]
        ]
        blocks.append(model.NoteBlock("\n".join(foreign)))
    hidden = shelf.left_out + max(0, len(shelf.workflows) - _MAX_LISTED)
    if hidden:
        blocks.append(model.NoteBlock(words("workflows.left_out", n=hidden)))
    if shelf.workflows:
        items = tuple(_run_button(each.name) for each in shelf.workflows[:_MAX_BUTTONS])
        blocks.append(model.ButtonsBlock(items))
    blocks.append(model.NoteBlock(words("workflows.hint")))
    tone = model.CardTone.WARN if shelf.invalid else model.CardTone.INFO
    return model.titled_card(words("workflows.title"), *blocks, tone=tone)


def workflow_card(
    workflow: NamedWorkflow, diagram: WorkflowDrawing, words: TextCatalog, *, owner: bool
) -> model.Card:
    blocks: list[model.Block] = []
    if about := _workflow_summary(workflow):
        blocks.append(model.TextBlock(about))
    blocks += inputs_blocks(workflow.inputs, words)
    rows = [
        f"{n}. {formats.single_line(title, _MAX_LINE)}"
        for n, title in enumerate(_step_titles(workflow, words), 1)
    ]
    head = words("workflows.steps", n=len(workflow.steps))
    blocks.append(model.TextBlock("\n".join((f"**{head}**", "", *rows))))
    if workflow.outputs:
        names = formats.single_line(", ".join(workflow.outputs), _MAX_LINE)
        blocks.append(model.NoteBlock(words("workflows.outputs", names=names)))
    blocks += _diagram_blocks(workflow, diagram, words)
    items = [model.CardButton(words("workflows.button.run"), RunWorkflow(name=workflow.name))]
    if owner:
        items.append(delete_button(workflow.name, words))
    blocks.append(model.ButtonsBlock(tuple(items)))
    blocks.append(model.NoteBlock(words("workflows.run_hint", line=run_command(workflow, ()))))
    title = words("workflows.looked_at", name=workflow.name)
    return model.titled_card(title, *blocks)


def validation_card(
    workflow: NamedWorkflow | InvalidWorkflowFile, words: TextCatalog
) -> model.Card:
    """Whether a text is a valid workflow."""
    if isinstance(workflow, InvalidWorkflowFile):
        return invalid_workflow_card(
            workflow.name or words("workflows.text"), workflow.errors, words
        )
    title = workflow.title or workflow.name or words("workflows.text")
    text = words(
        "workflows.good", name=formats.single_line(title, _MAX_LINE), n=len(workflow.steps)
    )
    if not workflow.warnings:
        return notice_card("", text, tone=model.CardTone.GOOD)
    rows = "\n".join(f"- {line}" for line in diagnostic_lines(workflow.warnings, words))
    blocks = (model.TextBlock(text), model.TextBlock(rows))
    return model.Card(tone=model.CardTone.WARN, blocks=blocks, summary=text)


def invalid_workflow_card(
    name: str, faults: Sequence[Diagnostic], words: TextCatalog
) -> model.Card:
    title = words("workflows.bad", name=formats.single_line(name, _MAX_LINE), n=len(faults))
    rows = "\n".join(f"- {line}" for line in diagnostic_lines(faults, words))
    blocks = (model.TextBlock(rows), model.NoteBlock(words("workflows.mend")))
    return model.titled_card(f"⚠️ {title}", *blocks, tone=model.CardTone.WARN, summary=title)


def workflow_saved_card(workflow: NamedWorkflow, words: TextCatalog) -> model.Card:
    text = words("workflows.saved", name=workflow.name, file=workflow.file)
    rows = [f"- {line}" for line in diagnostic_lines(workflow.warnings, words)]
    text = "\n".join((text, *rows))
    items = (
        _run_button(workflow.name),
        model.CardButton(words("workflows.button.show"), ShowWorkflow(name=workflow.name)),
    )
    return model.Card(
        tone=model.CardTone.GOOD,
        blocks=(model.TextBlock(text), model.ButtonsBlock(items)),
        summary=words("workflows.saved_line", name=workflow.name),
    )


def confirm_workflow_delete_card(name: str, words: TextCatalog) -> model.Card:
    """Asks for confirmation before a workflow is deleted."""
    button = model.CardButton(
        words("workflows.button.delete"), DeleteWorkflow(name=name), style=model.ButtonStyle.DANGER
    )
    text = words("workflows.delete_text", name=name)
    blocks = (model.TextBlock(text), model.ButtonsBlock((button,)))
    return model.titled_card(
        words("workflows.delete_title", name=name), *blocks, tone=model.CardTone.WARN
    )


def workflow_deleted_card(name: str, words: TextCatalog) -> model.Card:
    return notice_card("", words("workflows.deleted", name=name))


def delete_button(name: str, words: TextCatalog) -> model.CardButton:
    return model.CardButton(
        words("workflows.button.delete"),
        DeleteWorkflow(name=name),
        style=model.ButtonStyle.DANGER,
        confirm=model.ConfirmDialog(
            words("workflows.delete_title", name=name), words("workflows.delete_text", name=name)
        ),
    )


def inputs_blocks(inputs: Sequence[WorkflowInput], words: TextCatalog) -> list[model.Block]:
    if not inputs:
        return []
    rows = [f"- {input_line(each, words)}" for each in inputs]
    return [model.TextBlock("\n".join((f"**{words('workflows.inputs')}**", "", *rows)))]


def input_line(each: WorkflowInput, words: TextCatalog) -> str:
    """The input's name, purpose, accepted values and default."""
    title = f" {formats.single_line(each.title, _MAX_LINE)}" if each.title else ""
    name = f"`{each.name}`{title}"
    parts = [input_kind_label(each, words)]
    if each.default is not None:
        default = formats.single_line(str(input_value_label(each.default, words)), 80)
        parts.append(words("workflows.default", value=default))
    elif not each.required:
        parts.append(words("workflows.optional"))
    return words("workflows.input", name=name, facts=words("graph.comma").join(parts))


def input_kind_label(each: WorkflowInput, words: TextCatalog) -> str:
    if each.kind == "choice":
        return formats.single_line(" / ".join(each.options), _MAX_LINE)
    return words(f"workflows.kind.{each.kind}")


def input_value_label(value: object, words: TextCatalog) -> object:
    if isinstance(value, bool):
        return words("workflows.yes" if value else "workflows.no")
    return value


def run_command(workflow: NamedWorkflow, inputs: Sequence[WorkflowInput]) -> str:
    """The command that runs the workflow, with its required inputs."""
    required = inputs or [each for each in workflow.inputs if each.must_be_given]
    return " ".join((f"/workflow run {workflow.name}", *(f"{each.name}=…" for each in required)))


def _run_button(name: str) -> model.CardButton:
    return model.CardButton(f"▶️ {name}", RunWorkflow(name=name))


def _workflow_row(workflow: NamedWorkflow, words: TextCatalog) -> str:
    about = workflow.title if workflow.title != workflow.name else ""
    about = formats.single_line(about or workflow.description, _MAX_LINE)
    required = [each.name for each in workflow.inputs if each.must_be_given]
    asks = words("workflows.asks", names=", ".join(required)) if required else ""
    text = " · ".join(filter(None, (about, words("workflows.steps", n=len(workflow.steps)), asks)))
    return f"- **{workflow.name}**: {text}"


def _bad_rows(bad: InvalidWorkflowFile, words: TextCatalog) -> list[str]:
    faults = diagnostic_lines(bad.errors, words, most=_MAX_LISTED_FAULTS)
    return [f"- `{formats.single_line(bad.file, 80)}`", *(f"  - {line}" for line in faults)]


def _workflow_summary(workflow: NamedWorkflow) -> str:
    title = formats.single_line(workflow.title, _MAX_LINE)
    head = f"**{title}**" if title and title != workflow.name else ""
    return "\n\n".join(filter(None, (head, formats.truncate(workflow.description, _MAX_SUMMARY))))


def _step_titles(workflow: NamedWorkflow, words: TextCatalog) -> list[str]:
    titles = [
        f"{each.title or each.id} · {words(f'graph.type.{each.type}')}"
        if each.type != "task"
        else each.title or each.id
        for each in workflow.steps[:_MAX_STEPS]
    ]
    more = len(workflow.steps) - len(titles)
    return [*titles, words("workflows.more_steps", n=more)] if more else titles


def _diagram_blocks(
    workflow: NamedWorkflow, drawing: WorkflowDrawing, words: TextCatalog
) -> list[model.Block]:
    text = formats.truncate(drawing.mermaid, _MAX_MERMAID)
    blocks: list[model.Block] = []
    if drawing.png:
        alt = words("graph.drawing")
        return [model.ImageBlock(path=drawing.png, alt=alt, vector=drawing.svg)]
    if drawing.svg:
        blocks.append(
            model.FileBlock(path=drawing.svg, name=f"{workflow.name}.svg", size=drawing.size)
        )
    code = model.CodeBlock(text, language="mermaid")
    return [*blocks, model.CollapsibleBlock(words("workflows.drawing"), (code,))]


NAME_FIELD = "name"
_MAX_LABEL = 60
_MAX_INPUTS = 12


def workflow_input_form(
    workflow: NamedWorkflow,
    inputs: Sequence[WorkflowInput],
    action: SubmitWorkflowInputs,
    words: TextCatalog,
    *,
    problems: Sequence[str] = (),
) -> model.Card:
    """A form for these inputs; `problems` are errors in earlier values."""
    blocks: list[model.Block] = []
    if problems:
        blocks.append(model.TextBlock("\n".join(f"- ⚠️ {each}" for each in problems)))
    blocks.append(model.TextBlock(words("workflows.form_text", name=workflow.name)))
    blocks.append(
        model.FormBlock(
            fields=tuple(input_field(each, words) for each in inputs[:_MAX_INPUTS]),
            submit=words("workflows.button.start"),
            action=action,
        )
    )
    required = [each for each in inputs if each.must_be_given]
    blocks.append(
        model.NoteBlock(words("workflows.form_hint", line=run_command(workflow, required)))
    )
    title = words(
        "workflows.form_title", title=formats.single_line(workflow.title or workflow.name, 80)
    )
    return model.titled_card(title, *blocks)


def workflow_name_form(task: Task, words: TextCatalog, *, suggested: str) -> model.Card:
    field = model.FormField(
        name=NAME_FIELD, label=words("workflows.name_label"), required=False, placeholder=suggested
    )
    form = model.FormBlock(
        fields=(field,),
        submit=words("workflows.button.keep"),
        action=SaveTaskAsWorkflow(task_id=task.id),
    )
    text = words("workflows.keep_text", title=formats.single_line(task.title, 80), name=suggested)
    hint = model.NoteBlock(words("workflows.keep_hint", id=task.id))
    return model.titled_card(words("workflows.keep_title"), model.TextBlock(text), form, hint)


def input_field(each: WorkflowInput, words: TextCatalog) -> model.FormField:
    label = formats.single_line(each.label, _MAX_LABEL)
    options: tuple[model.SelectOption, ...] = ()
    if each.kind == "choice":
        options = tuple(model.SelectOption(formats.single_line(o, 60), o) for o in each.options)
    elif each.kind == "bool":
        options = (
            model.SelectOption(words("workflows.yes"), "yes"),
            model.SelectOption(words("workflows.no"), "no"),
        )
    return model.FormField(
        name=each.name,
        label=label,
        field=model.FormFieldKind.CHOICE if options else model.FormFieldKind.LINE,
        required=each.must_be_given,
        placeholder=_placeholder(each, words),
        options=options,
    )


def _placeholder(each: WorkflowInput, words: TextCatalog) -> str:
    if each.default is None:
        # The options are listed already.
        return "" if each.kind in {"choice", "bool"} else input_kind_label(each, words)
    return formats.single_line(str(input_value_label(each.default, words)), 80)


_CHANGE_MARKS = {ChangeKind.ADDED: "➕", ChangeKind.REMOVED: "➖", ChangeKind.CHANGED: "✏️"}
_MAX_CHANGES = 40
_MAX_CHANGED_VALUE = 80


def run_diff_card(task: Task, diff: RunDiff, words: TextCatalog) -> model.Card:
    """Show what was changed in the workflow since a task was started from it."""
    rows = [_change_row(each, words) for each in diff.changes[:_MAX_CHANGES]]
    if more := len(diff.changes) - len(rows):
        rows.append(f"- {words('graph.more', n=more)}")
    key = "workflows.diff.some" if rows else "workflows.diff.none"
    text = words(key, name=diff.name, n=len(diff.changes))
    blocks = [model.TextBlock(text), *([model.TextBlock("\n".join(rows))] if rows else [])]
    return model.titled_card(words("workflows.diff.title", id=task.id), *blocks)


def _change_row(change: DefinitionChange, words: TextCatalog) -> str:
    what = words(f"workflows.diff.{change.what}")
    name = f"`{formats.code_text(change.name, _MAX_LINE)}`" if change.name else ""
    line = " ".join(filter(None, (_CHANGE_MARKS[change.kind], what, name)))
    if change.kind is not ChangeKind.CHANGED:
        title = formats.single_line(change.before or change.after, _MAX_CHANGED_VALUE)
        return f"- {line} {formats.escape_markdown(title, _MAX_LINE)}".rstrip()
    before, after = (
        formats.code_text(formats.single_line(each, _MAX_CHANGED_VALUE) or "–", _MAX_LINE)
        for each in (change.before, change.after)
    )
    return f"- {line} · {change.field}: `{before}` → `{after}`"
