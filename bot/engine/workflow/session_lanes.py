"""Assigns steps to session lanes: steps that can never run at the same time share a session.

A lane continues after a fork where all its branches meet again: a question of dominators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce

from bot.engine.workflow.definition import ROOT_GRAPH, ScopeGraph, WorkflowTopology
from bot.engine.workflow.node_runs import ActivationPath, enclosing_round, parse_activation
from bot.engine.workflow.nodes.contract import EdgeRule, NodeRole

VIRTUAL_ROOT = ""
"""The parent of every node without a source; no node of the graph."""


class DominatorTree:
    """The dominator tree of an acyclic graph: the parent of a node is the nearest node that every
    path to it passes. `sources` names the direct predecessors of each node. Jump pointers keep the
    whole in n log n."""

    def __init__(
        self, topological_order: Sequence[str], sources: Mapping[str, Sequence[str]]
    ) -> None:
        self._depth = {VIRTUAL_ROOT: 0}
        self._jump = {VIRTUAL_ROOT: VIRTUAL_ROOT}
        self.immediate_dominator = {VIRTUAL_ROOT: VIRTUAL_ROOT}
        for node in topological_order:
            self._attach(node, self.common_dominator(sources.get(node) or [VIRTUAL_ROOT]))

    def common_dominator(self, nodes: Iterable[str]) -> str:
        """The nearest node that every path to any of them passes; it may be one of them."""
        return reduce(self._common_of_two, nodes)

    def _attach(self, node: str, above: str) -> None:
        far = self._jump[above]
        depth = self._depth
        is_even = depth[above] - depth[far] == depth[far] - depth[self._jump[far]]
        self._jump[node] = self._jump[far] if is_even else above
        self.immediate_dominator[node] = above
        depth[node] = depth[above] + 1

    def _common_of_two(self, one: str, other: str) -> str:
        depth, far, above = self._depth, self._jump, self.immediate_dominator
        if depth[one] < depth[other]:
            one, other = other, one
        while depth[one] > depth[other]:
            one = far[one] if depth[far[one]] >= depth[other] else above[one]
        while one != other:
            up = far if far[one] != far[other] else above
            one, other = up[one], up[other]
        return one


MAIN_LANE = ""
"""The lane of the task's own session."""


class SessionLanes:
    """Each branch behind a fork has its own lane, and so has each round that may run in parallel
    with others. Lanes follow from the graph alone, so a step finds its session after a restart."""

    def __init__(self, topology: WorkflowTopology) -> None:
        self._topology = topology

    def lane_of(self, activation: ActivationPath) -> str:
        if self._topology.workflow.parallel == 1:
            return MAIN_LANE
        prefix, scope = "", activation.scope
        while (above := enclosing_round(scope)) is not None:
            path, n = above
            container = parse_activation(path)
            assert container is not None
            if self._topology.nodes[container.node].has_parallel_rounds:
                prefix = f"{path}[{n}]/{prefix}"
            scope = container.scope
        return prefix + self._lanes_by_node.get(activation.node, MAIN_LANE)

    @cached_property
    def _lanes_by_node(self) -> dict[str, str]:
        """The body of a loop begins in the loop's lane."""
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
    """Where all branches of a fork meet again, the fork's lane continues; where only some meet, the
    others may still be running."""
    sources = {node: [edge.source for edge in graph.incoming.get(node, ())] for node in graph.nodes}
    targets = {node: [edge.target for edge in graph.outgoing.get(node, ())] for node in graph.nodes}
    order = _topological_order(sources, targets)
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
    """Whether more than one of the edges behind it may be taken."""
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


def _topological_order(
    sources: Mapping[str, Sequence[str]], targets: Mapping[str, Sequence[str]]
) -> Sequence[str]:
    left = {node: len(each) for node, each in sources.items()}
    order = [node for node, n in left.items() if not n]
    for node in order:
        for target in targets[node]:
            left[target] -= 1
            if not left[target]:
                order.append(target)
    return order
