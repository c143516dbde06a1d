"""A rest of so many seconds, kept in the store as the time when it ends."""

from __future__ import annotations

from datetime import timedelta

from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.nodes.base import Done, Effect, Sight, Wait


class Delay:
    def enter(self, node: Node, sight: Sight) -> Effect:
        assert isinstance(node.config, nodes.Delay)
        return Wait(until=sight.now + timedelta(seconds=node.config.seconds))

    def wake(self, node: Node, sight: Sight) -> Effect:
        return Done()
