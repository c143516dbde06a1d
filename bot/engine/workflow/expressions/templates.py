"""Texts with holes: `{{outputs.review.score}}` is replaced by what the expression gives.

`${HOME}` is a hole too; `$${HOME}` is none, and stands there as `${HOME}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bot.engine.workflow.expressions.language import ExpressionError, evaluate
from bot.engine.workflow.expressions.values import TEXT

_HOLE = re.compile(
    r"\$(?P<none>\$\{\{.{1,500}?\}\}|\$\{.{1,500}?\})"
    r"|\{\{(?P<two>.{1,500}?)\}\}|\$\{(?!\{)(?P<one>.{1,500}?)\}",
    re.DOTALL,
)
_VARIABLE = re.compile(r"\$\{.{1,500}?\}", re.DOTALL)
_MOST = 200_000
_MOST_OF_ONE = 20_000
_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


def holes(text: str) -> Iterator[str]:
    """The expressions in a text."""
    found = (_expression(each) for each in _HOLE.finditer(text))
    return (each for each in found if each is not None)


def rest(text: str) -> str:
    """The text without its holes."""
    return _HOLE.sub(" ", text)


def replaced(text: str, put: Callable[[str, str], str]) -> str:
    """The text with what `put` gives for each hole as it is written and its expression."""

    def one(found: re.Match[str]) -> str:
        expression = _expression(found)
        return found["none"] if expression is None else put(found[0], expression)

    return _HOLE.sub(one, text)


def as_it_stands(text: str) -> str:
    """Written so that what looks like a variable of a shell is no hole: for words that nobody has
    meant as a template."""
    return _VARIABLE.sub(r"$\g<0>", text)


def _expression(found: re.Match[str]) -> str | None:
    """None for what only looks like a hole."""
    return None if found["none"] else (found["two"] or found["one"]).strip()


def fill(text: str, names: Mapping[str, Any], warn: Callable[[str], None]) -> str:
    """The text with its holes filled, each and the whole up to a size. What cannot be worked out
    leaves nothing, and `warn` is told. What is put in is not looked at again."""

    made: list[str] = []
    at, left = 0, _MOST
    for found in _HOLE.finditer(text):
        for piece in (text[at : found.start()], _filled(found, names, warn)):
            made.append(piece[:left])
            left -= len(made[-1])
        at = found.end()
        if not left:
            break
    return "".join([*made, text[at : at + left]])


def _filled(found: re.Match[str], names: Mapping[str, Any], warn: Callable[[str], None]) -> str:
    expression = _expression(found)
    if expression is None:
        return found["none"]
    try:
        return as_text(evaluate(expression, names))
    except ExpressionError as error:
        warn(f"{found[0][:200]} is left empty: {error}")
        return ""


def as_text(value: Any) -> str:
    """What a value looks like in a text: an output as its own text, a list or a group as JSON."""
    if isinstance(value, Mapping):
        value = value.get(TEXT, dict(value))
    if value is None:
        return ""
    if isinstance(value, str):
        return value[:_MOST_OF_ONE]
    return _as_json(value)


def _as_json(value: Any) -> str:
    """No more of it is written than is taken."""
    pieces: list[str] = []
    left = _MOST_OF_ONE
    try:
        for piece in _JSON.iterencode(value):
            pieces.append(piece[:left])
            left -= len(pieces[-1])
            if not left:
                break
    except (ValueError, RecursionError):
        pieces.append("…")
    return "".join(pieces)
