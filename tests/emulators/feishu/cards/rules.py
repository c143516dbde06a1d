"""Checks of single values in card JSON 2.0, as small functions to build tables from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tests.emulators.feishu.faults import CardRefused

if TYPE_CHECKING:
    from tests.emulators.feishu.cards.check import Walk

Check = Callable[["Walk", str, Any], None]
Shape = Mapping[str, Check]

PARSE = 200621
_PIXELS = re.compile(r"^\d{1,2}px$")
_MARGIN = re.compile(r"^-?\d{1,2}px$")
_COLOUR = re.compile(r"^[a-z]+(-\d{2,3})?$|^rgba\([\d., ]+\)$")
_SPACING = re.compile(r"^(small|medium|large|extra_large|\d{1,2}px)$")


def refuse(path: str, problem: str, code: int = PARSE) -> CardRefused:
    return CardRefused(code, f"parse card json err; ErrorValue: {problem}, path: {path}")


def string(walk: Walk, path: str, value: Any) -> None:
    if not isinstance(value, str):
        raise refuse(path, "not a string")


def boolean(walk: Walk, path: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise refuse(path, "not a boolean")


def only_true(walk: Walk, path: str, value: Any) -> None:
    if value is not True:
        raise refuse(path, "only true is supported in schema 2.0")


def anything(walk: Walk, path: str, value: Any) -> None:
    """Free-form on purpose."""


def mapping(walk: Walk, path: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise refuse(path, "not an object")


def integer(low: int, high: int) -> Check:
    def check(walk: Walk, path: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise refuse(path, f"not an integer in [{low}, {high}]")

    return check


def text_up_to(limit: int) -> Check:
    def check(walk: Walk, path: str, value: Any) -> None:
        string(walk, path, value)
        if len(value) > limit:
            raise refuse(path, f"longer than {limit}")

    return check


def one_of(*choices: str) -> Check:
    def check(walk: Walk, path: str, value: Any) -> None:
        if value not in choices:
            raise refuse(path, f"{value!r} is not one of {choices}")

    return check


def matching(pattern: re.Pattern[str]) -> Check:
    def check(walk: Walk, path: str, value: Any) -> None:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise refuse(path, f"{value!r} has the wrong format")

    return check


def boxed(counts: tuple[int, ...], pattern: re.Pattern[str] = _PIXELS) -> Check:
    """A CSS-like box of so many pixel values."""

    def check(walk: Walk, path: str, value: Any) -> None:
        sides = value.split(" ") if isinstance(value, str) else []
        if len(sides) not in counts or not all(pattern.fullmatch(side) for side in sides):
            raise refuse(path, f"{value!r} is not a box of {counts} pixel values")

    return check


padding = boxed((1, 2, 4))
strict_padding = boxed((1, 4))
margin = boxed((1, 2, 4), _MARGIN)
colour = matching(_COLOUR)
spacing = matching(_SPACING)
width = matching(re.compile(r"^(default|fill|auto|weighted|\d+px)$"))
text_size = matching(
    re.compile(
        r"^(heading(-[0-4])?|normal(_v2)?|notation|xxxx-large|xxx-large|xx-large|x-large|large|medium|small|x-small|[a-z_-]+)$"
    )
)
align = one_of("left", "center", "right")
valign = one_of("top", "center", "bottom")
url = matching(re.compile(r"^[a-z][a-z0-9+.-]*:\S+$", re.IGNORECASE))


def shape(fields: Shape, *required: str) -> Check:
    """An object with these properties and no others."""

    def check(walk: Walk, path: str, value: Any) -> None:
        mapping(walk, path, value)
        for key in required:
            if key not in value:
                raise refuse(path, f"missing property {key}")
        for key, inner in value.items():
            if key not in fields:
                raise refuse(path, f"unknown property, property: {key}")
            fields[key](walk, f"{path} -> {key}", inner)

    return check


def listing(check: Check, *, low: int = 0, high: int = 10_000) -> Check:
    def inner(walk: Walk, path: str, value: Any) -> None:
        if not isinstance(value, list) or not low <= len(value) <= high:
            raise refuse(path, f"not a list of {low} to {high}")
        for index, item in enumerate(value):
            check(walk, f"{path} -> [{index}]", item)

    return inner
