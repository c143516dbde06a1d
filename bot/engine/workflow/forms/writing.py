"""A workflow in the form in which it is kept in files: read again it is the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from bot.engine.workflow.forms.completing import parallel_of
from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.nodes import OnError, OnLimit
from bot.engine.workflow.model.shape import Edge, Input, Node, Workflow


def written(workflow: Workflow) -> dict[str, Any]:
    """As data for JSON or YAML. What belongs to one run of it, such as values of its inputs, is
    left out."""
    settings: dict[str, Any] = {}
    if workflow.timeout is not None:
        settings["timeout"] = workflow.timeout
    if workflow.parallel != parallel_of(workflow.nodes):
        settings["maxParallel"] = workflow.parallel
    return _given(
        name=workflow.name,
        description=workflow.plan,
        version=workflow.version,
        inputs=[_input(each) for each in workflow.inputs],
        variables=dict(workflow.variables),
    ) | {
        "nodes": [_node(node) for node in workflow.nodes],
        "edges": [_edge(edge) for edge in workflow.edges],
        **_given(outputs=dict(workflow.outputs), settings=settings, answer=workflow.answer),
    }


def _node(node: Node) -> dict[str, Any]:
    told: dict[str, Any] = {"id": node.id, "type": str(node.type), "name": node.title}
    told |= _given(prompt=node.detail, persona=node.persona, timeout=node.timeout)
    if node.on_error is not OnError.FAIL:
        told["onError"] = node.on_error.value
    if node.retry is not None:
        told["retry"] = {
            "maxAttempts": node.retry.max_attempts,
            "backoffMs": node.retry.backoff_ms,
            "backoffMultiplier": node.retry.multiplier,
        }
    if node.auto_wait:
        told["autoWait"] = True
    if not node.repeatable:
        told["repeatable"] = False
    if node.config is not None:
        told[node.config.kind] = _config(node.config)
    return told


def _config(config: nodes.Config) -> dict[str, Any]:  # noqa: PLR0911 - one for each type
    match config:
        case nodes.Join(mode=mode, n=n):
            return {"mode": mode, **_given(n=n)}
        case nodes.Human():
            told = _given(assignee=list(config.assignee), timeout=config.timeout)
            return told | _given(autoApprove=config.auto_approve)
        case nodes.Delay(seconds=seconds):
            return {"value": seconds, "unit": "s"}
        case nodes.Schedule(cron=cron, at=at, timezone=zone):
            return _given(cron=cron, datetime=at, timezone=zone)
        case nodes.Loop():
            return _loop(config)
        case nodes.Foreach():
            return _foreach(config)
        case nodes.Switch(expression=expression, cases=cases, default=default):
            listed = [{"value": each.value, "targetNode": each.target} for each in cases]
            return {"expression": expression, "cases": listed, "defaultTarget": default}
        case nodes.Assign(assignments=assignments):
            return {"assignments": _assignments(assignments)}
        case nodes.Script(expression=expression, output=output, assignments=assignments):
            told = _given(expression=expression, outputVar=output)
            return told | _given(assignments=_assignments(assignments))
        case never:
            assert_never(never)


def _loop(config: nodes.Loop) -> dict[str, Any]:
    return _given(condition=config.condition) | {
        "type": config.mode,
        "init": config.init,
        "end": config.end,
        "step": config.step,
        "loopVar": config.var,
        "maxIterations": config.max_iterations,
        "onLimit": config.on_limit.value,
        "bodyNodes": list(config.body),
    }


def _foreach(config: nodes.Foreach) -> dict[str, Any]:
    return {
        "collection": config.collection,
        "itemVar": config.item_var,
        "indexVar": config.index_var,
        "mode": config.mode,
        "maxParallel": config.max_parallel,
        "maxIterations": config.max_iterations,
        "bodyNodes": list(config.body),
    }


def _assignments(assignments: Iterable[nodes.Assignment]) -> list[dict[str, Any]]:
    return [
        {"variable": each.variable, "value": each.value, **_given(isExpression=each.is_expression)}
        for each in assignments
    ]


def _edge(edge: Edge) -> dict[str, Any]:
    told = _given(id=edge.id) | {"from": edge.source, "to": edge.target}
    told |= _given(condition=edge.condition, maxLoops=edge.max_loops, label=edge.label)
    if edge.on_limit is not OnLimit.CONTINUE:
        told["onLimit"] = edge.on_limit.value
    return told


def _input(each: Input) -> dict[str, Any]:
    told = {"name": each.name, "type": each.kind, "required": each.required}
    told |= _given(title=each.title, options=list(each.options))
    return told if each.default is None else told | {"default": each.default}


def _given(**fields: Any) -> dict[str, Any]:
    """Without what says nothing."""
    return {name: value for name, value in fields.items() if value}
