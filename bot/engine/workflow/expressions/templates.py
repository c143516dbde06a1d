"""Templates: `{{outputs.review.score}}` is replaced by the value of the expression.

`${HOME}` is a placeholder too; `$${HOME}` is an escape for a literal `${HOME}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bot.engine.workflow.expressions.evaluator import evaluate
from bot.engine.workflow.expressions.operations import ExpressionError, value_as_text

_PLACEHOLDER = re.compile(
    r"\$(?P<none>\$\{\{.{1,500}?\}\}|\$\{.{1,500}?\})"
    r"|\{\{(?P<two>.{1,500}?)\}\}|\$\{(?!\{)(?P<one>.{1,500}?)\}",
    re.DOTALL,
)
_SHELL_VARIABLE = re.compile(r"\$\{.{1,500}?\}", re.DOTALL)
_MAX_TEXT = 200_000


def find_placeholders(text: str) -> Iterator[str]:
    """Yield the expressions in a template."""
    found = (_expression_in(each) for each in _PLACEHOLDER.finditer(text))
    return (each for each in found if each is not None)


def without_placeholders(text: str) -> str:
    """Return the text without its placeholders."""
    return _PLACEHOLDER.sub(" ", text)


def replace_placeholders(text: str, replacement: Callable[[str, str], str]) -> str:
    """Replace each placeholder by `replacement(placeholder, expression)`."""

    def one(found: re.Match[str]) -> str:
        expression = _expression_in(found)
        return found["none"] if expression is None else replacement(found[0], expression)

    return _PLACEHOLDER.sub(one, text)


def escape_placeholders(text: str) -> str:
    """Escape `${…}`, for text that was not written as a template."""
    return _SHELL_VARIABLE.sub(r"$\g<0>", text)


def _expression_in(found: re.Match[str]) -> str | None:
    """The expression; None for an escaped placeholder."""
    return None if found["none"] else (found["two"] or found["one"]).strip()


def fill_template(text: str, names: Mapping[str, Any], warn: Callable[[str], None]) -> str:
    """Fill the placeholders, with size limits per value and in total. A placeholder that cannot be
    evaluated becomes empty and is reported to `warn`. Inserted values are not expanded again."""

    pieces: list[str] = []
    at, left = 0, _MAX_TEXT
    for found in _PLACEHOLDER.finditer(text):
        for piece in (text[at : found.start()], _filled_placeholder(found, names, warn)):
            pieces.append(piece[:left])
            left -= len(pieces[-1])
        at = found.end()
        if not left:
            break
    return "".join([*pieces, text[at : at + left]])


def _filled_placeholder(
    found: re.Match[str], names: Mapping[str, Any], warn: Callable[[str], None]
) -> str:
    expression = _expression_in(found)
    if expression is None:
        return found["none"]
    try:
        return value_as_text(evaluate(expression, names))
    except ExpressionError as error:
        warn(f"{found[0][:200]} becomes empty: {error}")
        return ""
