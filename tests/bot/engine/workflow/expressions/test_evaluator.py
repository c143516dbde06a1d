"""Evaluation of expressions: values, limits and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.engine.workflow.expressions.evaluator import (
    NOW_NAME,
    check_expression,
    escape_placeholders,
    evaluate,
    evaluate_condition,
    fill_template,
    find_placeholders,
    references,
    split_condition,
)
from bot.engine.workflow.expressions.operations import (
    BadExpression,
    ExpressionError,
    ExpressionSyntaxError,
    UnclearAnswer,
    UnknownExpressionName,
    value_as_text,
)
from bot.engine.workflow.expressions.parser import parse_expression, walk_nodes
from cards.catalog import catalog_for
from storage.records.people import Language
from tests.case_tables import all_cases

LANGUAGE_NAMES: dict[str, Any] = {
    "outputs": {
        "review": {"_raw": "APPROVED by me", "result": "APPROVED by me", "score": 8, "ok": True},
        "b_c": {"n": 2},
        "b-c": {"n": 2},
        "empty": {},
    },
    "variables": {"x": 3, "name": "Ann", "items": [1, 2, 3], "deep": {"a": {"b": [10, 20]}}},
    "inputs": {"env": "prod"},
    "nodeStates": {"review": "done"},
    "loopCount": 2,
    "index": 1,
    "item": "pear",
    "total": 3,
    NOW_NAME: 1_700_000_000_000,
}
TEMPLATE_NAMES: Mapping[str, Any] = {
    "outputs": {"plan": {"_raw": "Do it", "steps": ["a", "b"], "n": 2.0, "ok": True}},
    "variables": {"x": "{{item}}", "group": {"k": "v"}},
    "inputs": {"who": "Ann"},
    "item": "pear",
}


@all_cases(
    ("text", "wanted"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 / 4", 2.5),
        ("4 / 2", 2),
        ("7 % 3", 1),
        ("-7 % 3", -1),
        ("2 ^ 3 ^ 2", 512),
        ("2 ** 3", 8),
        ("-2 ^ 2", -4),
        ("2 ^ -1", 0.5),
        (".5 + 1.5e1", 15.5),
        ("+3 - -2", 5),
        ("'a' + 'b'", "ab"),
        ("'n' + 4 / 2", "n2"),
        ("[1, 2] + [3]", [1, 2, 3]),
        ("1 < 2 and 2 <= 2 and 3 > 2 and 3 >= 3", True),
        ("0 < 5 <= 5", True),
        ("0 < 5 < 5", False),
        ("1 == 1 == true", True),
        ("1 < 2 == 2 > 1", True),
        ("'a' < 'b'", True),
        ("1 == 1.0", True),
        ("1 == true", False),
        ("'1' == 1", False),
        ("null == undefined", True),
        ("1 != 2 && 'a' !== 'b' && 1 === 1", True),
        ("true && false || true", True),
        ("true or false and false", True),
        ("!true", False),
        ("!!'x'", True),
        ("not false", True),
        # As in the language that workflows are usually written in: a sign before a value belongs
        # to that value.
        ("!1 == false", True),
        ("!false == true", True),
        ("not 0 == 1", False),
        ("!(1 == 2)", True),
        ("1 != 1", False),
        ("1 ? 'y' : 'n'", "y"),
        ("0 ? 'y' : 1 ? 'm' : 'n'", "m"),
        ("true ? false ? 1 : 2 : 3", 2),
        ("1 > 2 || 3 > 2 ? 'y' : 'n'", "y"),
        ("[1 > 0 ? 5 : 6, 7]", [5, 7]),
        ("outputs.review.score >= 7", True),
        ("outputs.review.result", "APPROVED by me"),
        ("outputs.review._raw", "APPROVED by me"),
        ("outputs['b-c'].n", 2),
        ("outputs.b_c.n", 2),
        ('outputs["review"]["score"]', 8),
        ("variables.deep.a.b[1]", 20),
        ("variables.items[4 / 2]", 3),
        ("variables.items[-1]", 3),
        ("variables.items.length", 3),
        ("item.length", 4),
        ("inputs.env == 'prod'", True),
        ("nodeStates.review == 'done'", True),
        ("loopCount < 3", True),
        ("index + 1 == total - 1", True),
        ("len(variables.items)", 3),
        ("has(outputs, 'review')", True),
        ("has(outputs.review, 'nothing')", False),
        ("get(outputs.review, 'nothing', 5)", 5),
        ("get(variables.items, 7)", None),
        ("str(2.0) + str(true) + str(null)", "2true"),
        ("str([1, 'a', true])", '[1, "a", true]'),
        ("num('4.5') + num(true)", 5.5),
        ("bool('')", False),
        ("now()", 1_700_000_000_000),
        ("Date.now() > 0", True),
        ("Math.floor(2.7) + Math.ceil(2.1)", 5),
        ("Math.round(2.5)", 3),
        ("round(-2.5)", -2),
        ("round(2.345, 2)", 2.35),
        ("Math.min(3, 1, 2) + max([4, 9])", 10),
        ("abs(-3)", 3),
        ("includes('hello', 'ell')", True),
        ("includes(variables.items, 2)", True),
        ("2 in variables.items", True),
        ("4 not in variables.items", True),
        ("'score' in outputs.review", True),
        ("outputs.review.includes('APPROVED')", True),
        ("outputs.review.result.toLowerCase().includes('approved')", True),
        ("'  A,b '.trim().toLowerCase().split(',')[1].toUpperCase()", "B"),
        ("'abc'.slice(1)", "bc"),
        ("'abc'.startsWith('ab') && 'abc'.endsWith('c')", True),
        ("startsWith('abc', 'b') || endsWith('abc', 'b')", False),
        ("lower('ÄB') + upper('c') + trim(' d ')", "äbCd"),
        ("join(['a', 1, true], '-')", "a-1-true"),
        ("[1, 2].join('+')", "1+2"),
        ("'it\\'s' + \"\\n\"", "it's\n"),
        ("'&& || !x a[0]'", "&& || !x a[0]"),
        ("0 or 'else'", "else"),
        ("1 and 'then'", "then"),
    ],
)
def test_it_comes_to_this(text: str, wanted: object) -> None:
    value = evaluate(text, LANGUAGE_NAMES)

    assert value == wanted
    assert isinstance(value, bool) == isinstance(wanted, bool)


def test_of_two_choices_only_the_one_taken_is_worked_out() -> None:
    assert evaluate("true ? 1 : nothing", LANGUAGE_NAMES) == 1
    assert evaluate("true or nothing", LANGUAGE_NAMES) is True
    assert evaluate("false and nothing", LANGUAGE_NAMES) is False


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_a_blank_condition_holds(text: str) -> None:
    assert evaluate_condition(text, {}, pytest.fail)


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "outputs.nobody.score > 3",
        "outputs.empty.nothing",
        "outputs.review.error",
        "variables.items[3] == 1",
        "outputs.review.score.deeper",
        "1 / 0",
        "'a' > 1",
        "1 +",
        "item.pop()",
    ],
)
def test_what_cannot_be_worked_out_is_false_and_said(text: str) -> None:
    said: list[str] = []

    held = evaluate_condition(text, LANGUAGE_NAMES, said.append)

    assert not held
    assert len(said) == 1
    assert text in said[0]


@pytest.mark.parametrize(
    "text",
    [
        "outputs.review.nothing",
        "!outputs.review.nothing",
        "outputs.review.result == true",
        "outputs.review.result > 3",
        "outputs.vague.ok",
        "outputs.vague.ok == true",
        "outputs.vague.ok and loopCount < 3",
    ],
)
def test_what_an_answer_leaves_open_is_neither_true_nor_false(text: str) -> None:
    names = {**LANGUAGE_NAMES, "outputs": {**LANGUAGE_NAMES["outputs"], "vague": {"ok": "maybe"}}}

    with pytest.raises(UnclearAnswer):
        evaluate_condition(text, names, pytest.fail)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a.b", ("a.b", True)),
        (" a['x-y'].b == True ", ("a['x-y'].b", True)),
        ("a.b == false", ("a.b", False)),
        ("a.b != true", ("a.b", False)),
        ("!a.b", ("a.b", False)),
        ("not a.b", ("a.b", False)),
        ("a.b and c", ("a.b and c", True)),
        ("a.b == false or c == true", ("a.b == false or c == true", True)),
    ],
)
def test_opposite_conditions_have_one_subject(text: str, wanted: tuple[str, bool]) -> None:
    assert split_condition(text) == wanted


def test_an_unknown_name_is_told_apart() -> None:
    with pytest.raises(UnknownExpressionName) as raised:
        evaluate("outputs.nobody", LANGUAGE_NAMES)

    assert str(raised.value) == "unknown name 'nobody'"


def test_the_names_it_speaks_of_are_known_beforehand() -> None:
    text = "len(variables.items) > Math.max(1, inputs.n) ? item : true"

    assert check_expression(text) == {"variables", "inputs", "item"}


@all_cases(
    "text",
    [
        "1 2",
        "(1",
        "1)",
        "[1, 2",
        "a ? 1",
        "a = 1",
        "a; b",
        "lambda: 1",
        "a if b else c",
        "{'a': 1}",
        "f'{a}'",
        "a := 1",
        "*a",
        "a[1:2]",
        "len(x=1)",
        "len()",
        "len(1, 2)",
        "eval('1')",
        "__import__('os')",
        "open('x')",
        "''.format(a)",
        "''.__class__()",
        "a.b.c()",
        "(a)(b)",
        "a()()",
        "'open",
        "a.",
        "a..b",
        "1 ? : 2",
        "and",
        "`a`",
        "a\\b",
        "0x10",
    ],
)
def test_what_is_no_part_of_the_language_is_refused_before_it_is_run(text: str) -> None:
    with pytest.raises(BadExpression):
        check_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "variables.__class__",
        "''.__class__",
        "variables.items.append",
        "variables['__dict__']",
        "variables.items.__len__",
        "outputs.keys",
    ],
)
def test_nothing_of_a_value_but_its_own_parts_can_be_reached(text: str) -> None:
    with pytest.raises(UnknownExpressionName):
        evaluate(text, LANGUAGE_NAMES)


@all_cases(
    "text",
    [
        "9" * 1_999,
        "9 ^ 64 ^ 64",
        "10 ^ 60",
        "1e308 * 10",
        "1e999",
        "2 ^ 100000",
        "(-8) ^ 0.5",
        "num('inf')",
        "num('nan')",
        "num('9' + '9')" + "+ 1" * 400,
        "(" * 500 + "1" + ")" * 500,
        "[" * 500 + "]" * 500,
        "!" * 500 + "1",
        "-" * 500 + "1",
        "1 ? " * 200 + "1" + " : 1" * 200,
        "2 ^ " * 300 + "1",
        "a" + ".a" * 500,
        "a" + "[0]" * 300,
        "''" + ".trim()" * 200,
        "1" + " == 1" * 300,
        "x" * 3_000,
        "join([1], 5)",
        "'a'.split(5)",
        "'abc'.slice('x')",
        "round(1, 'x')",
        "min([])",
        "min('a')",
        "-'a'",
        "-true",
        "null + 1",
        "1 in 5",
        "[] + 1",
        "[1] < [2]",
    ],
)
def test_what_is_too_much_or_makes_no_sense_is_an_error_of_the_expression(text: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(text, {"a": {}})


def test_many_parts_of_one_rank_are_not_deep() -> None:
    assert evaluate("+".join(["1"] * 140), {}) == 140
    assert evaluate(" and ".join(["true"] * 140), {}) is True


def test_a_list_of_a_million_is_looked_at_once_and_not_a_hundred_times() -> None:
    names = {"big": list(range(900_000)), "other": list(range(900_000))}

    assert evaluate("len(big) + big[899999]", names) == 1_799_999
    with pytest.raises(BadExpression, match="too much work"):
        evaluate(" and ".join(["big == other"] * 50), names)
    with pytest.raises(BadExpression):
        evaluate("+".join(["len(str(big))"] * 50), names)


@pytest.mark.parametrize(("first", "again"), [(["x"], "[v, v]"), ("x", "v + v"), ([1], "v + v")])
def test_what_is_made_again_and_again_does_not_grow_without_end(first: object, again: str) -> None:
    def grow() -> None:
        names = {"v": first}
        for _ in range(100):
            names["v"] = evaluate(again, names)

    with pytest.raises(BadExpression, match="too long"):
        grow()


def test_joining_long_texts_is_refused_before_it_is_done() -> None:
    names = {"by": "x" * 100_000, "items": [""] * 100_000}

    with pytest.raises(BadExpression, match="too long"):
        evaluate("join(items, by)", names)


def test_numbers_beyond_all_bounds_in_the_data_do_no_harm() -> None:
    names = {"n": 10**5_000, "inf": float("inf"), "nan": float("nan")}

    for text in ("n + 1", "str(n)", "round(n)", "floor(inf)", "nan + 1", "[1][nan]", "str(inf)"):
        with pytest.raises(ExpressionError):
            evaluate(text, names)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("max([])", "the list is empty"),
        ("1 % 0", "it divides by zero"),
        ("1 / 0", "it divides by zero"),
        ("num('x')", "'x' is not a number"),
        ("len(5)", "a number has no length"),
    ],
)
def test_why_it_cannot_be_worked_out_is_told_in_plain_words(text: str, why: str) -> None:
    with pytest.raises(BadExpression) as caught:
        evaluate(text, {})
    assert str(caught.value) == why


def test_what_it_speaks_of_is_told_with_the_part_that_is_written_out() -> None:
    assert references("outputs['a-b'].n > get(variables, 'x') + item[i]") == {
        ("outputs", None),
        ("outputs", "a-b"),
        ("variables", None),
        ("item", None),
        ("i", None),
    }


_NAMES: dict[str, Any] = {
    "outputs": {"a": {"_raw": "text", "n": 1, "none": None}, "ä-b": {"list": [1, [2], {}]}},
    "variables": {"x": 10**30, "f": 0.1, "big": "y" * 3_000, "名": "值"},
    "item": None,
    "index": 0,
}
_HOSTILE_PIECES = st.sampled_from(
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


class _RecordingNames(dict[str, Any]):
    """Has every name and records which were read."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __missing__(self, name: str) -> Any:
        self.names.add(name)
        return 1


_HOSTILE_TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(_HOSTILE_PIECES, max_size=25).map(" ".join),
    st.lists(_HOSTILE_PIECES).map("".join),
)


@given(_HOSTILE_TEXTS)
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
    assert len(list(walk_nodes(parse_expression(text)))) <= 300


@given(_HOSTILE_TEXTS)
def test_no_name_is_asked_for_that_the_check_did_not_find(text: str) -> None:
    try:
        names = check_expression(text)
    except ExpressionError:
        return

    asked = _RecordingNames()
    with suppress(ExpressionError):
        evaluate(text, asked)
    assert asked.names <= names | {"true", "null"}


@given(st.lists(st.one_of(_HOSTILE_TEXTS, st.sampled_from(["{{", "}}", "${", "}"]))).map("".join))
@example("{{" * 3_000)
@example("${" * 3_000 + "}" * 3_000)
def test_any_template_can_be_filled(text: str) -> None:
    warnings: list[str] = []

    filled = fill_template(text, _NAMES, warnings.append)

    assert len(filled) <= 200_000
    assert len(warnings) <= len(list(find_placeholders(text)))


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


@pytest.mark.parametrize(
    "expression",
    [
        "1 / 0",
        "nobody + 1",
        "[1] * 2",
        "'a' - 1",
        "1 in 5",
        "number('seven')",
        "join('a', ',')",
        "split(1)",
        "range(1.5)",
        "max([])",
        "length(3)",
        "slice(1, 2)",
        "2 ^ 9999",
        "(0 - 8) ^ 0.5",
        "1e18 * 1e18",
        "f(",
        "missing.member",
    ],
)
def test_a_reason_is_told_in_both_languages(expression: str) -> None:
    with pytest.raises(ExpressionError) as failed:
        evaluate(expression, {})

    chinese = failed.value.in_words(catalog_for(Language.CHINESE))

    english = failed.value.in_words(catalog_for(Language.ENGLISH))
    assert english == str(failed.value) or isinstance(failed.value, ExpressionSyntaxError)
    assert re.search(r"[一-鿿]", chinese), chinese
