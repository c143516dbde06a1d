"""Named workflows: all of them, one in full, and what became of one."""

from __future__ import annotations

from collections.abc import Sequence

from cards import formats
from cards.model import (
    Block,
    Button,
    Buttons,
    ButtonStyle,
    Card,
    Code,
    Collapsible,
    Confirm,
    File,
    Note,
    Text,
    Tone,
)
from cards.views.errors import notice_card
from cards.views.workflows.faults import fault_lines
from cards.words import Words
from cards.workflow_actions import DeleteWorkflow, RunWorkflow, ShowWorkflow
from storage.records.workers.workflows import (
    BadWorkflow,
    Drawn,
    NamedWorkflow,
    WorkflowFault,
    WorkflowInput,
    WorkflowShelf,
)

_LISTED = 40
_BUTTONS = 6
_LINE = 160
_ABOUT = 1_000
_STEPS = 60
_MERMAID = 3_000
_FAULTS = 8


def shelf_card(shelf: WorkflowShelf, words: Words, *, folder: str) -> Card:
    """`folder` is where its reader may put files."""
    blocks: list[Block] = []
    if shelf.workflows:
        rows = [_row(each, words) for each in shelf.workflows[:_LISTED]]
        blocks.append(Text(markdown="\n".join(rows)))
    if shelf.bad:
        rows = [row for each in shelf.bad[:_LISTED] for row in _bad_rows(each, words)]
        blocks.append(Text(markdown="\n".join((words("workflows.broken"), "", *rows))))
    if not blocks:
        blocks.append(Text(markdown=words("workflows.none", folder=folder)))
    hidden = shelf.left_out + max(0, len(shelf.workflows) - _LISTED)
    if hidden:
        blocks.append(Note(markdown=words("workflows.left_out", n=hidden)))
    if shelf.workflows:
        items = tuple(_run_button(each.name) for each in shelf.workflows[:_BUTTONS])
        blocks.append(Buttons(items=items))
    blocks.append(Note(markdown=words("workflows.hint")))
    title = words("workflows.title")
    tone = Tone.WARN if shelf.bad else Tone.INFO
    return Card(title=title, tone=tone, blocks=tuple(blocks), summary=title)


def workflow_card(workflow: NamedWorkflow, drawn: Drawn, words: Words, *, owner: bool) -> Card:
    blocks: list[Block] = []
    if about := _about(workflow):
        blocks.append(Text(markdown=about))
    blocks += inputs_blocks(workflow.inputs, words)
    rows = [_step(n, title) for n, title in enumerate(_titles(workflow, words), 1)]
    head = words("workflows.steps", n=len(workflow.steps))
    blocks.append(Text(markdown="\n".join((f"**{head}**", "", *rows))))
    if workflow.outputs:
        names = formats.line(", ".join(workflow.outputs), _LINE)
        blocks.append(Note(markdown=words("workflows.outputs", names=names)))
    blocks += _drawing(workflow, drawn, words)
    items = [Button(label=words("workflows.button.run"), action=RunWorkflow(name=workflow.name))]
    if owner:
        items.append(delete_button(workflow.name, words))
    blocks.append(Buttons(items=tuple(items)))
    blocks.append(Note(markdown=words("workflows.run_hint", line=run_line(workflow, ()))))
    title = words("workflows.looked_at", name=workflow.name)
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def judged_card(judged: NamedWorkflow | BadWorkflow, words: Words) -> Card:
    """Whether a text can be run."""
    if isinstance(judged, BadWorkflow):
        return broken_card(judged.name or words("workflows.text"), judged.faults, words)
    title = judged.title or judged.name or words("workflows.text")
    text = words("workflows.good", name=formats.line(title, _LINE), n=len(judged.steps))
    return notice_card("", text, tone=Tone.GOOD)


def broken_card(name: str, faults: Sequence[WorkflowFault], words: Words) -> Card:
    title = words("workflows.bad", name=formats.line(name, _LINE), n=len(faults))
    rows = "\n".join(f"- {line}" for line in fault_lines(faults, words))
    blocks = (Text(markdown=rows), Note(markdown=words("workflows.mend")))
    return Card(title=f"⚠️ {title}", tone=Tone.WARN, blocks=blocks, summary=title)


def saved_card(workflow: NamedWorkflow, words: Words) -> Card:
    text = words("workflows.saved", name=workflow.name, file=workflow.file)
    items = (
        _run_button(workflow.name),
        Button(label=words("workflows.button.show"), action=ShowWorkflow(name=workflow.name)),
    )
    return Card(
        tone=Tone.GOOD,
        blocks=(Text(markdown=text), Buttons(items=items)),
        summary=words("workflows.saved_line", name=workflow.name),
    )


def confirm_card(name: str, words: Words) -> Card:
    """Nothing is deleted by one word."""
    button = Button(
        label=words("workflows.button.delete"),
        action=DeleteWorkflow(name=name),
        style=ButtonStyle.DANGER,
    )
    title = words("workflows.delete_title", name=name)
    text = words("workflows.delete_text", name=name)
    blocks = (Text(markdown=text), Buttons(items=(button,)))
    return Card(title=title, tone=Tone.WARN, blocks=blocks, summary=title)


def deleted_card(name: str, words: Words) -> Card:
    return notice_card("", words("workflows.deleted", name=name))


def delete_button(name: str, words: Words) -> Button:
    return Button(
        label=words("workflows.button.delete"),
        action=DeleteWorkflow(name=name),
        style=ButtonStyle.DANGER,
        confirm=Confirm(
            title=words("workflows.delete_title", name=name),
            text=words("workflows.delete_text", name=name),
        ),
    )


def inputs_blocks(inputs: Sequence[WorkflowInput], words: Words) -> list[Block]:
    if not inputs:
        return []
    rows = [f"- {input_line(each, words)}" for each in inputs]
    return [Text(markdown="\n".join((f"**{words('workflows.inputs')}**", "", *rows)))]


def input_line(each: WorkflowInput, words: Words) -> str:
    """Its name, what it is for, what fits, and what counts without it."""
    title = f" {formats.line(each.title, _LINE)}" if each.title else ""
    parts = [fits(each, words)]
    if each.default is not None:
        shown = formats.line(str(shown_value(each.default, words)), 80)
        parts.append(words("workflows.default", value=shown))
    elif not each.required:
        parts.append(words("workflows.optional"))
    return f"`{each.name}`{title} ({', '.join(parts)})"


def fits(each: WorkflowInput, words: Words) -> str:
    if each.kind == "choice":
        return formats.line(" / ".join(each.options), _LINE)
    return words(f"workflows.kind.{each.kind}")


def shown_value(value: object, words: Words) -> object:
    if isinstance(value, bool):
        return words("workflows.yes" if value else "workflows.no")
    return value


def run_line(workflow: NamedWorkflow, wanted: Sequence[WorkflowInput]) -> str:
    """What to type to run it, with the inputs that have to be given."""
    asked = wanted or [each for each in workflow.inputs if each.is_open]
    return " ".join((f"/workflow run {workflow.name}", *(f"{each.name}=…" for each in asked)))


def _run_button(name: str) -> Button:
    return Button(label=f"▶️ {name}", action=RunWorkflow(name=name))


def _row(workflow: NamedWorkflow, words: Words) -> str:
    about = workflow.title if workflow.title != workflow.name else ""
    about = formats.line(about or workflow.description, _LINE)
    wanted = [each.name for each in workflow.inputs if each.is_open]
    asks = words("workflows.asks", names=", ".join(wanted)) if wanted else ""
    told = " · ".join(filter(None, (about, words("workflows.steps", n=len(workflow.steps)), asks)))
    return f"- **{workflow.name}**: {told}"


def _bad_rows(bad: BadWorkflow, words: Words) -> list[str]:
    faults = fault_lines(bad.faults, words, most=_FAULTS)
    return [f"- `{formats.line(bad.file, 80)}`", *(f"  - {line}" for line in faults)]


def _about(workflow: NamedWorkflow) -> str:
    title = formats.line(workflow.title, _LINE)
    head = f"**{title}**" if title and title != workflow.name else ""
    return "\n\n".join(filter(None, (head, formats.cut(workflow.description, _ABOUT))))


def _titles(workflow: NamedWorkflow, words: Words) -> list[str]:
    titles = [
        f"{each.title or each.id} · {words(f'graph.type.{each.type}')}"
        if each.type != "task"
        else each.title or each.id
        for each in workflow.steps[:_STEPS]
    ]
    more = len(workflow.steps) - len(titles)
    return [*titles, words("workflows.more_steps", n=more)] if more else titles


def _step(n: int, title: str) -> str:
    return f"{n}. {formats.line(title, _LINE)}"


def _drawing(workflow: NamedWorkflow, drawn: Drawn, words: Words) -> list[Block]:
    text = formats.cut(drawn.mermaid, _MERMAID)
    blocks: list[Block] = []
    if drawn.svg:
        blocks.append(File(path=drawn.svg, name=f"{workflow.name}.svg", size=drawn.size))
    code = Code(text=text, language="mermaid")
    return [*blocks, Collapsible(title=words("workflows.drawing"), blocks=(code,))]
