"""The scope of expressions in an imagined run with sample values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.node_runs import VALUES_KEY
from bot.engine.workflow.output_schema import check_output
from bot.engine.workflow.scheduler import WorkflowScheduler
from storage.records.tasks import NodeRun, NodeStatus, TaskId

_TASK = TaskId("sample")


def sample_names(
    given: Mapping[str, Any], workflow: Workflow | None, *, now: datetime, zone: ZoneInfo
) -> Mapping[str, Any]:
    """The names that expressions see in a run whose nodes have ended with these `outputs`: a text
    is a worker's answer, a mapping holds its values. `variables` and `inputs` override those of the
    workflow; other names are added. Raises ValueError if a value does not fit its declared output.
    """
    outputs = given.get("outputs")
    outputs = outputs if isinstance(outputs, Mapping) else {}
    if workflow is None:
        nodes = tuple(WorkflowNode(id=name, title=name) for name in outputs)
        workflow = Workflow(plan="", nodes=nodes)
    plain = {node.id.replace("-", "_"): node for node in workflow.nodes}
    known = {**plain, **workflow.nodes_by_id}
    runs = {
        known[name].id: _sample_run(known[name], value, now)
        for name, value in outputs.items()
        if name in known
    }
    scheduler = WorkflowScheduler(
        _TASK,
        workflow,
        runs,
        zone=zone,
        text=lambda key, **_facts: key,
        warn=lambda _warning: None,
    )
    names = scheduler.context("", now).names
    merged = {
        name: {**names[name], **own}
        for name in ("variables", "inputs", "nodeStates")
        if isinstance(own := given.get(name), Mapping)
    }
    others = {name: value for name, value in given.items() if name != "outputs" or not outputs}
    return {**names, **others, **merged}


def sample_output(node: WorkflowNode, value: Any) -> Mapping[str, Any]:
    """The output of a node that has ended with this value: a text is a worker's answer, a mapping
    holds its values. Raises ValueError if it does not fit the declared output.
    """
    if isinstance(value, str):
        return {"summary": value}
    if not isinstance(value, Mapping):
        return {"_raw": value}
    text = next((value[key] for key in ("summary", "result", "_raw") if key in value), None)
    text = text if isinstance(text, str) else json.dumps(value, ensure_ascii=False)
    typed = {VALUES_KEY: check_output(node.output, [value])} if node.output else value
    return {**typed, "summary": text}


def _sample_run(node: WorkflowNode, value: Any, now: datetime) -> NodeRun:
    return NodeRun(
        task_id=_TASK,
        path=node.id,
        status=NodeStatus.DONE,
        attempt=1,
        output=dict(sample_output(node, value)),
        error="",
        started_at=now,
        ended_at=now,
    )
