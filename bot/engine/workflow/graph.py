"""A task's plan as data: nodes, edges, and which nodes may run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter, ValidationError

from storage.records.tasks import NodeRun, NodeStatus

VERSION = "2.0"
PLANNING = "@plan"
"""The path under which planning itself is recorded; no node may have it."""


class BadGraph(ValueError):
    """The graph cannot be run. `faults` names every reason."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(self.faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One step. `repeatable` says that running it again after a crash does no harm."""

    id: str
    title: str
    detail: str = ""
    repeatable: bool = True
    type: str = "task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """`target` waits for `source`."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """`plan` is the approach in words; `answer` is set where no node is needed."""

    plan: str
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    answer: str = ""
    version: str = VERSION


def linear(plan: str, nodes: Iterable[Node]) -> Workflow:
    """Nodes one after the other: the form subtasks have."""
    chain = tuple(nodes)
    edges = tuple(Edge(source=before.id, target=after.id) for before, after in pairwise(chain))
    return checked(Workflow(plan=plan, nodes=chain, edges=edges))


def checked(workflow: Workflow) -> Workflow:
    """The workflow itself, or BadGraph with all its faults."""
    ids = [node.id for node in workflow.nodes]
    faults = [
        f"node {each!r} is there twice" for each in sorted({i for i in ids if ids.count(i) > 1})
    ]
    faults += [
        f"edge {edge.source!r} → {edge.target!r} names an unknown node"
        for edge in workflow.edges
        if edge.source not in ids or edge.target not in ids
    ]
    faults += [f"node {each!r} has a reserved id" for each in ids if each.startswith("@")]
    if not faults and _has_cycle(workflow):
        faults.append("the edges run in a circle")
    if faults:
        raise BadGraph(faults)
    return workflow


def ready(workflow: Workflow, runs: Mapping[str, NodeRun]) -> tuple[Node, ...]:
    """The nodes that may start now: not run yet, and everything before them settled."""
    return tuple(
        node
        for node in workflow.nodes
        if _status(runs, node.id) is NodeStatus.PENDING
        and all(_status(runs, source).is_settled for source in _sources(workflow, node.id))
    )


def is_complete(workflow: Workflow, runs: Mapping[str, NodeRun]) -> bool:
    return all(_status(runs, node.id).is_settled for node in workflow.nodes)


def dump_workflow(workflow: Workflow) -> dict[str, Any]:
    dumped: dict[str, Any] = _ADAPTER.dump_python(workflow, mode="json")
    return dumped


def load_workflow(body: Mapping[str, Any]) -> Workflow:
    try:
        return checked(_ADAPTER.validate_python(body))
    except ValidationError as error:
        raise BadGraph(fault["msg"] for fault in error.errors()) from error


def keep_finished(old: Workflow, runs: Mapping[str, NodeRun], new: Workflow) -> Workflow:
    """A new plan for what is left: settled nodes stay first, new ones follow under fresh ids.
    Where it has no nodes but an answer, that answer is the task's."""
    kept = [node for node in old.nodes if _status(runs, node.id).is_settled]
    taken = {node.id for node in old.nodes}
    fresh = (f"s{n}" for n in range(1, 10_000) if f"s{n}" not in taken)
    renamed = [replace(node, id=next(fresh)) for node in new.nodes]
    return replace(linear(new.plan, [*kept, *renamed]), answer=new.answer)


def inserted(workflow: Workflow, runs: Mapping[str, NodeRun], titles: Iterable[str]) -> Workflow:
    """The plan with new steps next: after all that has begun, before all that has not."""
    begun = [node for node in workflow.nodes if _begun(runs, node.id)]
    others = [node for node in workflow.nodes if not _begun(runs, node.id)]
    taken = {node.id for node in workflow.nodes}
    fresh = (f"s{n}" for n in range(1, 10_000) if f"s{n}" not in taken)
    new = [Node(id=next(fresh), title=title) for title in titles]
    return replace(linear(workflow.plan, [*begun, *new, *others]), answer=workflow.answer)


def _begun(runs: Mapping[str, NodeRun], node_id: str) -> bool:
    return _status(runs, node_id) not in {NodeStatus.PENDING, NodeStatus.WAITING}


def _status(runs: Mapping[str, NodeRun], path: str) -> NodeStatus:
    return runs[path].status if path in runs else NodeStatus.PENDING


def _sources(workflow: Workflow, node_id: str) -> tuple[str, ...]:
    return tuple(edge.source for edge in workflow.edges if edge.target == node_id)


def _has_cycle(workflow: Workflow) -> bool:
    waiting = {node.id: set(_sources(workflow, node.id)) for node in workflow.nodes}
    while free := [each for each, sources in waiting.items() if not sources]:
        for each in free:
            del waiting[each]
        for sources in waiting.values():
            sources.difference_update(free)
    return bool(waiting)


_ADAPTER = TypeAdapter(Workflow)
