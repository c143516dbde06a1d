"""Which step hears what a helper reports: where the work goes on that has sent it off, once."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from bot.engine.workflow.model.layout import OUTERMOST, Layout, Ring
from bot.engine.workflow.model.nodes import Foreach, NodeType
from bot.engine.workflow.routing.flow import Flow
from bot.engine.workflow.routing.paths import Place, outer, place_of
from storage.records.tasks import NodeRun, NodeStatus
from storage.work.journal import Report

HEARD = "heard"
"""In the output of a step: how much of what was said its worker was told."""

DEAF = "deaf"
"""Beside it: the numbers of the reports among these that it was not told."""


def is_heard(n: int, runs: Mapping[str, NodeRun]) -> bool:
    """Whether a step that is done was told the report of that number."""
    return any(
        run.status is NodeStatus.DONE
        and int(run.output.get(HEARD, 0)) > n
        and n not in run.output.get(DEAF, ())
        for path, run in runs.items()
        if not path.startswith("@")
    )


def unheard_of(said: Sequence[str], runs: Mapping[str, NodeRun]) -> Sequence[str]:
    """What people said, and helpers reported, that no step which was finished has heard."""
    counts = (int(run.output[HEARD]) for run in runs.values() if HEARD in run.output)
    heard = max(counts, default=0)
    return [
        text
        for n, text in enumerate(said)
        if (not is_heard(n, runs) if isinstance(text, Report) else n >= heard)
    ]


class Ears:
    """Those of one lease: who runs now, and what they were told, is not kept longer."""

    def __init__(self) -> None:
        self._told: dict[str, Container[int]] = {}

    def deaf(
        self, flow: Flow, place: Place, said: Sequence[str], runs: Mapping[str, NodeRun]
    ) -> frozenset[int]:
        """The reports that other steps hear than this one, which begins: one that runs now was
        told, or one is still to come behind the step that asked for it, as this one is not."""
        reports = [(n, text) for n, text in enumerate(said) if isinstance(text, Report)]
        if flow.workflow.parallel == 1 or not reports:
            return frozenset()
        others = [self._told.get(path, ()) for path in flow.running - {place.path}]
        deaf = frozenset(
            n
            for n, text in reports
            if any(n in told for told in others)
            or _is_others(place, place_of(text.path), runs, flow.layout)
        )
        self._told[place.path] = {n for n, _ in reports} - deaf
        return deaf


def _is_others(
    place: Place, sender: Place | None, runs: Mapping[str, NodeRun], layout: Layout
) -> bool:
    if sender is None or sender.node not in layout.nodes or _follows(place, sender, layout):
        return False
    return any(_is_to_come(each, runs) for each in _behind(sender, layout))


def _follows(place: Place, sender: Place, layout: Layout) -> bool:
    """Whether it can only be done after the other, or is the same once more."""
    for here, there in zip_longest(_way(place), _way(sender)):
        if here is None or there is None:
            return True
        (at, n), (other, m) = here, there
        if at.node != other.node:
            ring = layout.rings[layout.container.get(other.node, OUTERMOST)]
            again = at.round > other.round and other.node in _after(ring, at.node)
            return again or at.node in _after(ring, other.node)
        config = layout.nodes[at.node].config
        is_beside = isinstance(config, Foreach) and config.mode == "parallel"
        if at.round != other.round or (n != m and not is_beside):
            return True
        if n != m:
            return False
    return True


def _way(place: Place) -> Sequence[tuple[Place, int | None]]:
    """Each loop it is in, from the outside in, with the number of the round; then itself."""
    way: list[tuple[Place, int | None]] = [(place, None)]
    scope = place.scope
    while (above := outer(scope)) is not None:
        around = place_of(above[0])
        assert around is not None
        way.append((around, above[1]))
        scope = around.scope
    return way[::-1]


def _behind(sender: Place, layout: Layout) -> Iterator[Place]:
    """The steps that come after it, within its rounds and after them; and itself, which may be
    tried again."""
    yield sender
    for at, _ in reversed(_way(sender)):
        ring = layout.rings[layout.container.get(at.node, OUTERMOST)]
        for node in _after(ring, at.node):
            if ring.nodes[node].type == NodeType.TASK or ring.nodes[node].body:
                yield Place(at.scope, node)


def _is_to_come(place: Place, runs: Mapping[str, NodeRun]) -> bool:
    run = runs.get(place.path)
    return run is None or run.status is NodeStatus.PENDING


def _after(ring: Ring, node: str) -> Iterable[str]:
    """All that can come after it, forward."""
    found = dict.fromkeys(edge.target for edge in ring.out.get(node, ()))
    left = list(found)
    while left:
        for edge in ring.out.get(left.pop(), ()):
            if edge.target not in found:
                found[edge.target] = None
                left.append(edge.target)
    return found
