"""Texts with holes: `{{outputs.review.score}}` is replaced by what the expression gives."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bot.engine.workflow.expressions.language import ExpressionError, evaluate
from bot.engine.workflow.expressions.values import TEXT

_HOLE = re.compile(r"\{\{(.{1,500}?)\}\}|\$\{(.{1,500}?)\}", re.DOTALL)
_MOST = 200_000
_MOST_OF_ONE = 20_000
_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


def holes(text: str) -> Iterator[str]:
    """The expressions in a text."""
    return ((found[1] or found[2]).strip() for found in _HOLE.finditer(text))


def rest(text: str) -> str:
    """The text without its holes."""
    return _HOLE.sub(" ", text)


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
    try:
        return as_text(evaluate((found[1] or found[2]).strip(), names))
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
