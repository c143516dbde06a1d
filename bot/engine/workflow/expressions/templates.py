"""Texts with holes: `{{outputs.review.score}}` is replaced by what the expression gives."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bot.engine.workflow.expressions.language import ExpressionError, evaluate

_HOLE = re.compile(r"\{\{(.{1,500}?)\}\}|\$\{(.{1,500}?)\}", re.DOTALL)
_MOST = 200_000
_MOST_OF_ONE = 20_000
_TEXT = "_raw"


def holes(text: str) -> Iterator[str]:
    """The expressions in a text."""
    return ((found[1] or found[2]).strip() for found in _HOLE.finditer(text))


def fill(text: str, names: Mapping[str, Any], warn: Callable[[str], None]) -> str:
    """The text with its holes filled, each and the whole up to a size. What cannot be worked out
    leaves nothing, and `warn` is told. What is put in is not looked at again."""

    def put(found: re.Match[str]) -> str:
        expression = (found[1] or found[2]).strip()
        try:
            return as_text(evaluate(expression, names))
        except ExpressionError as error:
            warn(f"{found[0][:200]} is left empty: {error}")
            return ""

    return _HOLE.sub(put, text)[:_MOST]


def as_text(value: Any) -> str:
    """What a value looks like in a text: an output as its own text, a list or a group as JSON."""
    if isinstance(value, Mapping):
        value = value.get(_TEXT, dict(value))
    if value is None:
        return ""
    if isinstance(value, str):
        return value[:_MOST_OF_ONE]
    return json.dumps(value, ensure_ascii=False, default=str)[:_MOST_OF_ONE]
