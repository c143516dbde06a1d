"""A step as it is done this time, and what it sees of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from bot.engine.workflow.expressions.templates import fill
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.routing.flow import Flow
from bot.engine.workflow.routing.paths import Place
from cards import formats
from storage.records.tasks import NodeRun

_HOLES = ("{{", "${")
_MOST_OF_TITLE = 500
_MOST_OF_DETAIL = 60_000


def as_done(flow: Flow, place: Place, node: Node, now: datetime) -> Node:
    """Its id is the path of this activation, its texts are filled in, each up to a size."""
    if not any(hole in node.title or hole in node.detail for hole in _HOLES):
        return replace(node, id=place.path) if place.path != node.id else node
    seen = flow.sight(place.scope, now)
    return replace(
        node,
        id=place.path,
        title=formats.cut(fill(node.title, seen.names, seen.warn), _MOST_OF_TITLE),
        detail=_bounded(fill(node.detail, seen.names, seen.warn)),
    )


def _bounded(detail: str) -> str:
    """Whoever reads it is told that there was more."""
    if len(detail) <= _MOST_OF_DETAIL:
        return detail
    left = len(detail) - _MOST_OF_DETAIL
    return f"{detail[:_MOST_OF_DETAIL]}…\n[{left} more characters of this text are left out.]"


def seen_from(flow: Flow, place: Place, runs: Mapping[str, NodeRun]) -> Mapping[str, NodeRun]:
    """Every run by its path, and by a node's id the one that counts from here."""
    return {**runs, **flow.seen(place.scope)}
