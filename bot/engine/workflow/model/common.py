"""The node that all ways have in common: dominators of a graph without circles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

BEGIN = ""
"""What every way begins with; no node."""


class Common:
    """The tree in which above each node stands the nearest one that every way to it comes by.
    `order` has each node behind all that lead to it, which `sources` names. Each step up may also
    be a long one, so that a graph of n nodes takes n log n."""

    def __init__(self, order: Sequence[str], sources: Mapping[str, Sequence[str]]) -> None:
        self._depth = {BEGIN: 0}
        self._far = {BEGIN: BEGIN}
        self.above = {BEGIN: BEGIN}
        for node in order:
            self._hang(node, self.of(sources.get(node) or [BEGIN]))

    def of(self, nodes: Iterable[str]) -> str:
        """The nearest that every way to any of them comes by, one of them if it is that."""
        return reduce(self._of_two, nodes)

    def _hang(self, node: str, above: str) -> None:
        far = self._far[above]
        depth = self._depth
        is_even = depth[above] - depth[far] == depth[far] - depth[self._far[far]]
        self._far[node] = self._far[far] if is_even else above
        self.above[node] = above
        depth[node] = depth[above] + 1

    def _of_two(self, one: str, other: str) -> str:
        depth, far, above = self._depth, self._far, self.above
        if depth[one] < depth[other]:
            one, other = other, one
        while depth[one] > depth[other]:
            one = far[one] if depth[far[one]] >= depth[other] else above[one]
        while one != other:
            up = far if far[one] != far[other] else above
            one, other = up[one], up[other]
        return one
