"""What the runs of a workflow are called, for those who look at them from outside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from bot.engine.observe.pieces import NodeName
from bot.engine.workflow.graph import PLANNING, BadGraph, Workflow, load_workflow
from bot.engine.workflow.model.layout import Layout
from bot.engine.workflow.routing.paths import Place, outer, place_of
from bot.engine.workflow.shown.titles import Titles
from storage.records.tasks import NodeRun


def anatomy(
    body: Mapping[str, Any] | None,
    runs: Mapping[str, NodeRun] | None = None,
    older: Sequence[Mapping[str, Any]] = (),
) -> Callable[[str], NodeName | None]:
    """Names the runs of the plan that was stored as `body`, by path: None for what is only a note.
    A node that it has dropped is called as in the first of the `older` plans that has it, else by
    its id. With `runs` the holes in titles are filled."""
    plans = [plan for each in (body, *older) if (plan := _workflow(each)) is not None]
    nodes = {node.id: node for plan in reversed(plans) for node in plan.nodes}
    written = {node.id: n for n, node in enumerate(plans[0].nodes)} if plans else {}
    titles = [Titles(Layout(plan), runs) for plan in plans] if runs is not None else []

    def title_of(place: Place) -> str:
        known = (each for each in titles if each.has(place.node))
        if (named := next(known, None)) is not None:
            return named.of(place.scope, place.node)
        return nodes[place.node].title if place.node in nodes else place.node

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


def dropped(body: Mapping[str, Any], paths: Collection[str]) -> Collection[str]:
    """Those of these runs of whose nodes the plan that was stored as `body` knows nothing."""
    held = {each.get("id") for each in body.get("nodes", ())}
    places = {path: place_of(path) for path in paths}
    return [path for path, place in places.items() if place is not None and place.node not in held]


def _workflow(body: Mapping[str, Any] | None) -> Workflow | None:
    try:
        return load_workflow(body) if body else None
    except BadGraph:
        return None
