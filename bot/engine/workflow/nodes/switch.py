"""Goes on with one of several nodes, by what an expression gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.engine.workflow.expressions.language import ExpressionError
from bot.engine.workflow.expressions.values import same, text_of
from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.nodes.base import Done, Effect, Failed, Instant, Sight


class Switch(Instant):
    def enter(self, node: Node, sight: Sight) -> Effect:
        config = node.config
        assert isinstance(config, nodes.Switch)
        try:
            value = sight.value(config.expression)
        except ExpressionError as error:
            if config.default:
                sight.warn(str(error))
                return Done(output={"_raw": None}, to=config.default)
            return Failed(key="workflow.no_value", facts={"name": node.id, "why": str(error)})
        fits = (case.target for case in config.cases if _same(case.value, value))
        return Done(output={"_raw": value}, to=next(fits, config.default))


def _same(wanted: Any, value: Any) -> bool:
    """`"3"` fits 3, and `"true"` what is true: models write either. Of an output it is the text
    that counts."""
    if same(wanted, value):
        return True
    if not (isinstance(wanted, str) or isinstance(value, str | Mapping)):
        return False
    return _text(wanted) == _text(value)


def _text(value: Any) -> str:
    if value is None:
        return "null"
    try:
        return text_of(value).strip().casefold()
    except ExpressionError:
        return ""
