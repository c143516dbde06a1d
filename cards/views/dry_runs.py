"""Renders dry runs and test cases of workflows, and JSON for programs."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from cards import formats, model
from cards.catalog import TextCatalog
from cards.views.diagnostics import compiler_line, diagnostic_data, diagnostic_lines
from storage.records.dry_runs import (
    CaseResult,
    CostBounds,
    DryRunEnd,
    DryRunNode,
    EvaluatedExpression,
    WorkflowDryRun,
    WorkflowTestReport,
)
from storage.records.tasks import NodeStatus

_MARKS = {
    NodeStatus.DONE: "✅",
    NodeStatus.FAILED: "❌",
    NodeStatus.SKIPPED: "⏭️",
    NodeStatus.CANCELLED: "🚫",
    NodeStatus.WAITING: "⏳",
    NodeStatus.RUNNING: "⏳",
    NodeStatus.PENDING: "❌",
}
_END_MARKS = {
    DryRunEnd.COMPLETED: "✅",
    DryRunEnd.FAILED: "❌",
    DryRunEnd.BLOCKED: "⛔",
    DryRunEnd.CANCELLED: "🛑",
    DryRunEnd.UNDECIDED: "❓",
    DryRunEnd.TOO_LONG: "❌",
}
_MAX_ROWS = 40
_MAX_PROMPTS = 6
_MAX_PROMPT = 3_000
_MAX_LINE = 160
_MAX_CASES = 30


def dry_run_lines(run: WorkflowDryRun, words: TextCatalog, *, prompts: bool = True) -> list[str]:
    """The complete dry run as lines of text, including each worker's prompt."""
    lines = [f"{run.name}: {_end_text(run, words)}"]
    for each in run.nodes:
        lines.append(f"  {_node_text(each, words)}")
        if prompts and each.prompt:
            lines += [f"      │ {line}" for line in each.prompt.splitlines()]
    return [*lines, *_notes(run, words)]


def dry_run_card(run: WorkflowDryRun, words: TextCatalog) -> model.Card:
    rows = [f"- {_node_text(each, words)}" for each in run.nodes[:_MAX_ROWS]]
    if len(run.nodes) > _MAX_ROWS:
        rows.append(words("workflows.more_steps", n=len(run.nodes) - _MAX_ROWS))
    title = words("workflows.dry_run.title", name=formats.single_line(run.name, 80))
    blocks: list[model.Block] = [model.TextBlock(_end_text(run, words))]
    if rows:
        blocks.append(model.TextBlock("\n".join(rows)))
    for each in [each for each in run.nodes if each.prompt][:_MAX_PROMPTS]:
        head = words("workflows.dry_run.told", step=formats.single_line(each.label, 80))
        code = model.CodeBlock(formats.truncate(each.prompt, _MAX_PROMPT))
        blocks.append(model.CollapsibleBlock(head, (code,)))
    if notes := _notes(run, words):
        blocks.append(model.NoteBlock("\n".join(notes)))
    good = run.end is DryRunEnd.COMPLETED
    tone = model.CardTone.GOOD if good else model.CardTone.WARN
    return model.titled_card(title, *blocks, tone=tone)


def dry_run_data(run: WorkflowDryRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "end": run.end.value,
        "reason": run.reason,
        "undecided": run.undecided,
        "path": list(run.path),
        "nodes": [_node_data(each) for each in run.nodes],
        "skipped": list(run.skipped),
        "not_given": list(run.not_given),
        "outputs": dict(run.outputs),
        "missing_outputs": dict(run.missing_outputs),
        "cost": None if run.cost is None else _cost_data(run.cost),
        "model": run.model,
    }


def case_lines(report: WorkflowTestReport, words: TextCatalog, *, file: str) -> list[str]:
    """Each test case with its differences, then the totals."""
    lines = [compiler_line(each, words, file=file) for each in report.faults]
    for case in report.cases:
        lines.append(f"{_case_mark(case)} {report.name}: {case.name}")
        lines += [f"    {line}" for line in _difference_lines(case, words)]
    return [*lines, _sum_text(report, words)]


def cases_card(report: WorkflowTestReport, words: TextCatalog) -> model.Card:
    blocks: list[model.Block] = [model.TextBlock(_sum_text(report, words))]
    if report.faults:
        rows = [f"- {line}" for line in diagnostic_lines(report.faults, words)]
        blocks.append(model.TextBlock("\n".join(rows)))
    rows = []
    for case in report.cases[:_MAX_CASES]:
        rows.append(f"- {_case_mark(case)} {formats.single_line(case.name, _MAX_LINE)}")
        rows += [f"  - {line}" for line in _difference_lines(case, words)]
    if rows:
        blocks.append(model.TextBlock("\n".join(rows)))
    title = words("workflows.tests.title", name=formats.single_line(report.name, 80))
    tone = model.CardTone.GOOD if report.has_passed else model.CardTone.WARN
    return model.titled_card(title, *blocks, tone=tone)


def cases_data(report: WorkflowTestReport, words: TextCatalog) -> dict[str, Any]:
    return {
        "name": report.name,
        "file": report.file,
        "passed": report.has_passed,
        "diagnostics": [diagnostic_data(each, words) for each in report.faults],
        "cases": [
            {
                "name": case.name,
                "passed": not case.differences,
                "end": case.run.end.value,
                "path": list(case.run.path),
                "differences": [
                    {"field": each.field, "expected": each.expected, "got": each.got}
                    for each in case.differences
                ],
            }
            for case in report.cases
        ],
    }


def evaluation_card(found: EvaluatedExpression, words: TextCatalog) -> model.Card:
    blocks: list[model.Block] = []
    if found.error:
        blocks.append(model.TextBlock(words("workflows.eval.error", why=found.error[:_MAX_LINE])))
    else:
        shown = json.dumps(found.value, ensure_ascii=False, indent=2, default=str)
        blocks.append(model.CodeBlock(formats.truncate(shown, _MAX_PROMPT)))
        blocks.append(model.TextBlock(words("workflows.eval.type", type=found.type)))
    if found.names:
        names = ", ".join(f"`{formats.single_line(each, 60)}`" for each in found.names)
        blocks.append(model.TextBlock(words("workflows.eval.names", names=names)))
    if found.path:
        path = formats.single_line(found.path, 80)
        blocks.append(model.NoteBlock(words("workflows.eval.at", path=path)))
    tone = model.CardTone.WARN if found.error else model.CardTone.GOOD
    return model.titled_card(words("workflows.eval.title"), *blocks, tone=tone)


def evaluation_data(found: EvaluatedExpression) -> dict[str, Any]:
    data: dict[str, Any] = {"path": found.path}
    if found.error:
        return {**data, "error": found.error, "names": list(found.names)}
    return {**data, "value": found.value, "type": found.type}


def _end_text(run: WorkflowDryRun, words: TextCatalog) -> str:
    text = words(f"workflows.dry_run.end.{run.end}")
    subject = f"`{formats.single_line(run.undecided, _MAX_LINE)}`" if run.undecided else ""
    why = formats.single_line(subject or run.reason, 2 * _MAX_LINE)
    return f"{_END_MARKS[run.end]} {text} {why}".rstrip()


def _node_text(each: DryRunNode, words: TextCatalog) -> str:
    title = formats.single_line(each.title, _MAX_LINE)
    text = f"{_MARKS[each.status]} `{each.label}`"
    if title and title != each.id:
        text += f" {title}"
    if each.type != "task":
        text += f" · {words.get_or_literal(f'graph.type.{each.type}')}"
    if each.time_limit is not None:
        text += f" · {formats.time_limit(each.time_limit, words)}"
    if each.taken:
        text += f" → {', '.join(each.taken)}"
    if each.asks and each.type != "human":
        text += f" ({words('workflows.dry_run.asks')})"
    return f"{text}: {formats.single_line(each.error, _MAX_LINE)}" if each.error else text


def _notes(run: WorkflowDryRun, words: TextCatalog) -> list[str]:
    notes: list[str] = []
    if run.skipped:
        names = formats.single_line(", ".join(run.skipped), 2 * _MAX_LINE)
        notes.append(words("workflows.dry_run.skipped", names=names))
    if run.not_given:
        names = formats.single_line(", ".join(run.not_given), 2 * _MAX_LINE)
        notes.append(words("workflows.dry_run.not_given", names=names))
    for name, value in run.outputs.items():
        shown = formats.single_line(str(value), _MAX_LINE)
        notes.append(words("workflows.dry_run.output", name=name, value=shown))
    for name, why in run.missing_outputs.items():
        shown = formats.single_line(why, _MAX_LINE)
        notes.append(words("workflows.dry_run.no_output", name=name, why=shown))
    if run.cost is not None:
        notes.append(_cost_text(run.cost, run.model, words))
        notes.append(words("workflows.dry_run.added"))
    return notes


def _cost_text(cost: CostBounds, model_name: str, words: TextCatalog) -> str:
    facts = {
        "least": formats.compact_number(cost.least_input),
        "most": formats.compact_number(cost.most_input),
        "output": formats.compact_number(cost.most_output),
    }
    text = words("workflows.dry_run.tokens", **facts)
    if cost.least is None or cost.most is None:
        return text
    low, high = (formats.money(_micros(each)) for each in (cost.least, cost.most))
    return f"{text} {words('workflows.dry_run.money', least=low, most=high, model=model_name)}"


def _micros(dollars: Decimal) -> int:
    return int(dollars * 1_000_000)


def _cost_data(cost: CostBounds) -> dict[str, Any]:
    return {
        "least_input_tokens": cost.least_input,
        "most_input_tokens": cost.most_input,
        "most_output_tokens": cost.most_output,
        "least_dollars": None if cost.least is None else str(cost.least),
        "most_dollars": None if cost.most is None else str(cost.most),
    }


def _node_data(each: DryRunNode) -> dict[str, Any]:
    return {
        "path": each.path,
        "label": each.label,
        "id": each.id,
        "type": each.type,
        "title": each.title,
        "is_step": each.is_step,
        "status": each.status.value,
        "persona": each.persona,
        "taken": list(each.taken),
        "output": dict(each.output),
        "error": each.error,
        "prompt": each.prompt,
        "system": each.system,
        "asks": each.asks,
        "waits_until": each.waits_until.isoformat() if each.waits_until else None,
        "is_given": each.is_given,
        "cost": None if each.cost is None else _cost_data(each.cost),
    }


def _case_mark(case: CaseResult) -> str:
    return "❌" if case.differences else "✅"


def _difference_lines(case: CaseResult, words: TextCatalog) -> list[str]:
    return [
        line
        for each in case.differences
        for line in (
            words(
                "workflows.tests.expected",
                field=each.field,
                value=formats.single_line(each.expected, 2 * _MAX_LINE),
            ),
            words(
                "workflows.tests.got",
                field=each.field,
                value=formats.single_line(each.got, 2 * _MAX_LINE) or "–",
            ),
        )
    ]


def _sum_text(report: WorkflowTestReport, words: TextCatalog) -> str:
    failed = sum(bool(case.differences) for case in report.cases)
    passed = len(report.cases) - failed
    mark = "✅" if report.has_passed else "❌"
    text = words("workflows.tests.sum", name=report.name, passed=passed, failed=failed)
    return f"{mark} {text}"
