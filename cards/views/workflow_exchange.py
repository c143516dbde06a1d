"""Renders cards about workflows as single documents and about the gallery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cards import formats, model
from cards.actions import ImportWorkflow, InstallWorkflow, RunWorkflow, ShowWorkflow
from cards.catalog import TextCatalog
from cards.views.diagnostics import diagnostic_data, diagnostic_lines
from cards.views.workflows import inputs_blocks
from storage.records.workflows import (
    GalleryWorkflow,
    ImportItem,
    ImportNeed,
    ImportPlan,
    NamedWorkflow,
    WorkflowExport,
)

_MAX_LISTED = 30
_MAX_FAULTS = 8
_MAX_NAME = 64
_MAX_DETAIL = 160
_MAX_TEXT = 3_000
_MAX_STEPS = 40
_MAX_BUTTONS = 10


def export_card(found: WorkflowExport, words: TextCatalog) -> model.Card:
    blocks: list[model.Block] = [model.TextBlock(words("workflows.exchange.exported_text"))]
    if found.file:
        name = f"{found.name}.workflow.yaml"
        blocks.append(model.FileBlock(path=found.file, name=name, size=found.size))
    else:
        shown = formats.truncate(formats.show_exactly(found.text), _MAX_TEXT)
        blocks.append(model.CodeBlock(shown, language="yaml"))
    return model.titled_card(words("workflows.exchange.exported", name=found.name), *blocks)


def import_card(
    plan: ImportPlan, words: TextCatalog, *, action: ImportWorkflow | None
) -> model.Card:
    """The complete effect of an import. `action` carries it out, or a command is shown."""
    name = formats.single_line(plan.name, _MAX_NAME)
    blocks: list[model.Block] = [model.TextBlock("\n".join(import_lines(plan, words)))]
    if action is not None:
        key = "replace" if plan.has_conflicts else "import"
        style = model.ButtonStyle.DANGER if plan.has_conflicts else model.ButtonStyle.PRIMARY
        button = model.CardButton(words(f"workflows.button.{key}"), action, style=style)
        blocks.append(model.ButtonsBlock((button,)))
    elif not plan.is_broken:
        blocks.append(model.NoteBlock(words("workflows.exchange.type_yes")))
    tone = model.CardTone.WARN if plan.is_broken or plan.has_conflicts else model.CardTone.INFO
    return model.titled_card(words("workflows.exchange.plan_title", name=name), *blocks, tone=tone)


def import_lines(plan: ImportPlan, words: TextCatalog) -> list[str]:
    """The workflows that an import would create or change, what their steps ask for, and what is
    missing."""
    lines = [line for each in plan.items[:_MAX_LISTED] for line in _item_lines(each, words)]
    if plan.needs:
        lines += ["", f"**{words('workflows.exchange.needs')}**", ""]
        lines += [f"- {need_text(each, words)}" for each in plan.needs[:_MAX_LISTED]]
        more = len(plan.needs) - _MAX_LISTED
        lines += [f"- {words('workflows.left_out', n=more)}"] if more > 0 else []
    missing = [
        words(f"workflows.exchange.missing_{kind}", names=_names(names))
        for kind, names in (
            ("personas", plan.missing_personas),
            ("skills", plan.missing_skills),
            ("workflows", plan.missing_workflows),
        )
        if names
    ]
    if missing:
        lines += ["", *(f"- ⚠️ {each}" for each in missing)]
    return lines


def need_text(need: ImportNeed, words: TextCatalog) -> str:
    detail = formats.escape_markdown(formats.single_line(need.detail, _MAX_DETAIL), _MAX_DETAIL)
    text = words(f"workflows.exchange.need_{need.kind}", detail=detail)
    place = " · ".join(filter(None, (need.workflow, need.step)))
    return f"`{formats.code_text(place, _MAX_DETAIL)}` {text}"


def imported_card(plan: ImportPlan, workflow: NamedWorkflow, words: TextCatalog) -> model.Card:
    text = words("workflows.exchange.imported", name=workflow.name)
    if missing := (*plan.missing_personas, *plan.missing_skills, *plan.missing_workflows):
        text += f"\n\n⚠️ {words('workflows.exchange.missing', names=_names(missing))}"
    items = (
        model.CardButton(f"▶️ {workflow.name}", RunWorkflow(name=workflow.name)),
        model.CardButton(words("workflows.button.show"), ShowWorkflow(name=workflow.name)),
    )
    return model.Card(
        tone=model.CardTone.GOOD,
        blocks=(model.TextBlock(text), model.ButtonsBlock(items)),
        summary=words("workflows.saved_line", name=workflow.name),
    )


def gallery_card(found: Sequence[NamedWorkflow], words: TextCatalog) -> model.Card:
    rows = [
        f"- **{each.name}** {formats.single_line(each.title, _MAX_NAME)}: "
        f"{formats.single_line(each.description, _MAX_DETAIL)}"
        for each in found
    ]
    items = tuple(
        model.CardButton(f"➕ {each.name}", InstallWorkflow(name=each.name))
        for each in found[:_MAX_BUTTONS]
    )
    return model.titled_card(
        words("workflows.gallery.title"),
        model.TextBlock("\n".join(rows)),
        model.ButtonsBlock(items),
        model.NoteBlock(words("workflows.gallery.hint")),
    )


def gallery_workflow_card(item: GalleryWorkflow, words: TextCatalog, *, owner: bool) -> model.Card:
    workflow = item.workflow
    steps = "\n".join(
        f"{n}. {formats.single_line(each.title or each.id, _MAX_DETAIL)}"
        for n, each in enumerate(workflow.steps[:_MAX_STEPS], 1)
    )
    blocks: list[model.Block] = [
        model.TextBlock(workflow.description),
        *inputs_blocks(workflow.inputs, words),
        model.TextBlock(steps),
    ]
    if owner:
        button = model.CardButton(
            words("workflows.button.install"), InstallWorkflow(name=workflow.name)
        )
        blocks.append(model.ButtonsBlock((button,)))
    code = model.CodeBlock(formats.truncate(item.text, _MAX_TEXT), language="yaml")
    blocks.append(model.CollapsibleBlock("YAML", (code,)))
    return model.titled_card(f"🧭 {workflow.title}", *blocks)


def import_data(plan: ImportPlan, words: TextCatalog) -> dict[str, Any]:
    return {
        "name": plan.name,
        "hash": plan.hash,
        "good": not plan.is_broken,
        "items": [
            {
                "name": each.name,
                "kind": "tests" if each.is_test else "workflow",
                "state": each.state.value,
                "diagnostics": [diagnostic_data(fault, words) for fault in each.errors],
            }
            for each in plan.items
        ],
        "needs": [
            {"workflow": each.workflow, "step": each.step, "kind": each.kind, "detail": each.detail}
            for each in plan.needs
        ],
        "missing": {
            "personas": list(plan.missing_personas),
            "skills": list(plan.missing_skills),
            "workflows": list(plan.missing_workflows),
        },
    }


def _item_lines(item: ImportItem, words: TextCatalog) -> list[str]:
    kind = words("workflows.exchange.tests" if item.is_test else "workflows.exchange.workflow")
    name = formats.single_line(item.name, _MAX_NAME)
    state = words(f"workflows.exchange.state_{item.state}")
    faults = diagnostic_lines(item.errors, words, most=_MAX_FAULTS)
    return [f"- {kind} **{name}**: {state}", *(f"  - ⚠️ {each}" for each in faults)]


def _names(names: Sequence[str]) -> str:
    return formats.single_line(", ".join(names), _MAX_DETAIL)
