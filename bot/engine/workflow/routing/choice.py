"""Which edges are taken behind a node that is over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bot.engine.workflow.model.nodes import NodeType, OnLimit, Switch
from bot.engine.workflow.model.shape import Edge
from bot.engine.workflow.nodes.base import Sight
from bot.engine.workflow.routing.frame import Frame
from bot.engine.workflow.routing.marks import EXHAUSTED, TOOK


def chosen(frame: Frame, node: str, sight: Sight, *, to: str | None = None) -> Mapping[str, Any]:
    """What is noted of the choice; nothing where there was none. `to` is the one node that a
    switch has chosen.

    Every edge whose condition holds is taken, behind a condition node only the first; where none
    holds, those without a condition. An edge that leads back and has been taken as often as it may
    counts as one that does not hold.
    """
    ring = frame.ring
    if not ring.branches(node):
        return {}
    edges = [*ring.back_out.get(node, ()), *ring.out.get(node, ())]
    if ring.nodes[node].type == NodeType.SWITCH:
        return _switched(frame, node, edges, to)
    in_order = sorted(edges, key=ring.position)
    used_up = [edge for edge in in_order if _is_used_up(frame, edge)]
    held = [edge for edge in in_order if edge not in used_up and _holds(frame, edge, sight)]
    if ring.nodes[node].type == NodeType.CONDITION:
        held = held[:1]
    others = held or _others(in_order, used_up)
    return _noted(others, () if held else _wanted(frame, used_up, sight))


def _switched(frame: Frame, node: str, edges: Sequence[Edge], to: str | None) -> Mapping[str, Any]:
    """Where the way that was chosen leads back and is used up, the default is left."""
    ways = [edge for edge in edges if edge.target == to]
    taken = [edge for edge in ways if not _is_used_up(frame, edge)]
    if taken or not ways:
        return _noted(taken, ())
    config = frame.ring.nodes[node].config
    default = config.default if isinstance(config, Switch) else ""
    others = [edge for edge in edges if edge.target == default and not _is_used_up(frame, edge)]
    return _noted(others, ways)


def _noted(taken: Sequence[Edge], wanted: Iterable[Edge]) -> Mapping[str, Any]:
    """Where an edge is used up and that must not pass in silence, it is noted with what could be
    taken instead."""
    over = [edge.name for edge in wanted if edge.on_limit is not OnLimit.CONTINUE]
    names = [edge.name for edge in taken]
    return {TOOK: names, EXHAUSTED: over[0]} if over else {TOOK: names}


def _holds(frame: Frame, edge: Edge, sight: Sight) -> bool:
    """An edge on a circle without a condition is wanted each time, for as often as it may be
    taken."""
    if not edge.condition:
        return edge.name in frame.ring.back or edge.name in frame.ring.counted
    return sight.holds(edge.condition)


def _others(edges: Iterable[Edge], used_up: Sequence[Edge]) -> Sequence[Edge]:
    return [edge for edge in edges if not edge.condition and edge not in used_up]


def _wanted(frame: Frame, used_up: Iterable[Edge], sight: Sight) -> Sequence[Edge]:
    return [edge for edge in used_up if _holds(frame, edge, sight)]


def _is_used_up(frame: Frame, edge: Edge) -> bool:
    if edge.max_loops is None:
        return False
    if edge.name in frame.ring.back:
        return frame.times.get(edge.name, 0) >= edge.max_loops
    return edge.name in frame.ring.counted and frame.taken[edge.name] >= edge.max_loops
