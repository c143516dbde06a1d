"""Steps put into a workflow with branches while it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

from bot.engine.workflow.model.layout import OUTERMOST, Layout
from bot.engine.workflow.model.nodes import Foreach, Loop, NodeType
from bot.engine.workflow.model.shape import Edge, Node, Workflow
from bot.engine.workflow.routing.marks import took
from bot.engine.workflow.routing.paths import Place, outer, place_of
from storage.records.tasks import NodeRun, NodeStatus

_EVER = datetime.min.replace(tzinfo=UTC)


def injected(workflow: Workflow, runs: Mapping[str, NodeRun], new: Sequence[Node]) -> Workflow:
    """The new steps come behind the node that runs, else behind the one done last; before all,
    where none has begun. What came next comes behind them, and conditions that spoke of what that
    node brings speak of the last new one."""
    if not new:
        return workflow
    anchor = _anchor(workflow, runs) or _start(workflow)
    inside = [Edge(source=a.id, target=b.id) for a, b in pairwise(new)]
    if anchor is None:
        first = _firsts(workflow)
        edges = (*inside, *(Edge(source=new[-1].id, target=each) for each in first))
        return replace(workflow, nodes=(*new, *workflow.nodes), edges=(*workflow.edges, *edges))
    node, run = anchor
    is_done = run is not None and run.status is NodeStatus.DONE
    found = _behind_done(workflow, node, run, new, runs) if run is not None and is_done else None
    edges = (*(found or _behind_running(workflow, node, new)), *inside)
    at = workflow.nodes.index(node) + 1
    nodes = (*workflow.nodes[:at], *new, *workflow.nodes[at:])
    return _in_body(replace(workflow, nodes=nodes, edges=edges), node, new)


def _start(workflow: Workflow) -> tuple[Node, None] | None:
    starts = (node for node in workflow.nodes if node.type == NodeType.START)
    return next(((node, None) for node in starts), None)


def _anchor(workflow: Workflow, runs: Mapping[str, NodeRun]) -> tuple[Node, NodeRun | None] | None:
    known = workflow.by_id
    begun = [
        (known[place.node], run)
        for path, run in runs.items()
        if (place := place_of(path)) is not None
        and place.node in known
        and run.status in {NodeStatus.RUNNING, NodeStatus.DONE}
        and not _in_finished_rounds(place, runs)
    ]
    late = sorted(begun, key=lambda each: _late(each[1]))
    return late[-1] if late else None


def _in_finished_rounds(place: Place, runs: Mapping[str, NodeRun]) -> bool:
    """What comes behind a node in there would never be done."""
    around = outer(place.scope)
    run = None if around is None else runs.get(around[0])
    return run is not None and run.status.is_settled


def _late(run: NodeRun) -> tuple[bool, datetime]:
    return run.status is NodeStatus.RUNNING, run.ended_at or run.started_at or _EVER


def _behind_running(workflow: Workflow, node: Node, new: Sequence[Node]) -> Sequence[Edge]:
    last = new[-1].id
    edges = [
        replace(
            edge,
            id=edge.name,
            source=last,
            condition=_renamed(edge.condition, node.id, last),
        )
        if edge.source == node.id
        else edge
        for edge in workflow.edges
    ]
    return [*edges, Edge(source=node.id, target=new[0].id)]


def _behind_done(
    workflow: Workflow,
    node: Node,
    run: NodeRun,
    new: Sequence[Node],
    runs: Mapping[str, NodeRun],
) -> Sequence[Edge]:
    """Its edges have been chosen already: those taken lead to the new steps first, unless what is
    behind them has begun."""
    chosen, edges = took(run), list[Edge]()
    moved: list[Edge] = []
    for edge in workflow.edges:
        taken = edge.name in chosen if chosen is not None else not edge.condition
        begun = edge.target in runs and runs[edge.target].status is not NodeStatus.PENDING
        if edge.source != node.id or not taken or begun:
            edges.append(edge)
        else:
            moved.append(edge)
    if not moved:
        return [*edges, Edge(source=node.id, target=new[0].id)]
    first = replace(moved[0], id=moved[0].name, target=new[0].id)
    behind = [Edge(source=new[-1].id, target=edge.target) for edge in moved]
    return [*edges, first, *behind]


def _renamed(condition: str, old: str, new: str) -> str:
    plain = re.sub(rf"\boutputs\.{re.escape(old)}\b", f"outputs.{new}", condition)
    return re.sub(rf"""outputs\[(["']){re.escape(old)}\1\]""", f"outputs['{new}']", plain)


def _firsts(workflow: Workflow) -> Sequence[str]:
    ring = Layout(workflow).rings[OUTERMOST]
    return [node for node in ring.nodes if not ring.into.get(node)]


def _in_body(workflow: Workflow, node: Node, new: Sequence[Node]) -> Workflow:
    """What comes behind a node of a body belongs to that body."""
    names = tuple(each.id for each in new)

    def grown(each: Node) -> Node:
        if isinstance(each.config, Loop | Foreach) and node.id in each.config.body:
            return replace(each, config=replace(each.config, body=(*each.config.body, *names)))
        return each

    return replace(workflow, nodes=tuple(map(grown, workflow.nodes)))
