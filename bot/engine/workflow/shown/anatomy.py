"""What the runs of a workflow are called, for those who look at them from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bot.engine.observe.pieces import NodeName
from bot.engine.workflow.graph import PLANNING, BadGraph, Workflow, load_workflow
from bot.engine.workflow.model.layout import Layout
from bot.engine.workflow.routing.paths import Place, outer, place_of
from bot.engine.workflow.shown.titles import Titles
from storage.records.tasks import NodeRun


def anatomy(
    body: Mapping[str, Any] | None, runs: Mapping[str, NodeRun] | None = None
) -> Callable[[str], NodeName | None]:
    """Names the runs of the plan that was stored as `body`, by path: None for what is only a note.
    A node that a newer plan has dropped is called by its id. With `runs` the holes in titles are
    filled."""
    workflow = _workflow(body)
    nodes = workflow.by_id if workflow is not None else {}
    written = {node: n for n, node in enumerate(nodes)}
    titles = Titles(Layout(workflow), runs) if workflow is not None and runs is not None else None

    def title_of(place: Place) -> str:
        if place.node not in nodes:
            return place.node
        return titles.of(place.scope, place.node) if titles else nodes[place.node].title

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
            title=f"{title_of(place) or place.node}{which}{again}",
            type=str(node.type) if node else "",
            inside=around[0] if around else "",
            order=(around[1] if around else 0, written.get(place.node, 0), place.round),
        )

    return name_of


def _workflow(body: Mapping[str, Any] | None) -> Workflow | None:
    try:
        return load_workflow(body) if body else None
    except BadGraph:
        return None
