"""Whether a workflow goes on though one of its steps has failed for good."""

from __future__ import annotations

from bot.engine.workflow.model.nodes import OnError
from bot.engine.workflow.model.shape import Workflow
from bot.engine.workflow.routing.paths import outer, place_of


def goes_on_without(workflow: Workflow, path: str) -> bool:
    """Where the step itself says so, or a loop or foreach around it."""
    nodes = workflow.by_id
    while (place := place_of(path)) is not None and place.node in nodes:
        if nodes[place.node].on_error is not OnError.FAIL:
            return True
        above = outer(place.scope)
        if above is None:
            return False
        path = above[0]
    return False
