"""A task's plan as data: nodes, edges, and which nodes may run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from typing import Any

from pydantic import TypeAdapter, ValidationError

from storage.records.tasks import NodeRun, NodeStatus

VERSION = "2.0"
PLANNING = "@plan"
"""The path under which planning itself is recorded; no node may have it."""

TASK = "task"
HUMAN = "human"
"""Types of nodes: work for the worker, and what only a person can do or decide."""


class BadGraph(ValueError):
    """The graph cannot be run. `faults` names every reason."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(self.faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One step. `repeatable` says that running it again after a crash does no harm; `type` is
    TASK or HUMAN; `given` says that people have put it in, so that no planner may drop it;
    `persona` is who does it, empty for the task's own worker."""

    id: str
    title: str
    detail: str = ""
    repeatable: bool = True
    type: str = TASK
    given: bool = False
    persona: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """`target` waits for `source`."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """`plan` is the approach in words; `answer` is set where no node is needed. `served` is the
    last order for a new plan that has been seen to, by its number in the journal."""

    plan: str
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    answer: str = ""
    served: int = 0
    version: str = VERSION


def linear(plan: str, nodes: Iterable[Node]) -> Workflow:
    """Nodes one after the other: the form subtasks have."""
    chain = tuple(nodes)
    edges = tuple(Edge(source=before.id, target=after.id) for before, after in pairwise(chain))
    return checked(Workflow(plan=plan, nodes=chain, edges=edges))


def checked(workflow: Workflow) -> Workflow:
    """The workflow itself, or BadGraph with all its faults."""
    ids = Counter(node.id for node in workflow.nodes)
    faults = [f"node {each!r} is there twice" for each, n in sorted(ids.items()) if n > 1]
    faults += [
        f"edge {edge.source!r} → {edge.target!r} names an unknown node"
        for edge in workflow.edges
        if edge.source not in ids or edge.target not in ids
    ]
    faults += [f"node {each!r} has a reserved id" for each in ids if each.startswith("@")]
    faults += [
        f"node {node.id!r} is of the unknown type {node.type!r}"
        for node in workflow.nodes
        if node.type not in {TASK, HUMAN}
    ]
    if not faults and _has_cycle(workflow):
        faults.append("the edges run in a circle")
    if faults:
        raise BadGraph(faults)
    return workflow


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
    """A new plan for what is left: settled nodes stay first, then come those that people put in
    and nobody has begun, then the new ones, under fresh ids."""
    settled = [node for node in old.nodes if _status(runs, node.id).is_settled]
    kept = [*settled, *still_given(old, runs)]
    renamed = [replace(node, id=name) for node, name in zip(new.nodes, _fresh(old), strict=False)]
    return _chained(replace(new, served=old.served), [*kept, *renamed])


def still_given(workflow: Workflow, runs: Mapping[str, NodeRun]) -> tuple[Node, ...]:
    """What people have put in and nobody has begun."""
    begun = {path for path, run in runs.items() if run.started_at}
    return tuple(node for node in workflow.nodes if node.given and node.id not in begun)


def inserted(workflow: Workflow, runs: Mapping[str, NodeRun], titles: Iterable[str]) -> Workflow:
    """The plan with new steps next: after all that has begun, before all that has not."""
    begun = [node for node in workflow.nodes if _status(runs, node.id) is not NodeStatus.PENDING]
    others = [node for node in workflow.nodes if node not in begun]
    new = [
        Node(id=name, title=title, given=True)
        for title, name in zip(titles, _fresh(workflow), strict=False)
    ]
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


def _has_cycle(workflow: Workflow) -> bool:
    """Kahn's algorithm: who waits for nobody is taken away, until all left wait."""
    after = defaultdict(list)
    waits_for = dict.fromkeys((node.id for node in workflow.nodes), 0)
    for edge in workflow.edges:
        after[edge.source].append(edge.target)
        waits_for[edge.target] += 1
    free = [each for each, n in waits_for.items() if not n]
    taken = 0
    while free:
        taken += 1
        for each in after[free.pop()]:
            waits_for[each] -= 1
            if not waits_for[each]:
                free.append(each)
    return taken < len(waits_for)


_ADAPTER = TypeAdapter(Workflow)
