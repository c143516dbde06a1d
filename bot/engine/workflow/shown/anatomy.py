"""What the runs of a workflow are called, for those who look at them from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bot.engine.observe.pieces import NodeName
from bot.engine.workflow.graph import PLANNING, BadGraph, Node, load_workflow
from bot.engine.workflow.routing.paths import outer, place_of


def anatomy(body: Mapping[str, Any] | None) -> Callable[[str], NodeName | None]:
    """Names the runs of the plan that was stored as `body`, by path: None for what is only a note.
    A node that a newer plan has dropped is called by its id."""
    nodes = _nodes(body)

    def name_of(path: str) -> NodeName | None:
        if path == PLANNING:
            return NodeName(title="plan", type="plan")
        place = place_of(path)
        if place is None:
            return None
        node = nodes.get(place.node)
        around = outer(place.scope)
        which = f" [{around[1] + 1}]" if around else ""
        again = f" #{place.round}" if place.round > 1 else ""
        return NodeName(
            title=f"{(node.title if node else '') or place.node}{which}{again}",
            type=str(node.type) if node else "",
            inside=around[0] if around else "",
        )

    return name_of


def _nodes(body: Mapping[str, Any] | None) -> Mapping[str, Node]:
    try:
        return load_workflow(body).by_id if body else {}
    except BadGraph:
        return {}
