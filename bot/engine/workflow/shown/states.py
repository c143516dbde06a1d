"""How far each node of a workflow is, as one state for all its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from bot.engine.workflow.model.layout import Layout
from bot.engine.workflow.model.shape import Edge
from bot.engine.workflow.routing.marks import is_dead, is_over, took
from bot.engine.workflow.routing.paths import Place, outer, place_of, scope_of
from bot.engine.workflow.routing.stored import Stored
from storage.records.tasks import NodeRun, NodeStatus

_LOUD = {NodeStatus.RUNNING: 3, NodeStatus.WAITING: 2, NodeStatus.FAILED: 1}


class Now:
    """Which activation of a node counts in a scope: the last that was begun, or comes next."""

    def __init__(self, layout: Layout, runs: Mapping[str, NodeRun]) -> None:
        self.layout = layout
        self.runs = runs
        self.stored = Stored(runs)
        self._rounds: dict[str, Mapping[str, int]] = {}
        self._open: dict[str, AbstractSet[str]] = {}

    def place(self, scope: str, node: str) -> Place:
        return Place(scope, node, self._of(scope).get(node, 1))

    def run(self, scope: str, node: str) -> NodeRun | None:
        return self.at(self.place(scope, node))

    def at(self, place: Place) -> NodeRun | None:
        """A branch that nothing comes to is still to come while something may lead back to it."""
        run = self.runs.get(place.path)
        if run is not None and is_dead(run) and place.node in self._reopening(place.scope):
            return None if self.is_current(place) else run
        return run

    def is_current(self, place: Place) -> bool:
        return self.place(place.scope, place.node) == place

    def _reopening(self, scope: str) -> AbstractSet[str]:
        if scope not in self._open:
            ring = self.layout.rings.get(self._ring(scope))
            self._open[scope] = {
                node
                for name, edge in (ring.back.items() if ring else ())
                if ring and not is_over(self.runs.get(self.place(scope, edge.source).path))
                for node in ring.region[name]
            }
        return self._open[scope]

    def _of(self, scope: str) -> Mapping[str, int]:
        if scope not in self._rounds:
            self._rounds[scope] = self._count(scope)
        return self._rounds[scope]

    def _count(self, scope: str) -> Mapping[str, int]:
        times = self.stored.times(scope)
        ring = self.layout.rings.get(self._ring(scope))
        rounds: dict[str, int] = {}
        for edge, n in times.items() if ring else ():
            for node in ring.region.get(edge, ()) if ring else ():
                rounds[node] = rounds.get(node, 1) + n
        return rounds

    def _ring(self, scope: str) -> str:
        above = outer(scope)
        container = place_of(above[0]) if above else None
        return container.node if container else ""


def states(layout: Layout, runs: Mapping[str, NodeRun]) -> Mapping[str, NodeStatus]:
    """Whatever of a node is under way counts before what is over; nodes not begun are left out."""
    now = Now(layout, runs)
    found: dict[str, NodeRun] = {}
    for path, run in runs.items():
        place = place_of(path)
        if place is None or place.node not in layout.nodes or not now.is_current(place):
            continue
        if _counts_before(run, found.get(place.node)):
            found[place.node] = run
    return {node: _told(layout, node, run.status) for node, run in found.items()}


def _told(layout: Layout, node: str, status: NodeStatus) -> NodeStatus:
    """What runs its rounds waits for them in the store only."""
    rounds = status is NodeStatus.WAITING and layout.nodes[node].body
    return NodeStatus.RUNNING if rounds else status


def is_taken(edge: Edge, run: NodeRun | None) -> bool | None:
    """Whether the edge behind a node was taken; None while that is open."""
    if run is None or not is_over(run):
        return None
    chosen = took(run)
    if run.status is NodeStatus.SKIPPED and chosen is None:
        return not is_dead(run) and not edge.condition
    return edge.name in chosen if chosen is not None else not edge.condition


def _counts_before(run: NodeRun, other: NodeRun | None) -> bool:
    if other is None:
        return True
    mine, its = _LOUD.get(run.status, 0), _LOUD.get(other.status, 0)
    return mine > its or (mine == its and _order(run) >= _order(other))


def _order(run: NodeRun) -> tuple[int, ...]:
    """Later rounds come behind earlier ones."""
    numbers: list[int] = []
    scope = scope_of(run.path)
    while (above := outer(scope)) is not None:
        numbers.append(above[1])
        scope = scope_of(above[0])
    return tuple(reversed(numbers))
