"""What expressions can do with values. Sizes are bounded, so that none takes long."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from bot.engine.workflow.expressions.wrong import BadExpression

_MOST = 200_000
_LARGEST = 1e18
_MOST_POWER = 64


def same(one: Any, two: Any) -> bool:
    """Equal, and of one kind: 1 is not true, and "1" is not 1."""
    if isinstance(one, bool) != isinstance(two, bool):
        return False
    return bool(one == two)


def _number(value: Any) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadExpression(f"{_kind(value)} is no number")
    return value


def _within(value: float) -> float | int:
    if not math.isfinite(value) or abs(value) > _LARGEST:
        raise BadExpression("the number is too large")
    return value


def _of_numbers(act: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, two: _within(act(_number(one), _number(two)))


def _plus(one: Any, two: Any) -> Any:
    if isinstance(one, str) or isinstance(two, str):
        return _short(_text(one) + _text(two))
    if isinstance(one, list) and isinstance(two, list):
        return _short(one + two)
    return _within(_number(one) + _number(two))


def _power(one: Any, two: Any) -> Any:
    if abs(_number(two)) > _MOST_POWER:
        raise BadExpression("the power is too large")
    result = float(_number(one)) ** two
    if isinstance(result, complex):
        raise BadExpression("it has no real value")
    return _within(int(result) if result.is_integer() and isinstance(one, int) else result)


def _ordered(act: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(one: Any, two: Any) -> bool:
        if isinstance(one, str) and isinstance(two, str):
            return act(one, two)
        return act(_number(one), _number(two))

    return compare


def includes(whole: Any, part: Any) -> bool:
    if isinstance(whole, str):
        return _text(part) in whole
    if isinstance(whole, list):
        return any(same(each, part) for each in whole)
    if isinstance(whole, Mapping):
        return part in whole
    raise BadExpression(f"{_kind(whole)} contains nothing")


def _get(whole: Any, key: Any, other: Any = None) -> Any:
    if isinstance(whole, Mapping):
        return whole.get(key, other)
    if isinstance(whole, list | str) and isinstance(key, int) and -len(whole) <= key < len(whole):
        return whole[key]
    return other


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, Mapping) and isinstance(value.get("_raw"), str):
        return str(value["_raw"])
    return str(_short(repr(value)))


def _as_number(value: Any) -> float | int:
    if isinstance(value, str):
        number = float(value)
        return _within(int(number) if number.is_integer() and "." not in value else number)
    return int(value) if isinstance(value, bool) else _number(value)


def _short(value: Any) -> Any:
    if len(value) > _MOST:
        raise BadExpression("the value is too long")
    return value


def _round(value: Any, digits: int = 0) -> float | int:
    """Halves go up, as people expect; Python's own go to the even neighbour."""
    scale = 10 ** min(max(int(digits), 0), 12)
    result = math.floor(_number(value) * scale + 0.5) / scale
    return int(result) if not digits else result


def _split(text: Any, by: str = " ") -> list[str]:
    if not by:
        return list(_string(text))
    return _string(text).split(by)


def _join(items: Any, by: str = ",") -> str:
    if not isinstance(items, list):
        raise BadExpression(f"{_kind(items)} is no list")
    return str(_short(by.join(_text(each) for each in items)))


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise BadExpression(f"{_kind(value)} is no text")
    return value


def _lowest(*values: Any) -> Any:
    return min(_number(each) for each in _spread(values))


def _highest(*values: Any) -> Any:
    return max(_number(each) for each in _spread(values))


def _spread(values: tuple[Any, ...]) -> list[Any]:
    alone = len(values) == 1 and isinstance(values[0], list)
    return list(values[0] if alone else values)


def _length(value: Any) -> int:
    if isinstance(value, str | list | Mapping):
        return len(value)
    raise BadExpression(f"{_kind(value)} has no length")


def _slice(value: Any, start: int = 0, end: int | None = None) -> Any:
    if not isinstance(value, str | list):
        raise BadExpression(f"{_kind(value)} has no parts")
    return value[start:end]


def _now() -> int:
    """Milliseconds since 1970."""
    return int(datetime.now(UTC).timestamp() * 1_000)


def _kind(value: Any) -> str:
    names = {str: "a text", bool: "true or false", list: "a list", type(None): "nothing"}
    return names.get(type(value), "a group" if isinstance(value, Mapping) else "this")


OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: _plus,
    ast.Sub: _of_numbers(operator.sub),
    ast.Mult: _of_numbers(operator.mul),
    ast.Div: _of_numbers(operator.truediv),
    ast.Mod: _of_numbers(operator.mod),
    ast.Pow: _power,
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.In: lambda one, two: includes(two, one),
    ast.NotIn: lambda one, two: not includes(two, one),
}

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "len": _length,
    "has": includes,
    "get": _get,
    "str": _text,
    "num": _as_number,
    "bool": bool,
    "now": _now,
    "floor": lambda value: math.floor(_number(value)),
    "ceil": lambda value: math.ceil(_number(value)),
    "round": _round,
    "min": _lowest,
    "max": _highest,
    "abs": lambda value: abs(_number(value)),
    "includes": includes,
    "startsWith": lambda text, start: _string(text).startswith(start),
    "endsWith": lambda text, end: _string(text).endswith(end),
    "lower": lambda text: _string(text).lower(),
    "upper": lambda text: _string(text).upper(),
    "trim": lambda text: _string(text).strip(),
    "split": _split,
    "join": _join,
}

METHODS: Mapping[str, Callable[..., Any]] = {
    "includes": includes,
    "startsWith": FUNCTIONS["startsWith"],
    "endsWith": FUNCTIONS["endsWith"],
    "toLowerCase": FUNCTIONS["lower"],
    "toUpperCase": FUNCTIONS["upper"],
    "toString": _text,
    "trim": FUNCTIONS["trim"],
    "split": _split,
    "join": _join,
    "slice": _slice,
    "now": lambda _: _now(),
}
