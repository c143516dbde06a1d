"""A text as data: JSON or YAML, with nothing in it that is not data, and not more than fits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Never

from bot.engine.workflow.forms import yamls
from bot.engine.workflow.model.faults import BadGraph, Fault

MOST_BYTES = 1_000_000
_MOST_VALUES = 200_000
_MOST_DEEP = 40
_LARGEST = 10**18
_FENCED = re.compile(
    r"\A\s*(?P<fence>`{3,}|~{3,})[ \t]*[\w-]*[ \t]*\r?\n(?P<inside>.*?)\r?\n?(?P=fence)\s*\Z",
    re.DOTALL,
)


def within_bounds(text: str) -> str:
    """The text, without a fence around it. Raises BadGraph where it is too long."""
    if len(text) > MOST_BYTES or len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise BadGraph([Fault(key="too_long", facts={"most": MOST_BYTES})])
    text = text.removeprefix("\ufeff")
    fenced = _FENCED.match(text)
    return fenced["inside"] if fenced else text


def parsed(text: str) -> Any:
    """What a text holds. Raises BadGraph."""
    if text.lstrip().startswith(("{", "[")):
        try:
            return from_json(text)
        except BadGraph as bad:
            if bad.faults[0].key != "bad_json":
                raise
            try:
                return from_yaml(text)
            except BadGraph:
                raise bad from None
    return from_yaml(text)


def from_json(text: str) -> Any:
    twice: list[str] = []

    def group(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in pairs:
            if name in made:
                twice.append(name)
            made[name] = value
        return made

    try:
        value = json.loads(text, object_pairs_hook=group, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        facts = {"line": error.lineno, "column": error.colno, "why": error.msg}
        raise BadGraph([Fault(key="bad_json", facts=facts)]) from error
    except RecursionError as error:
        raise BadGraph([_deep()]) from error
    except ValueError as error:
        raise BadGraph([Fault(key="bad_number")]) from error
    return clean(value, twice)


def from_yaml(text: str) -> Any:
    value, twice = yamls.parsed(text, most_deep=_MOST_DEEP, most_values=_MOST_VALUES)
    return clean(value, twice)


def clean(value: Any, twice: Iterable[str] = ()) -> Any:
    """The same value, if it is data throughout and of fair size. Raises BadGraph."""
    faults = [Fault(key="given_twice", field=name[:60]) for name in twice]
    cleaning = _Cleaning()
    made = cleaning.clean(value, 0)
    if faults or cleaning.faults:
        raise BadGraph([*faults, *cleaning.faults.values()])
    return made


class _Cleaning:
    def __init__(self) -> None:
        self.faults: dict[str, Fault] = {}
        self._seen = 0

    def clean(self, value: Any, deep: int) -> Any:
        self._seen += 1
        if self._seen > _MOST_VALUES or deep > _MOST_DEEP:
            fault = _deep() if deep > _MOST_DEEP else Fault(key="too_many_values")
            self.faults[fault.key] = fault
            return None
        match value:
            case dict():
                return {_sound(name): self.clean(each, deep + 1) for name, each in value.items()}
            case list():
                return [self.clean(each, deep + 1) for each in value]
            case str():
                return _sound(value)
            case int() | float() if not abs(value) <= _LARGEST:
                self.faults["bad_number"] = Fault(key="bad_number")
        return value


def _sound(text: str) -> str:
    """Without halves of characters and zeros, which no store takes."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def _no_constant(name: str) -> Never:
    raise ValueError(name)


def _deep() -> Fault:
    return Fault(key="too_nested", facts={"most": _MOST_DEEP})
