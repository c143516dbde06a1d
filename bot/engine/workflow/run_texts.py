"""A run in words: steps with their placeholders filled in, the summary and the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.expressions.evaluator import escape_placeholders, fill_template
from bot.engine.workflow.expressions.operations import ExpressionError, value_as_text
from bot.engine.workflow.node_runs import ActivationPath, parse_activation, public_value
from bot.engine.workflow.nodes.contract import CallTypeSpec, NodeRole
from bot.engine.workflow.scheduler import WorkflowScheduler
from cards import formats
from storage.records.tasks import NodeRun, NodeStatus, Task

_PLACEHOLDER_MARKS = ("{{", "${")
_MAX_TITLE = 500
_MAX_DETAIL = 60_000
_EARLIEST = datetime.min.replace(tzinfo=UTC)


def render_step(
    scheduler: WorkflowScheduler, activation: ActivationPath, node: WorkflowNode, now: datetime
) -> WorkflowNode:
    """The step with its placeholders filled in and the path of this activation as its id. Long
    texts are truncated. Raises ExpressionError for a call that cannot be filled in.
    """
    if isinstance(node.spec, CallTypeSpec):
        filled = node.spec.fill(node.config, scheduler.context_of(activation, now))
        detail = escape_placeholders(node.spec.describe(filled))
        node = replace(node, config=filled, detail=detail)
    if not any(hole in text for _, text in node.templates for hole in _PLACEHOLDER_MARKS):
        return replace(node, id=activation.path) if activation.path != node.id else node
    seen = scheduler.context_of(activation, now)
    return replace(
        node,
        id=activation.path,
        title=formats.truncate(fill_template(node.title, seen.names, seen.warn), _MAX_TITLE),
        detail=_truncate_detail(fill_template(node.detail, seen.names, seen.warn)),
        deliverables=tuple(
            fill_template(name, seen.names, seen.warn) for name in node.deliverables
        ),
    )


def _truncate_detail(detail: str) -> str:
    if len(detail) <= _MAX_DETAIL:
        return detail
    left = len(detail) - _MAX_DETAIL
    return f"{detail[:_MAX_DETAIL]}…\n[{left} more characters of this text are left out.]"


def runs_visible_from(
    scheduler: WorkflowScheduler, activation: ActivationPath, runs: Mapping[str, NodeRun]
) -> Mapping[str, NodeRun]:
    """Every run by its path, and for each node id the run that counts for this activation."""
    return {**runs, **scheduler.visible_runs(activation.scope)}


def task_summary(task: Task, workflow: Workflow, runs: Mapping[str, NodeRun]) -> str:
    """The plan's own answer, or the summary of the last finished step."""
    if workflow.answer or not workflow.nodes:
        return workflow.answer
    steps = {node.id for node in workflow.nodes if node.role in {NodeRole.TASK, NodeRole.CALL}}
    done = [
        run
        for path, run in runs.items()
        if run.status is NodeStatus.DONE
        and (activation := parse_activation(path)) is not None
        and activation.node in steps
    ]
    last = max(done, key=lambda run: run.ended_at or _EARLIEST, default=None)
    return str(last.output.get("summary", task.summary)) if last else task.summary


def format_outputs(scheduler: WorkflowScheduler, now: datetime) -> str:
    """The workflow's outputs, one per line."""
    seen = scheduler.context("", now)
    lines = []
    for name, expression in scheduler.workflow.outputs.items():
        try:
            value = value_as_text(public_value(seen.evaluate(expression)))
        except ExpressionError as error:
            seen.warn(f"output {name!r} is left empty: {error}")
            value = ""
        lines.append(f"{name}: {value}")
    return "\n".join(lines)
