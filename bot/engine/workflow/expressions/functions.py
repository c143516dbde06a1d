"""The functions of expressions, and those that can be called on a value with a point."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bot.engine.workflow.expressions.values import (
    MOST,
    fair,
    includes,
    index_of,
    kind,
    number,
    short,
    text_of,
    within,
)
from bot.engine.workflow.expressions.wrong import BadExpression

_MOST_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Function:
    """Takes from `least` to `most` values; None for as many as there are."""

    name: str
    act: Callable[..., Any]
    least: int
    most: int | None

    @property
    def is_quick(self) -> bool:
        """Whether it does not matter how large the values are."""
        return self.act in _QUICK

    def fits(self, n: int) -> None:
        """Raises BadExpression for too few values, or too many."""
        if n < self.least or (self.most is not None and n > self.most):
            raise BadExpression(f"{self.name}() takes another number of values")


def _has(whole: Any, key: Any) -> bool:
    if isinstance(whole, Mapping):
        return key in whole
    return includes(whole, key)


def _get(whole: Any, key: Any, other: Any = None) -> Any:
    if isinstance(whole, Mapping):
        return whole.get(key, other)
    at = index_of(key)
    if isinstance(whole, list | str) and at is not None and -len(whole) <= at < len(whole):
        return whole[at]
    return other


def _as_number(value: Any) -> float | int:
    if isinstance(value, str):
        try:
            return within(float(short(value)))
        except ValueError as error:
            if isinstance(error, BadExpression):
                raise
            raise BadExpression(f"{value[:40]!r} is no number") from error
    return int(value) if isinstance(value, bool) else number(value)


def _round(value: Any, digits: Any = 0) -> float | int:
    """Halves go up, as people expect; Python's own go to the even neighbour."""
    scale = 10 ** min(max(_whole(digits), 0), _MOST_DIGITS)
    return within(math.floor(within(number(value)) * scale + 0.5) / scale)


def _split(text: Any, by: Any = " ") -> Any:
    whole, by = short(_string(text)), _string(by)
    return whole.split(by) if by else list(whole)


def _join(items: Any, by: Any = ",") -> str:
    if not isinstance(items, list):
        raise BadExpression(f"{kind(items)} is no list")
    if len(_string(by)) * len(items) > MOST:
        raise BadExpression("the value is too long")
    fair(items)
    return str(short(by.join(text_of(each) for each in items)))


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise BadExpression(f"{kind(value)} is no text")
    return value


def _whole(value: Any) -> int:
    at = index_of(value)
    if at is None:
        raise BadExpression(f"{kind(value)} is no whole number")
    return at


def _lowest(*values: Any) -> Any:
    return min(_numbers(values))


def _highest(*values: Any) -> Any:
    return max(_numbers(values))


def _numbers(values: tuple[Any, ...]) -> list[float | int]:
    alone = len(values) == 1 and isinstance(values[0], list)
    found = [number(each) for each in (values[0] if alone else values)]
    if not found:
        raise BadExpression("the list is empty")
    return found


def _length(value: Any) -> int:
    if isinstance(value, str | list | Mapping):
        return len(value)
    raise BadExpression(f"{kind(value)} has no length")


def _slice(value: Any, start: Any = 0, end: Any = None) -> Any:
    if not isinstance(value, str | list):
        raise BadExpression(f"{kind(value)} has no parts")
    return value[_whole(start) : None if end is None else _whole(end)]


def _now() -> int:
    """Milliseconds since 1970, where nobody has said what time it is."""
    return int(datetime.now(UTC).timestamp() * 1_000)


def _starts(text: Any, start: Any) -> bool:
    return _string(text).startswith(_string(start))


def _ends(text: Any, end: Any) -> bool:
    return _string(text).endswith(_string(end))


def _lower(text: Any) -> str:
    return _string(text).lower()


def _upper(text: Any) -> str:
    return _string(text).upper()


def _trim(text: Any) -> str:
    return _string(text).strip()


def _floor(value: Any) -> int:
    return math.floor(within(number(value)))


def _ceil(value: Any) -> int:
    return math.ceil(within(number(value)))


def _abs(value: Any) -> float | int:
    return abs(number(value))


def _bool(value: Any) -> bool:
    return bool(value)


_QUICK = {_length, _get, _bool, _now}


def _table(acts: Mapping[str, Callable[..., Any]]) -> Mapping[str, Function]:
    return {name: _function(name, act) for name, act in acts.items()}


def _function(name: str, act: Callable[..., Any]) -> Function:
    given = inspect.signature(act).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in given):
        return Function(name, act, 1, None)
    needed = [each for each in given if each.default is inspect.Parameter.empty]
    return Function(name, act, len(needed), len(given))


FUNCTIONS = _table(
    {
        "len": _length,
        "has": _has,
        "get": _get,
        "str": text_of,
        "num": _as_number,
        "bool": _bool,
        "now": _now,
        "floor": _floor,
        "ceil": _ceil,
        "round": _round,
        "min": _lowest,
        "max": _highest,
        "abs": _abs,
        "includes": includes,
        "startsWith": _starts,
        "endsWith": _ends,
        "lower": _lower,
        "upper": _upper,
        "trim": _trim,
        "split": _split,
        "join": _join,
        "slice": _slice,
    }
)

METHODS = _table(
    {
        "includes": includes,
        "startsWith": _starts,
        "endsWith": _ends,
        "toLowerCase": _lower,
        "toUpperCase": _upper,
        "lower": _lower,
        "upper": _upper,
        "toString": text_of,
        "trim": _trim,
        "split": _split,
        "join": _join,
        "slice": _slice,
    }
)
