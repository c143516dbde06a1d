"""What expressions can do with values. Sizes are bounded, so that none takes long."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from bot.engine.workflow.expressions.functions import FUNCTIONS, METHODS
from bot.engine.workflow.expressions.values import (
    fair,
    includes,
    index_of,
    number,
    plain,
    same,
    short,
    text_of,
    weight,
    within,
)
from bot.engine.workflow.expressions.wrong import BadExpression

__all__ = [
    "COMPARISONS",
    "FUNCTIONS",
    "METHODS",
    "OPERATORS",
    "fair",
    "index_of",
    "plain",
    "weight",
]

_MOST_POWER = 64


def _of_numbers(act: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, two: within(act(number(one), number(two)))


def _plus(one: Any, two: Any) -> Any:
    if isinstance(one, str) or isinstance(two, str):
        texts = text_of(one), text_of(two)
        return short("".join(map(short, texts)))
    if isinstance(one, list) and isinstance(two, list):
        return short(short(one) + short(two))
    return within(number(one) + number(two))


def _rest(one: Any, two: Any) -> Any:
    """It has the sign of what is divided, as in the language that workflows are usually written
    in; Python's own has that of the divisor."""
    rest = abs(one) % abs(two)
    return -rest if one < 0 else rest


def _power(one: Any, two: Any) -> Any:
    if abs(number(two)) > _MOST_POWER:
        raise BadExpression("the power is too large")
    result = float(number(one)) ** two
    if isinstance(result, complex):
        raise BadExpression("it has no real value")
    return within(result)


def _ordered(act: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(one: Any, two: Any) -> bool:
        if isinstance(one, str) and isinstance(two, str):
            return act(one, two)
        return act(number(one), number(two))

    return compare


OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": _plus,
    "-": _of_numbers(operator.sub),
    "*": _of_numbers(operator.mul),
    "/": _of_numbers(operator.truediv),
    "%": _of_numbers(_rest),
    "^": _power,
}

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": same,
    "!=": lambda one, two: not same(one, two),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "in": lambda one, two: includes(two, one),
    "not in": lambda one, two: not includes(two, one),
}
