"""The nodes of a ring as people read them: branch after branch, each in its order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from bot.engine.workflow.model.layout import Ring
from bot.engine.workflow.model.nodes import NodeType, Switch
from bot.engine.workflow.model.shape import Edge
from cards.safe_text import in_line

_DEEPEST = 6

_Trail: TypeAlias = tuple[tuple[str, int], ...]
"""The branches that a node is inside of: where each parts, and which of them it is."""


@dataclass(frozen=True, slots=True)
class Slot:
    """`branch` is set where a branch begins, to the name of what leads into it."""

    node: str
    depth: int
    branch: str | None


def slots(ring: Ring) -> tuple[Slot, ...]:
    """All nodes of the ring. What waits for several branches comes behind them all, and is inside
    only those that are around all of them."""
    trails: dict[str, _Trail] = {}
    came: dict[str, Edge] = {}
    found: list[Slot] = []
    left = {node: len(ring.into.get(node, ())) for node in ring.nodes}
    free = [node for node, n in left.items() if not n][::-1]
    waiting: dict[str, list[_Trail]] = defaultdict(list)
    on = _leading_on(ring)
    while free:
        node = free.pop()
        trail = trails[node] = _common(waiting.pop(node, []))
        found.append(Slot(node, len(trail), _branch(ring, trail, came.get(node))))
        parts = _parts(ring, node, on)
        freed: list[str] = []
        for edge in ring.out.get(node, ()):
            at = parts.get(edge.target)
            inside = trail if at is None or len(trail) >= _DEEPEST else (*trail, (node, at))
            waiting[edge.target].append(inside)
            came[edge.target] = edge
            left[edge.target] -= 1
            if not left[edge.target]:
                freed.append(edge.target)
        # What only leads back is told first: the way on is what comes next.
        freed.reverse()
        free += sorted(freed, key=lambda each: each not in on)
    return tuple(found)


def _leading_on(ring: Ring) -> AbstractSet[str]:
    """The nodes with a way to the end of the ring, rather than only back."""
    on = {node for node in ring.nodes if not ring.out.get(node) and node not in ring.back_out}
    free = list(on)
    while free:
        for edge in ring.into.get(free.pop(), ()):
            if edge.source not in on:
                on.add(edge.source)
                free.append(edge.source)
    return on


def _parts(ring: Ring, node: str, on: AbstractSet[str]) -> Mapping[str, int]:
    """The nodes with which branches begin behind this one. One that leads to nothing but an end is
    none, and neither is the way on where all others only lead back."""
    targets = dict.fromkeys(edge.target for edge in ring.out.get(node, ()))
    those = [each for each in targets if ring.nodes[each].type != NodeType.END]
    ways_on = [each for each in those if each in on]
    if len(ways_on) == 1:
        those = [each for each in those if each not in on]
    return {each: n for n, each in enumerate(those)}


def _common(trails: Sequence[_Trail]) -> _Trail:
    if not trails:
        return ()
    shortest = min(trails, key=len)
    for n, each in enumerate(shortest):
        if any(trail[n] != each for trail in trails):
            return shortest[:n]
    return shortest


def _branch(ring: Ring, trail: _Trail, edge: Edge | None) -> str | None:
    if edge is None or not trail or trail[-1][0] != edge.source:
        return None
    return name_of(ring, edge)


def name_of(ring: Ring, edge: Edge) -> str:
    """What leads into a branch, in words, if there are any."""
    if edge.label:
        return in_line(edge.label)
    config = ring.nodes[edge.source].config
    if not isinstance(config, Switch):
        return ""
    values = (case.value for case in config.cases if case.target == edge.target)
    return next((in_line(value) for value in values if isinstance(value, str)), "")
