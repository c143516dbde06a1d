"""Serialization of a workflow into the file format; reading it again returns the same workflow."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bot.engine.workflow.definition import (
    InputDefinition,
    OnError,
    Workflow,
    WorkflowEdge,
    WorkflowNode,
)
from bot.engine.workflow.nodes.contract import OnLimit
from bot.engine.workflow.output_schema import output_to_data
from bot.engine.workflow.serialization.reader import default_parallelism


def workflow_to_data(workflow: Workflow) -> dict[str, Any]:
    """Data for JSON or YAML, without the state of a run such as input values."""
    settings: dict[str, Any] = {}
    if workflow.timeout is not None:
        settings["timeout"] = workflow.timeout
    if workflow.parallel != default_parallelism(workflow.nodes):
        settings["maxParallel"] = workflow.parallel
    return _without_empty(
        name=workflow.name,
        description=workflow.plan,
        version=workflow.version,
        inputs=[_input_data(each) for each in workflow.inputs],
        variables=dict(workflow.variables),
    ) | {
        "nodes": [_node_data(node) for node in workflow.nodes],
        "edges": [_edge_data(edge) for edge in workflow.edges],
        **_without_empty(outputs=dict(workflow.outputs), settings=settings, answer=workflow.answer),
    }


def _node_data(node: WorkflowNode) -> dict[str, Any]:
    data: dict[str, Any] = {"id": node.id, "type": str(node.type), "name": node.title}
    data |= _without_empty(prompt=node.detail, persona=node.persona, timeout=node.timeout)
    if node.on_error is not OnError.FAIL:
        data["onError"] = node.on_error.value
    if node.retry is not None:
        data["retry"] = {
            "maxAttempts": node.retry.max_attempts,
            "backoffMs": node.retry.backoff_ms,
            "backoffMultiplier": node.retry.multiplier,
        }
    data |= _without_empty(autoWait=node.auto_wait, output=output_to_data(node.output))
    if limits := {name: value for name, value in asdict(node.limits).items() if value is not None}:
        data["limits"] = limits
    if not node.repeatable:
        data["repeatable"] = False
    if node.config is not None:
        data[node.config.kind] = node.spec.write(node.config)
    return data


def _edge_data(edge: WorkflowEdge) -> dict[str, Any]:
    data = _without_empty(id=edge.id) | {"from": edge.source, "to": edge.target}
    data |= _without_empty(condition=edge.condition, maxLoops=edge.max_loops, label=edge.label)
    if edge.on_limit is not OnLimit.CONTINUE:
        data["onLimit"] = edge.on_limit.value
    return data


def _input_data(each: InputDefinition) -> dict[str, Any]:
    data = {"name": each.name, "type": each.kind, "required": each.required}
    data |= _without_empty(title=each.title, options=list(each.options))
    return data if each.default is None else data | {"default": each.default}


def _without_empty(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}
