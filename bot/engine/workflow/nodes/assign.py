"""Sets variables, one after the other: a later one sees the earlier."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from bot.engine.workflow.expressions.language import ExpressionError
from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.nodes.base import Done, Effect, Failed, Instant, Sight


class Assign(Instant):
    def enter(self, node: Node, sight: Sight) -> Effect:
        assert isinstance(node.config, nodes.Assign)
        return assigned(node.config.assignments, sight)


def assigned(assignments: Iterable[nodes.Assignment], sight: Sight) -> Done | Failed:
    """Its output is what it has set."""
    made: dict[str, Any] = {}
    for each in assignments:
        try:
            made[each.variable] = sight.value(str(each.value)) if each.is_expression else each.value
        except ExpressionError as error:
            return Failed(key="workflow.no_value", facts={"name": each.variable, "why": str(error)})
        variables = {**sight.names.get("variables", {}), **made}
        sight = replace(sight, names={**sight.names, "variables": variables})
    return Done(output=made, variables=made)
