"""Completion of partial workflows: start and end nodes, missing edges, edge ids and loop limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, pairwise

from bot.engine.workflow.definition import (
    Workflow,
    WorkflowEdge,
    WorkflowNode,
    find_back_edges,
    find_cycles,
    find_retreating_edges,
)
from bot.engine.workflow.nodes.contract import NodeRole
from bot.engine.workflow.nodes.registry import NodeType

_DEFAULT_PARALLEL = 3


def complete_workflow(workflow: Workflow) -> Workflow:
    """Add everything implicit. Idempotent; invalid parts stay invalid."""
    if not workflow.nodes:
        return workflow
    # Edges between a loop and its own body are redundant.
    inside = {(node.id, inner) for node in workflow.nodes for inner in node.body}
    edges = [
        edge
        for edge in workflow.edges
        if not {(edge.source, edge.target), (edge.target, edge.source)} & inside
    ]
    nodes, edges = _add_start_and_end(workflow, [*edges, *_missing_target_edges(workflow, edges)])
    return replace(workflow, nodes=tuple(nodes), edges=tuple(_name_edges(edges)))


def edges_in_order(nodes: Sequence[WorkflowNode]) -> tuple[WorkflowEdge, ...]:
    """The implicit edges of a workflow without written edges: each node after the one before it, in
    bodies too. Empty if the nodes branch."""
    if any(node.role.is_branching for node in nodes):
        return ()
    owner = {inner: node.id for node in nodes for inner in node.body}
    scopes: dict[str, list[WorkflowNode]] = {}
    for node in nodes:
        scopes.setdefault(owner.get(node.id, ""), []).append(node)
    return tuple(
        WorkflowEdge(source=one.id, target=two.id)
        for scope in scopes.values()
        for one, two in pairwise(scope)
    )


def default_parallelism(nodes: Iterable[WorkflowNode]) -> int:
    """The default number of concurrent steps."""
    is_parallel = any(node.role is NodeRole.FORK or node.has_parallel_rounds for node in nodes)
    return _DEFAULT_PARALLEL if is_parallel else 1


def with_loop_bounds(workflow: Workflow, limit: int) -> Workflow:
    """Give each unbounded back edge a limit."""
    names = [node.id for node in workflow.nodes]
    bounded = {edge.name for edge in find_back_edges(names, workflow.edges)}
    left = [edge for edge in workflow.edges if edge.name not in bounded]
    cycles = find_cycles(names, left)
    back = set(find_retreating_edges([node for node in names if node in cycles], left))
    return replace(
        workflow,
        edges=tuple(
            replace(edge, max_loops=limit) if edge in back and edge.max_loops is None else edge
            for edge in workflow.edges
        ),
    )


def _missing_target_edges(
    workflow: Workflow, edges: Iterable[WorkflowEdge]
) -> Iterator[WorkflowEdge]:
    ways = {(edge.source, edge.target) for edge in edges}
    known = {node.id for node in workflow.nodes}
    for node in workflow.nodes:
        for target in node.targets:
            if target in known and (node.id, target) not in ways:
                yield WorkflowEdge(source=node.id, target=target)


def _add_start_and_end(
    workflow: Workflow, edges: list[WorkflowEdge]
) -> tuple[list[WorkflowNode], list[WorkflowEdge]]:
    """Add a start before all nodes without incoming edges, and an end behind all without outgoing
    edges."""
    nodes = list(workflow.nodes)
    inner = {name for node in nodes for name in node.body}
    outer = {node.id: node.role for node in nodes if node.id not in inner}
    outer = outer or {node.id: node.role for node in nodes}
    taken, names = {node.id for node in nodes}, list(outer)
    back = {id(edge) for edge in find_back_edges(names, edges)}
    reached = {edge.target for edge in edges if id(edge) not in back}
    leading = {edge.source for edge in edges}
    if NodeRole.START not in outer.values():
        start = WorkflowNode(id=_unused_id("start", taken), title="start", type=NodeType.START)
        free = [name for name in names if name not in reached and outer[name] is not NodeRole.END]
        nodes = [start, *nodes]
        edges = [
            *(WorkflowEdge(source=start.id, target=name) for name in free or names[:1]),
            *edges,
        ]
    if NodeRole.END not in outer.values():
        end = WorkflowNode(id=_unused_id("end", taken), title="end", type=NodeType.END)
        free = [name for name in names if name not in leading and outer[name] is not NodeRole.START]
        nodes = [*nodes, end]
        last = [WorkflowEdge(source=name, target=end.id) for name in free or names[-1:]]
        edges = [*edges, *last]
    return nodes, edges


def _name_edges(edges: Sequence[WorkflowEdge]) -> Iterator[WorkflowEdge]:
    taken = {edge.id for edge in edges}
    free = (f"e{n}" for n in count(1) if f"e{n}" not in taken)
    for edge in edges:
        yield edge if edge.id else replace(edge, id=next(free))


def _unused_id(name: str, taken: set[str]) -> str:
    names = (name if n == 1 else f"{name}_{n}" for n in count(1))
    return next(each for each in names if each not in taken)
