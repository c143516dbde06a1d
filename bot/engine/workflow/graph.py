"""A task's plan in the store, and how it is changed while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, pairwise
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bot.engine.workflow.expressions.language import references
from bot.engine.workflow.expressions.templates import as_it_stands
from bot.engine.workflow.model.faults import BadGraph, Fault
from bot.engine.workflow.model.grafting import grafted
from bot.engine.workflow.model.nodes import NodeType
from bot.engine.workflow.model.shape import VERSION, Edge, Node, Workflow
from bot.engine.workflow.model.validate import validated
from bot.engine.workflow.routing.inject import injected
from bot.engine.workflow.routing.marks import is_dead
from bot.engine.workflow.routing.paths import place_of
from storage.records.tasks import NodeRun, NodeStatus

__all__ = [
    "HUMAN",
    "PLANNING",
    "TASK",
    "VERSION",
    "BadGraph",
    "Edge",
    "Node",
    "Workflow",
    "dump_workflow",
    "inserted",
    "is_chain",
    "keep_finished",
    "linear",
    "load_workflow",
    "still_given",
    "validated",
]

PLANNING = "@plan"
"""The path under which planning itself is recorded; no node may have it."""

TASK = NodeType.TASK
HUMAN = NodeType.HUMAN
"""Types of nodes: work for the worker, and what only a person can do or decide."""


def linear(plan: str, nodes: Iterable[Node]) -> Workflow:
    """Nodes one after the other: the form subtasks have."""
    chain = tuple(nodes)
    edges = tuple(Edge(source=before.id, target=after.id) for before, after in pairwise(chain))
    return validated(Workflow(plan=plan, nodes=chain, edges=edges))


def is_chain(workflow: Workflow) -> bool:
    """Whether it is no more than steps, none of which is run in rounds or by choice."""
    return all(NodeType(node.type).is_step for node in workflow.nodes) and not any(
        edge.condition or edge.max_loops for edge in workflow.edges
    )


def dump_workflow(workflow: Workflow) -> dict[str, Any]:
    dumped: dict[str, Any] = _ADAPTER.dump_python(workflow, mode="json")
    return dumped


def load_workflow(body: Mapping[str, Any]) -> Workflow:
    """What was stored, which was checked then. Raises BadGraph for a body of another shape."""
    try:
        return _ADAPTER.validate_python(body)
    except ValidationError as error:
        faults = (
            Fault(key="bad_shape", where=".".join(map(str, fault["loc"]))[:80])
            for fault in error.errors()
        )
        raise BadGraph(faults) from error


def keep_finished(old: Workflow, runs: Mapping[str, NodeRun], new: Workflow) -> Workflow:
    """A new plan for what is left: settled nodes stay first, then come those that people put in
    and nobody has begun, then the new ones, under fresh ids. What no branch came to is not kept."""
    over = [node for node in old.nodes if _status(runs, node.id).is_settled]
    settled = [node for node in over if not is_dead(runs[node.id])]
    given = still_given(old, runs)
    kept = {name: text for name, text in old.outputs.items() if _speaks_of(text, settled)}
    new = replace(
        new,
        served=old.served,
        name=new.name or old.name,
        timeout=old.timeout if new.timeout is None else new.timeout,
        variables={**old.variables, **new.variables},
        inputs=old.inputs,
        values=old.values,
    )
    if is_chain(old) and is_chain(new):
        names = zip(new.nodes, _fresh(old), strict=False)
        return _chained(new, [*settled, *given, *(replace(node, id=name) for node, name in names)])
    # What is settled of a plan with branches leads nowhere any more: no edge begins there.
    whole = grafted(new, over=settled, first=given, taken=[node.id for node in old.nodes])
    return replace(whole, outputs={**kept, **whole.outputs})


def _speaks_of(text: str, kept: Sequence[Node]) -> bool:
    """Whether it can still be worked out when only these nodes are left of a plan."""
    known = {name for node in kept for name in (node.id, node.id.replace("-", "_"))}
    spoken = [part for name, part in references(text) if name in {"outputs", "nodeStates"}]
    return all(part is None or part in known for part in spoken)


def still_given(workflow: Workflow, runs: Mapping[str, NodeRun]) -> tuple[Node, ...]:
    """What people have put in and nobody has begun."""
    places = (place_of(path) for path, run in runs.items() if run.started_at)
    begun = {place.node for place in places if place is not None}
    return tuple(node for node in workflow.nodes if node.given and node.id not in begun)


def inserted(workflow: Workflow, runs: Mapping[str, NodeRun], titles: Iterable[str]) -> Workflow:
    """The plan with new steps next: after all that has begun, before all that has not."""
    new = [
        Node(id=name, title=as_it_stands(title), given=True)
        for title, name in zip(titles, _fresh(workflow), strict=False)
    ]
    if not is_chain(workflow):
        return validated(injected(workflow, runs, new))
    begun = [node for node in workflow.nodes if _status(runs, node.id) is not NodeStatus.PENDING]
    others = [node for node in workflow.nodes if node not in begun]
    return _chained(workflow, [*begun, *new, *others])


def _chained(workflow: Workflow, nodes: Sequence[Node]) -> Workflow:
    """The same workflow with these nodes, one after the other."""
    return replace(workflow, nodes=tuple(nodes), edges=linear("", nodes).edges)


def _fresh(workflow: Workflow) -> Iterator[str]:
    """Ids that none of its nodes has."""
    taken = {node.id for node in workflow.nodes}
    return (f"s{n}" for n in count(1) if f"s{n}" not in taken)


def _status(runs: Mapping[str, NodeRun], path: str) -> NodeStatus:
    return runs[path].status if path in runs else NodeStatus.PENDING


_ADAPTER = TypeAdapter(Workflow)
