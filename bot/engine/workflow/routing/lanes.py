"""Which steps share a session: those that can never run at the same time as one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from bot.engine.workflow.model.common import BEGIN, Common
from bot.engine.workflow.model.layout import OUTERMOST, Layout, Ring
from bot.engine.workflow.model.nodes import Foreach, NodeType
from bot.engine.workflow.routing.paths import Place, outer, place_of

FIRST = ""
"""The lane of the task's own session."""


class Lanes:
    """A branch that parts from others has a lane of its own, and so has each round that may run
    beside others. It follows from the graph alone, so a step finds its session after a restart."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def of(self, place: Place) -> str:
        if self._layout.workflow.parallel == 1:
            return FIRST
        around, scope = "", place.scope
        while (above := outer(scope)) is not None:
            path, n = above
            container = place_of(path)
            assert container is not None
            config = self._layout.nodes[container.node].config
            if isinstance(config, Foreach) and config.mode == "parallel":
                around = f"{path}[{n}]/{around}"
            scope = container.scope
        return around + self._branches.get(place.node, FIRST)

    @cached_property
    def _branches(self) -> dict[str, str]:
        """A body goes on in the lane of its loop."""
        lanes: dict[str, str] = {}
        left = [(OUTERMOST, FIRST)]
        while left:
            name, first = left.pop()
            own = _of_ring(self._layout.rings[name], first)
            lanes |= own
            left += [(node, lane) for node, lane in own.items() if node in self._layout.rings]
        return lanes


def _of_ring(ring: Ring, first: str) -> Mapping[str, str]:
    """Where all branches of a fork meet again, the work goes on in the lane they parted from;
    where only some meet, the others may still be under way beside it."""
    sources = {node: [edge.source for edge in ring.into.get(node, ())] for node in ring.nodes}
    targets = {node: [edge.target for edge in ring.out.get(node, ())] for node in ring.nodes}
    order = _in_order(sources, targets)
    parted, met = Common(order, sources), Common(order[::-1], targets)
    begins = [node for node in order if not sources[node]]
    lanes = {BEGIN: first}
    for node in order:
        before = parted.above[node]
        if len(set(sources[node])) > 1:
            goes_on = node == (met.above[before] if before != BEGIN else met.of(begins))
        else:
            goes_on = len(begins) == 1 if before == BEGIN else not _parts(ring, before)
        lanes[node] = lanes[before] if goes_on else node
    del lanes[BEGIN]
    return lanes


def _parts(ring: Ring, node: str) -> bool:
    """Whether more than one of the ways behind it may be taken."""
    behind, kind = ring.out.get(node, ()), ring.nodes[node].type
    if kind == NodeType.SWITCH or len({edge.target for edge in behind}) == 1:
        return False
    # Those without a condition are taken where none holds.
    others = sum(not edge.condition for edge in behind)
    return (
        kind == NodeType.PARALLEL
        or others > 1
        or (kind != NodeType.CONDITION and len(behind) - others > 1)
    )


def _in_order(
    sources: Mapping[str, Sequence[str]], targets: Mapping[str, Sequence[str]]
) -> Sequence[str]:
    """Each behind all that lead to it."""
    left = {node: len(each) for node, each in sources.items()}
    order = [node for node, n in left.items() if not n]
    for node in order:
        for target in targets[node]:
            left[target] -= 1
            if not left[target]:
                order.append(target)
    return order
