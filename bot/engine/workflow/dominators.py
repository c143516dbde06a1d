"""Dominator trees: which nodes of an acyclic graph lie on every path to a node. They show where
branches part and meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

VIRTUAL_ROOT = ""
"""The parent of every node without a source; no node of the graph."""


class DominatorTree:
    """The dominator tree of an acyclic graph: the parent of a node is the nearest node that lies on
    every path to it. `sources` names the direct predecessors of each node. Jump pointers keep
    construction and queries within n log n.
    """

    def __init__(
        self, topological_order: Sequence[str], sources: Mapping[str, Sequence[str]]
    ) -> None:
        self._depth = {VIRTUAL_ROOT: 0}
        self._jump = {VIRTUAL_ROOT: VIRTUAL_ROOT}
        self.immediate_dominator = {VIRTUAL_ROOT: VIRTUAL_ROOT}
        for node in topological_order:
            self._attach(node, self.common_dominator(sources.get(node) or [VIRTUAL_ROOT]))

    def common_dominator(self, nodes: Iterable[str]) -> str:
        """The nearest node that lies on every path to each of the given nodes; it may be one of
        them.
        """
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


def topological_order(
    sources: Mapping[str, Sequence[str]], targets: Mapping[str, Sequence[str]]
) -> Sequence[str]:
    """The nodes in topological order. Nodes on a cycle, or behind one, are missing."""
    left = {node: len(each) for node, each in sources.items()}
    order = [node for node, n in left.items() if not n]
    for node in order:
        for target in targets[node]:
            left[target] -= 1
            if not left[target]:
                order.append(target)
    return order
