"""Which steps share a session: those that can never run at the same time as one another."""

from __future__ import annotations

from functools import cached_property

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


def _of_ring(ring: Ring, first: str) -> dict[str, str]:
    lanes: dict[str, str] = {}
    left = {node: len(ring.into.get(node, ())) for node in ring.nodes}
    free = [node for node, n in left.items() if not n]
    for node in free:
        lanes[node] = first if len(free) == 1 else node
    while free:
        node = free.pop()
        behind = ring.out.get(node, ())
        parts = len(behind) > 1 and (
            ring.nodes[node].type == NodeType.PARALLEL or sum(not e.condition for e in behind) > 1
        )
        for edge in behind:
            # Where branches meet again the work goes on in the ring's first lane.
            meets = len(ring.into.get(edge.target, ())) > 1
            lanes[edge.target] = first if meets else edge.target if parts else lanes[node]
            left[edge.target] -= 1
            if not left[edge.target]:
                free.append(edge.target)
    return lanes
