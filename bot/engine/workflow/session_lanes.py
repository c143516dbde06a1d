"""Session lanes: steps that can never run at the same time share a session. Where all branches of a
fork meet again, which dominators tell, its lane continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from bot.engine.workflow.compensation import node_of_run
from bot.engine.workflow.definition import ROOT_GRAPH, ScopeGraph, WorkflowTopology
from bot.engine.workflow.dominators import VIRTUAL_ROOT, DominatorTree, topological_order
from bot.engine.workflow.node_runs import (
    ActivationPath,
    compensated_path,
    enclosing_round,
    parse_activation,
)
from bot.engine.workflow.nodes.contract import EdgeRule, NodeRole

MAIN_LANE = ""
"""The lane of the task's own session."""


class SessionLanes:
    """Assigns steps to sessions. Each branch behind a fork has a lane of its own, and so has each
    round that may run in parallel with others, and each node with a session of its own. Lanes
    follow from the graph alone, so a step finds its session again after a restart.
    """

    def __init__(self, topology: WorkflowTopology) -> None:
        self._topology = topology

    def lane_of(self, activation: ActivationPath) -> str:
        """The lane of a step. A compensation has the lane of the step that it undoes, and waits for
        no other.
        """
        nodes = self._topology.with_past.nodes
        node = node_of_run(activation.path, nodes)
        activation = parse_activation(compensated_path(activation.path) or "") or activation
        if node is not None and node.own_session:
            return node.id
        if self._topology.workflow.parallel == 1:
            return MAIN_LANE
        prefix, scope = "", activation.scope
        while (above := enclosing_round(scope)) is not None:
            path, n = above
            container = parse_activation(path)
            assert container is not None
            if nodes[container.node].has_parallel_rounds:
                prefix = f"{path}[{n}]/{prefix}"
            scope = container.scope
        return prefix + self._lanes_by_node.get(activation.node, MAIN_LANE)

    @cached_property
    def _lanes_by_node(self) -> dict[str, str]:
        """The lane of each node; the body of a loop begins in the lane of the loop."""
        lanes: dict[str, str] = {}
        left = [(ROOT_GRAPH, MAIN_LANE)]
        while left:
            name, first = left.pop()
            own = _lanes_in_graph(self._topology.scope_graphs[name], first)
            lanes |= own
            left += [
                (node, lane) for node, lane in own.items() if node in self._topology.scope_graphs
            ]
        return lanes


def _lanes_in_graph(graph: ScopeGraph, first: str) -> Mapping[str, str]:
    """The lanes of one graph. Where all branches of a fork meet, the fork's lane continues; where
    only some meet, the others may still be running.
    """
    sources = {node: [edge.source for edge in graph.incoming.get(node, ())] for node in graph.nodes}
    targets = {node: [edge.target for edge in graph.outgoing.get(node, ())] for node in graph.nodes}
    order = topological_order(sources, targets)
    parted, met = DominatorTree(order, sources), DominatorTree(order[::-1], targets)
    begins = [node for node in order if not sources[node]]
    lanes = {VIRTUAL_ROOT: first}
    for node in order:
        before = parted.immediate_dominator[node]
        if len(set(sources[node])) > 1:
            is_continued = node == (
                met.immediate_dominator[before]
                if before != VIRTUAL_ROOT
                else met.common_dominator(begins)
            )
        else:
            is_continued = (
                len(begins) == 1 if before == VIRTUAL_ROOT else not _splits(graph, before)
            )
        lanes[node] = lanes[before] if is_continued else node
    del lanes[VIRTUAL_ROOT]
    return lanes


def _splits(graph: ScopeGraph, node: str) -> bool:
    """Whether more than one of the node's outgoing edges may be taken."""
    behind, rule = graph.outgoing.get(node, ()), graph.nodes[node].spec.edge_rule
    if rule is EdgeRule.CHOSEN or len({edge.target for edge in behind}) == 1:
        return False
    # Those without a condition are taken where none holds.
    others = sum(not edge.condition for edge in behind)
    return (
        graph.nodes[node].role is NodeRole.FORK
        or others > 1
        or (rule is EdgeRule.ALL_HOLDING and len(behind) - others > 1)
    )
