"""Any text either has a value or is refused, and does little work for it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from bot.engine.workflow.expressions.grammar import form_of, forms_in
from bot.engine.workflow.expressions.language import ExpressionError, check, evaluate
from bot.engine.workflow.expressions.templates import fill, holes

_NAMES: dict[str, Any] = {
    "outputs": {"a": {"_raw": "text", "n": 1, "none": None}, "ä-b": {"list": [1, [2], {}]}},
    "variables": {"x": 10**30, "f": 0.1, "big": "y" * 3_000, "名": "值"},
    "item": None,
    "index": 0,
}
_PIECES = st.sampled_from(
    [
        *("outputs", "variables", "item", "index", "a", "n", "x", "名", "big", "list", "_raw"),
        *("__class__", "__globals__", "Math", "Date", "len", "str", "join", "split", "slice"),
        *("get", "has", "includes", "num", "round", "min", "now", "toLowerCase", "toString"),
        *("true", "null", "and", "or", "not", "in", "if", "else", "lambda", "import"),
        *("(", ")", "[", "]", ".", ",", "?", ":", "!", "==", "!=", "===", "<", ">=", "&&", "||"),
        *("+", "-", "*", "/", "%", "^", "**", "=", "{", "}", "\\", "'", '"', "''", "'ab'"),
        *("0", "1", "1.5", "9e99", "1e999", "99999999999999999999", "0x1", "1_0", "\0", "\n", " "),
    ]
)


class _Asked(dict[str, Any]):
    """Knows every name, and which it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __missing__(self, name: str) -> Any:
        self.names.add(name)
        return 1


_TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(_PIECES, max_size=25).map(" ".join),
    st.lists(_PIECES).map("".join),
)


@given(_TEXTS)
@example("1or 2")
@example("''.join(['a'] * 3)")
@example("(" * 1_999)
@example("a" * 2_001)
@example("[" * 29 + "]" * 29)
def test_any_text_has_a_value_that_can_be_stored_or_is_refused(text: str) -> None:
    try:
        value = evaluate(text, _NAMES)
    except ExpressionError:
        return

    assert len(json.dumps(value)) < 2_000_000
    assert len(list(forms_in(form_of(text)))) <= 300


@given(_TEXTS)
def test_no_name_is_asked_for_that_the_check_did_not_find(text: str) -> None:
    try:
        names = check(text)
    except ExpressionError:
        return

    asked = _Asked()
    with suppress(ExpressionError):
        evaluate(text, asked)
    assert asked.names <= names | {"true", "null"}


@given(st.lists(st.one_of(_TEXTS, st.sampled_from(["{{", "}}", "${", "}"]))).map("".join))
@example("{{" * 3_000)
@example("${" * 3_000 + "}" * 3_000)
def test_any_template_can_be_filled(text: str) -> None:
    warnings: list[str] = []

    filled = fill(text, _NAMES, warnings.append)

    assert len(filled) <= 200_000
    assert len(warnings) <= len(list(holes(text)))
