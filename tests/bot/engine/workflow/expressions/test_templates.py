"""Templates: placeholders, escapes and size limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.workflow.expressions.operations import value_as_text
from bot.engine.workflow.expressions.templates import (
    escape_placeholders,
    fill_template,
    find_placeholders,
)

TEMPLATE_NAMES: Mapping[str, Any] = {
    "outputs": {"plan": {"_raw": "Do it", "steps": ["a", "b"], "n": 2.0, "ok": True}},
    "variables": {"x": "{{item}}", "group": {"k": "v"}},
    "inputs": {"who": "Ann"},
    "item": "pear",
}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{{outputs.plan}}", "Do it"),
        ("${outputs.plan}", "Do it"),
        ("{{ outputs.plan.steps }}", '["a", "b"]'),
        ("{{outputs.plan.n}}/{{outputs.plan.ok}}", "2.0/true"),
        ("{{variables.group}}", '{"k": "v"}'),
        ("Hi {{inputs.who}}, a {{item.toUpperCase()}}!", "Hi Ann, a PEAR!"),
        ("{{item == 'pear' ? 'yes' : 'no'}}", "yes"),
        ("no holes, { one }, {{}}", "no holes, { one }, {{}}"),
        ("{{null}}", ""),
        ("ls $${HOME}/x; {{item}}", "ls ${HOME}/x; pear"),
        ("$${VAR:-y} $${#all[@]} $$ $1", "${VAR:-y} ${#all[@]} $$ $1"),
        ("$$${item} costs ${{item}}", "$${item} costs $pear"),
        ("key: $${{ secrets.KEY }}", "key: ${{ secrets.KEY }}"),
    ],
)
def test_a_hole_is_filled_with_what_its_expression_gives(text: str, wanted: str) -> None:
    assert fill_template(text, TEMPLATE_NAMES, pytest.fail) == wanted


@given(st.text(alphabet="${}ab: ", max_size=30).filter(lambda text: "{{" not in text))
def test_words_that_nobody_meant_as_a_template_come_out_as_they_went_in(text: str) -> None:
    assert fill_template(escape_placeholders(text), TEMPLATE_NAMES, pytest.fail) == text
    assert list(find_placeholders(escape_placeholders(text))) == []


def test_what_is_put_in_is_not_looked_at_again() -> None:
    assert fill_template("{{variables.x}}", TEMPLATE_NAMES, pytest.fail) == "{{item}}"


@pytest.mark.parametrize("hole", ["{{nobody}}", "{{outputs.plan.nothing}}", "{{1 +}}", "${a b}"])
def test_what_nobody_knows_leaves_nothing_and_is_said(hole: str) -> None:
    said: list[str] = []

    assert fill_template(f"<{hole}>", TEMPLATE_NAMES, said.append) == "<>"
    assert len(said) == 1
    assert hole in said[0]


def test_the_expressions_of_a_text_are_found() -> None:
    assert list(find_placeholders("{{ a }} and ${b.c} and {{\n d }}")) == ["a", "b.c", "d"]


class _CountingMapping(Mapping[str, Any]):
    """Counts lookups."""

    def __init__(self) -> None:
        self.asked = 0

    def __getitem__(self, name: str) -> Any:
        self.asked += 1
        return "x" * 1_000_000

    def __iter__(self) -> Iterator[str]:
        return iter(["big"])

    def __len__(self) -> int:
        return 1


def test_a_text_of_holes_never_becomes_megabytes_and_stops_when_it_is_full() -> None:
    names = _CountingMapping()

    filled = fill_template("{{big}}" * 50_000, names, pytest.fail)

    assert len(filled) == 200_000
    assert names.asked == 10


def test_no_value_takes_more_than_its_share() -> None:
    assert len(value_as_text("x" * 1_000_000)) == 20_000
    assert len(value_as_text(list(range(1_000_000)))) == 20_000
    assert len(value_as_text({"_raw": "x" * 1_000_000})) == 20_000


def test_a_value_nested_beyond_all_measure_is_cut_short() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    text = value_as_text(deep)

    assert text.startswith("[[")
    assert len(text) <= 20_000
    while deep:
        deep = deep[0]
