"""Values as expressions see them: numbers, texts, true and false, nothing, lists and groups."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from bot.engine.workflow.expressions.wrong import BadExpression

MOST = 200_000
_LARGEST = 1e18
_EXACT = 2**53
_TEXT_AT_ONCE = 64
TEXT = "_raw"
"""Where an output has its own text."""


def same(one: Any, two: Any) -> bool:
    """Equal, and of one kind: 1 is not true, and "1" is not 1."""
    if isinstance(one, bool) != isinstance(two, bool):
        return False
    return bool(one == two)


def number(value: Any) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadExpression(f"{kind(value)} is no number")
    return value


def within(value: Any) -> float | int:
    """A whole number is one however it came about: 4 / 2 is 2."""
    if not math.isfinite(value) or abs(value) > _LARGEST:
        raise BadExpression("the number is too large")
    whole = float(value).is_integer() and abs(value) < _EXACT
    result: float | int = int(value) if whole else value
    return result


def index_of(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and int(value) == value else None


def includes(whole: Any, part: Any) -> bool:
    if isinstance(whole, str):
        return text_of(part) in whole
    if isinstance(whole, list):
        return any(same(each, part) for each in whole)
    if isinstance(whole, Mapping):
        text = whole.get(TEXT)
        return part in whole or (isinstance(text, str) and text_of(part) in text)
    raise BadExpression(f"{kind(whole)} contains nothing")


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, float):
        value = within(value)
    if isinstance(value, Mapping) and isinstance(value.get(TEXT), str):
        return str(value[TEXT])
    return json.dumps(plain(fair(value)), ensure_ascii=False, default=str)


def plain(value: Any) -> Any:
    """Names that are worked out one at a time, as a group that can be stored."""
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return fair({key: value[key] for key in value})
    return value


def short(value: Any) -> Any:
    if len(value) > MOST:
        raise BadExpression("the value is too long")
    return value


def fair(value: Any) -> Any:
    """The value itself, unless it holds more than may be, each part counted as often as it stands
    there: a list of itself twice, made again and again, would soon fill any store."""
    left, open_ = MOST, [value]
    while open_:
        each = open_.pop()
        if isinstance(each, str):
            left -= len(each)
        elif isinstance(each, Mapping):
            left -= sum(len(str(key)) for key in each)
            open_.extend(each.values())
        elif isinstance(each, list):
            left -= len(each)
            if left >= 0:
                open_.extend(each)
        left -= 1
        if left < 0:
            raise BadExpression("the value is too long")
    return value


def weight(value: Any, most: int) -> int:
    """About how many parts have to be looked at to know all of it; not counted beyond `most`."""
    parts, open_ = 0, [value]
    while open_ and parts <= most:
        each = open_.pop()
        parts += 1
        if isinstance(each, str):
            parts += len(each) // _TEXT_AT_ONCE
        elif isinstance(each, list | dict):
            # What exceeds the limit by its length alone need not be laid out.
            parts += len(each) if len(each) > most else 0
            open_.extend(() if len(each) > most else _inside(each))
    return parts


def _inside(value: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def kind(value: Any) -> str:
    names = {str: "a text", bool: "true or false", list: "a list", type(None): "nothing"}
    names |= {int: "a number", float: "a number"}
    return names.get(type(value), "a group" if isinstance(value, Mapping) else "this")
