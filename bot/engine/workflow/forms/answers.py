"""What a planner has answered, made a workflow that can be run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from bot.engine.llm.answers import PlanAnswer
from bot.engine.workflow.expressions.templates import as_it_stands
from bot.engine.workflow.forms.mending import found_in
from bot.engine.workflow.forms.reading import checked, data_in, draft_of
from bot.engine.workflow.graph import HUMAN, TASK, linear
from bot.engine.workflow.model.faults import BadGraph
from bot.engine.workflow.model.nodes import NodeType
from bot.engine.workflow.model.shape import VERSION, Node, Workflow

_NO_PLACE = ("*", "?", "{", "}", "<", ">", "://", "\\", "\n", "\0")
MOST_LOOPS = 5
"""How often an edge leads back for which the planner has given no bound."""


def workflow_of(answer: PlanAnswer) -> Workflow:
    """The plan that was answered: a workflow, steps in order, or only what it says. Raises
    BadGraph where the workflow cannot be run."""
    if answer.workflow:
        return _planned(_data(answer.workflow), answer.plan)
    simple = steps_of(answer)
    return workflow_in(answer.answer, answer.plan) if simple is None else simple


def workflow_in(text: str, plan: str = "") -> Workflow:
    """What a model has answered in words: the workflow that it holds; where it holds none, the
    words are the answer. Raises BadGraph."""
    try:
        data = found_in(text)
    except BadGraph:
        if '"nodes"' in text:
            raise
        data = None
    if _is_workflow(data):
        return _planned(data, plan)
    return Workflow(plan=plan, answer=text)


def steps_of(answer: PlanAnswer) -> Workflow | None:
    """Its steps in order, if it has given any."""
    if not answer.steps:
        return None
    return linear(
        answer.plan,
        (
            Node(
                id=f"s{n}",
                title=as_it_stands(step.title),
                detail=as_it_stands(step.detail),
                repeatable=step.repeatable,
                type=HUMAN if step.kind == "ask" else TASK,
                persona=step.persona,
                deliverables=tuple(dict.fromkeys(filter(_names_a_file, step.deliverables))),
            )
            for n, step in enumerate(answer.steps, start=1)
        ),
    )


def _names_a_file(path: str) -> bool:
    """A place in the workspace, by its letters; what is anything else could never be found."""
    parts = PurePosixPath(path).parts
    whole = not path.startswith(("/", "~")) and not path.endswith("/")
    return whole and ".." not in parts and not any(each in path for each in _NO_PLACE)


def _data(text: str) -> Any:
    found = found_in(text)
    return found if _is_workflow(found) else data_in(text)


def _is_workflow(data: Any) -> bool:
    inner = data.get("workflow", data) if isinstance(data, Mapping) else None
    return isinstance(inner, Mapping) and isinstance(inner.get("nodes"), list | dict)


def _planned(data: Any, plan: str) -> Workflow:
    draft, faults = draft_of(data, named=False)
    # Nobody is asked for inputs where a task is under way, and no model knows of versions.
    draft = replace(draft, plan=draft.plan or plan, inputs=(), version=VERSION)
    return _simple(checked(draft, faults, most_loops=MOST_LOOPS))


def _simple(workflow: Workflow) -> Workflow:
    """Steps one after the other are the linear form, which needs neither a start nor an end."""
    steps = [node for node in workflow.nodes if NodeType(node.type).is_step]
    inner = [node for node in workflow.nodes if node.type not in {NodeType.START, NodeType.END}]
    plain = not any(edge.condition or edge.max_loops for edge in workflow.edges)
    if len(inner) != len(steps) or not plain or workflow.outputs or workflow.variables:
        return workflow
    after = {edge.source: edge.target for edge in workflow.edges}
    if len(after) != len(workflow.edges) or len(workflow.edges) != len(workflow.nodes) - 1:
        return workflow
    known = workflow.by_id
    at: str | None = next(node.id for node in workflow.nodes if node.type == NodeType.START)
    chain = []
    while at is not None:
        chain.append(known[at])
        at = after.get(at)
    if len(chain) != len(workflow.nodes) or workflow.timeout is not None:
        return workflow
    return replace(
        linear(workflow.plan, [node for node in chain if node in steps]), name=workflow.name
    )
