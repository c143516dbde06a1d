"""Sets variables, one after the other: a later one sees the earlier."""

from __future__ import annotations

from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.nodes.base import Effect, Instant, Sight, assigned


class Assign(Instant):
    def enter(self, node: Node, sight: Sight) -> Effect:
        assert isinstance(node.config, nodes.Assign)
        return assigned(node.config.assignments, sight)
