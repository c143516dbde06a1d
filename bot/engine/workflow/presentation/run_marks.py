"""Summarises for drawings what a run has done so far, by node and edge, over all rounds
of loops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bot.engine.workflow.definition import ROOT_GRAPH, WorkflowEdge, WorkflowTopology
from bot.engine.workflow.node_runs import (
    BACK_EDGE_PREFIX,
    compensated_path,
    is_finished,
    is_unreached,
    parse_activation,
    scope_of,
    taken_edges,
)
from storage.records.tasks import NodeRun, NodeStatus


class NodeMark(StrEnum):
    """How a node is marked; if its rounds differ, the most important mark."""

    RUNNING = "running"
    FAILED = "failed"
    WAITING = "waiting"
    DONE = "done"
    CANCELLED = "cancelled"
    UNREACHED = "unreached"

    @property
    def rank(self) -> int:
        return list(NodeMark).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMarks:
    """The marks of a run. `nodes` has no entry for nodes that have not begun. `visits` counts how
    often each node was reached, and `edges` how often each edge was taken.
    """

    nodes: Mapping[str, NodeMark] = field(default_factory=dict)
    visits: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[str, int] = field(default_factory=dict)


_MARKS = {
    NodeStatus.RUNNING: NodeMark.RUNNING,
    NodeStatus.WAITING: NodeMark.WAITING,
    NodeStatus.DONE: NodeMark.DONE,
    NodeStatus.SKIPPED: NodeMark.DONE,
    NodeStatus.FAILED: NodeMark.FAILED,
    NodeStatus.CANCELLED: NodeMark.CANCELLED,
}


def mark_run(topology: WorkflowTopology, runs: Mapping[str, NodeRun]) -> RunMarks:
    nodes: dict[str, NodeMark] = {}
    visits, edges = Counter[str](), Counter[str]()
    for path, run in runs.items():
        name = path.removeprefix(scope_of(path))
        if name.startswith(BACK_EDGE_PREFIX):
            edges[name.removeprefix(BACK_EDGE_PREFIX)] += int(run.output.get("times", 0))
            continue
        undone = compensated_path(path)
        place = parse_activation(path if undone is None else undone)
        if place is None or place.node not in topology.nodes:
            continue
        if undone is not None:
            other = topology.nodes[place.node].on_cancel
            if other and (mark := _MARKS.get(run.status)) is not None:
                nodes[other] = min(nodes.get(other, mark), mark, key=lambda each: each.rank)
                visits[other] += 1
            continue
        mark = _mark_of(topology, place.node, run)
        if mark is None:
            continue
        known = nodes.get(place.node, mark)
        nodes[place.node] = min(known, mark, key=lambda each: each.rank)
        if mark is NodeMark.UNREACHED or (mark is NodeMark.CANCELLED and not run.started_at):
            continue
        visits[place.node] += 1
        if is_finished(run):
            edges.update(edge.name for edge in _taken(topology, place.node, run))
    return RunMarks(nodes=nodes, visits=visits, edges=edges)


def _mark_of(topology: WorkflowTopology, node: str, run: NodeRun) -> NodeMark | None:
    if is_unreached(run):
        return NodeMark.UNREACHED
    if run.status is NodeStatus.WAITING and topology.nodes[node].body:
        return NodeMark.RUNNING
    return _MARKS.get(run.status)


def _taken(topology: WorkflowTopology, node: str, run: NodeRun) -> list[WorkflowEdge]:
    """The forward edges taken behind a finished run; back edges are counted by their notes."""
    graph = topology.scope_graphs[topology.container_of.get(node, ROOT_GRAPH)]
    chosen = taken_edges(run)
    return [
        edge
        for edge in graph.outgoing.get(node, ())
        if (edge.name in chosen if chosen is not None else not edge.condition)
    ]
