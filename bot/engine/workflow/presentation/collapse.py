"""Folds parts of a large workflow into one box each, so that its drawing stays readable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot.engine.workflow.definition import (
    ROOT_GRAPH,
    ScopeGraph,
    Workflow,
    WorkflowEdge,
    WorkflowNode,
    WorkflowTopology,
)
from bot.engine.workflow.nodes.contract import BodyConfig

LARGE_WORKFLOW = 60
"""Workflows with more nodes are folded."""

_MIN_CHAIN = 4
_MAX_SIBLINGS = 6
_SHOWN_SIBLINGS = 4


@dataclass(frozen=True, slots=True)
class FoldedWorkflow:
    """A workflow with folded boxes. `folded` lists the nodes of each box that stands for several,
    by the box's id. In a chain they run one after the other, otherwise side by side.
    """

    workflow: Workflow
    folded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    beside: frozenset[str] = frozenset()


def fold_workflow(workflow: Workflow) -> FoldedWorkflow:
    """Fold chains of plain steps, and siblings with the same neighbours, into one box each."""
    if len(workflow.nodes) <= LARGE_WORKFLOW:
        return FoldedWorkflow(workflow)
    folded: dict[str, tuple[str, ...]] = {}
    beside: set[str] = set()
    for graph in WorkflowTopology(workflow).scope_graphs.values():
        for chain in _chains(graph):
            folded[chain[0]] = tuple(chain)
        taken = {name for each in folded.values() for name in each}
        for group in _sibling_groups(graph, taken):
            rest = group[_SHOWN_SIBLINGS:]
            folded[rest[0]] = tuple(rest)
            beside.add(rest[0])
    return FoldedWorkflow(_merge(workflow, folded), folded, frozenset(beside))


def _merge(workflow: Workflow, folded: Mapping[str, Sequence[str]]) -> Workflow:
    box_of = {name: box for box, names in folded.items() for name in names}
    kept: list[WorkflowNode] = []
    for node in workflow.nodes:
        if box_of.get(node.id, node.id) != node.id:
            continue
        config = node.config
        if isinstance(config, BodyConfig):
            body = dict.fromkeys(box_of.get(name, name) for name in config.body)
            config = replace(config, body=tuple(body))
        kept.append(replace(node, config=config))
    edges: dict[tuple[str, str, str, int | None], WorkflowEdge] = {}
    for edge in workflow.edges:
        source, target = box_of.get(edge.source, edge.source), box_of.get(edge.target, edge.target)
        if source != target or edge.source == edge.target:
            moved = replace(edge, id=edge.name, source=source, target=target)
            edges.setdefault((source, target, edge.condition, edge.max_loops), moved)
    return replace(workflow, nodes=tuple(kept), edges=tuple(edges.values()))


def _chains(graph: ScopeGraph) -> Iterable[Sequence[str]]:
    """Chains of plain steps that nothing else leads into or out of."""
    plain = {name for name in graph.nodes if _is_plain(graph, name)}
    follower: dict[str, str] = {}
    for name in plain:
        (edge,) = graph.outgoing.get(name) or (None,)
        if edge is not None and edge.target in plain and not (edge.condition or edge.label):
            follower[name] = edge.target
    inner = set(follower.values())
    for name in graph.nodes:
        if name not in plain or name in inner:
            continue
        chain = [name]
        while chain[-1] in follower:
            chain.append(follower[chain[-1]])
        if len(chain) >= _MIN_CHAIN:
            yield chain


def _is_plain(graph: ScopeGraph, name: str) -> bool:
    node = graph.nodes[name]
    before, behind = graph.incoming.get(name, ()), graph.outgoing.get(name, ())
    lead_back = graph.outgoing_back_edges.get(name) or any(
        edge.target == name for edge in graph.back_edges.values()
    )
    return (
        node.role.is_counted
        and not node.body
        and len(before) <= 1
        and len(behind) <= 1
        and not lead_back
    )


def _sibling_groups(graph: ScopeGraph, taken: set[str]) -> Iterable[Sequence[str]]:
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in graph.nodes:
        before, behind = graph.incoming.get(name, ()), graph.outgoing.get(name, ())
        labelled = any(edge.condition or edge.label for edge in (*before, *behind))
        if name in taken or labelled or not _is_plain(graph, name) or not before:
            continue
        groups[(before[0].source, behind[0].target if behind else ROOT_GRAPH)].append(name)
    return [names for names in groups.values() if len(names) > _MAX_SIBLINGS]
