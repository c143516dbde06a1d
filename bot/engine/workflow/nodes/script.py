"""Works out an expression, into a variable if it names one."""

from __future__ import annotations

from bot.engine.workflow.expressions.language import ExpressionError
from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.nodes.base import Done, Effect, Failed, Instant, Sight, assigned


class Script(Instant):
    def enter(self, node: Node, sight: Sight) -> Effect:
        config = node.config
        assert isinstance(config, nodes.Script)
        if not config.expression:
            return assigned(config.assignments, sight)
        try:
            value = sight.value(config.expression)
        except ExpressionError as error:
            facts = {"name": config.output or node.id, "why": str(error)}
            return Failed(key="workflow.no_value", facts=facts)
        made = {config.output: value} if config.output else {}
        return Done(output={"_raw": value, **made}, variables=made)
