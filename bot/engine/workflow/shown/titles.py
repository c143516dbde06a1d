"""What a node is called in one of its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from bot.engine.workflow.expressions.templates import fill, replaced
from bot.engine.workflow.model.layout import Layout
from bot.engine.workflow.model.nodes import NodeType
from bot.engine.workflow.routing.handlers import ROUNDERS
from bot.engine.workflow.routing.marks import brought, is_over
from bot.engine.workflow.routing.paths import VARIABLES, outer, place_of
from storage.records.tasks import NodeRun

_HOLES = ("{{", "${")
_LONGEST = 400


class Titles:
    def __init__(self, layout: Layout, runs: Mapping[str, NodeRun]) -> None:
        self._layout = layout
        self._runs = runs
        self._rounds: dict[str, Mapping[str, Any]] = {"": {}}

    def has(self, node: str) -> bool:
        return node in self._layout.nodes

    def of(self, scope: str, node: str) -> str:
        """With its holes filled as far as that is known, else with what is to come into them;
        without a title its id."""
        title = self._layout.nodes[node].title
        if any(hole in title for hole in _HOLES):
            names = {**self._known, **self._inside(scope)}
            title = " ".join(_filled(title, names)[:_LONGEST].split())
        return title or node

    @cached_property
    def _known(self) -> Mapping[str, Any]:
        workflow = self._layout.workflow
        kept = self._runs.get(VARIABLES)
        brought_last: dict[str, Any] = {}
        for path, run in self._runs.items():
            place = place_of(path)
            if place is not None and is_over(run):
                brought_last[place.node] = brought(run)
        return {
            "variables": {**workflow.variables, **(kept.output if kept else {})},
            "inputs": {each.name: each.default for each in workflow.inputs} | dict(workflow.values),
            "outputs": brought_last,
        }

    def _inside(self, scope: str) -> Mapping[str, Any]:
        """The names that the rounds around it give."""
        if scope not in self._rounds:
            self._rounds[scope] = self._named(scope)
        return self._rounds[scope]

    def _named(self, scope: str) -> Mapping[str, Any]:
        above = outer(scope)
        container = place_of(above[0]) if above else None
        if above is None or container is None:
            return {}
        around = self._inside(container.scope)
        of = self._runs.get(container.of)
        node = self._layout.nodes.get(container.node)
        if of is None or node is None or not node.body:
            return around
        try:
            own = ROUNDERS[NodeType(node.type)].names(node, of.output, above[1])
        except LookupError:
            # A round that has not begun, of a list that is shorter.
            return around
        return {**around, **own}


def _filled(title: str, names: Mapping[str, Any]) -> str:
    def one(hole: str, expression: str) -> str:
        unknown: list[str] = []
        text = fill(hole, names, unknown.append)
        # Who runs the step says so where people look; drawn again, it would be said each time.
        return f"‹{expression}›" if unknown else text

    return replaced(title, one)
