"""What a finished workflow has to say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from bot.engine.workflow.expressions.language import ExpressionError
from bot.engine.workflow.expressions.templates import as_text
from bot.engine.workflow.expressions.values import TEXT
from bot.engine.workflow.model.nodes import NodeType
from bot.engine.workflow.model.shape import Workflow
from bot.engine.workflow.routing.flow import Flow
from bot.engine.workflow.routing.paths import place_of
from storage.records.tasks import NodeRun, NodeStatus, Task

_INNER = {"made", "left_out", "heard"}
_EVER = datetime.min.replace(tzinfo=UTC)


def summary_of(task: Task, workflow: Workflow, runs: Mapping[str, NodeRun]) -> str:
    """What the last step said."""
    if workflow.answer or not workflow.nodes:
        return workflow.answer
    steps = {node.id for node in workflow.nodes if node.type == NodeType.TASK}
    done = [
        run
        for path, run in runs.items()
        if run.status is NodeStatus.DONE
        and (place := place_of(path)) is not None
        and place.node in steps
    ]
    last = max(done, key=lambda run: run.ended_at or _EVER, default=None)
    return str(last.output.get("summary", task.summary)) if last else task.summary


def given_back(flow: Flow, now: datetime) -> str:
    """What the workflow was to give back, a line each."""
    seen = flow.sight("", now)
    lines = []
    for name, expression in flow.workflow.outputs.items():
        try:
            value = as_text(plain(seen.value(expression)))
        except ExpressionError as error:
            seen.warn(f"output {name!r} is left empty: {error}")
            value = ""
        lines.append(f"{name}: {value}")
    return "\n".join(lines)


def plain(value: Any) -> Any:
    """A value as people get it: of an output its text, and nothing that only the engine uses."""
    if isinstance(value, Mapping):
        if TEXT in value:
            return plain(value[TEXT])
        if _INNER & value.keys() and "summary" in value:
            return value["summary"]
        return {name: plain(each) for name, each in value.items() if not is_inner(name)}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def is_inner(name: object) -> bool:
    """Whether what an output has there is kept for the engine alone."""
    return name in _INNER or (isinstance(name, str) and name.startswith("@"))
