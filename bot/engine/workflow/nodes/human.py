"""What only a person can do or decide. Asking is the boundary's; here is what its time does."""

from __future__ import annotations

from datetime import timedelta

from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.nodes.base import Done, Effect, Failed, Sight, Wait


class Human:
    def enter(self, node: Node, sight: Sight) -> Effect:
        """For how long it is waited for, from the moment it is asked about."""
        config = node.config
        timeout = config.timeout if isinstance(config, nodes.Human) else None
        return Wait(until=None if timeout is None else sight.now + timedelta(seconds=timeout))

    def wake(self, node: Node, sight: Sight) -> Effect:
        config = node.config
        if isinstance(config, nodes.Human) and config.auto_approve:
            return Done(output={"approved": True, "auto": True})
        return Failed(key="workflow.nobody_decided", facts={"name": node.title})
