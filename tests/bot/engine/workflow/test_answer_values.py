"""Values parsed from a worker's answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot.engine.workflow.node_runs import parse_answer_values


def _block(value: Any) -> str:
    return f"Here it is:\n```json\n{json.dumps(value)}\n```\nDone."


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("nothing to read", {}),
        ("approved: true", {"approved": True}),
        ("**score**: 8 and rate = 0.5, left: -3", {"score": 8, "rate": 0.5, "left": -3}),
        ("**Approved:** False", {"Approved": False}),
        (_block({"a": [1, {"b": 2}]}), {"a": [1, {"b": 2}]}),
        (_block({"result": {"ok": True}}), {"ok": True}),
        (_block({"result": 5, "n": 1}), {"result": 5, "n": 1}),
        (_block({"score": 3}) + "\nscore: 9, n: 1", {"score": 3, "n": 1}),
        (_block([1, 2]), {}),
        ("```json\n{broken\n```\nok: true", {"ok": True}),
        (_block({"_raw": "x", "summary": "y", "error": "z", "@took": [], "fine": 1}), {"fine": 1}),
        ('```json\n{"n": NaN, "m": 1}\n```', {"n": None, "m": 1}),
    ],
)
def test_this_is_read(text: str, wanted: object) -> None:
    assert dict(parse_answer_values(text)) == wanted


def test_what_is_nested_beyond_all_measure_is_left_out() -> None:
    text = '```json\n{"deep": ' + "[" * 900 + "]" * 900 + ', "n": 1}\n```'

    assert dict(parse_answer_values(text)) == {"n": 1}


def test_numbers_and_nesting_that_no_reader_takes_leave_nothing() -> None:
    assert dict(parse_answer_values('```json\n{"n": ' + "9" * 5_000 + "}\n```")) == {}
    assert dict(parse_answer_values("```json\n" + "[" * 9_000 + "\n```")) == {}


@pytest.mark.parametrize("start", ["", "a", "```", "a:", "{"])
@pytest.mark.parametrize(
    "unit", ["`", "~", "_", "*", " ", "\t", "```\n", "``` ", "~~~`", "a_", "："]
)
def test_runs_of_any_kind_are_read_in_linear_time(start: str, unit: str) -> None:
    run = (start + unit * 20_000)[:19_000]

    assert dict(parse_answer_values(run + "b")) == {}
    assert dict(parse_answer_values("score: 3\n" + run + "b")) == {"score": 3}


def test_a_fence_may_be_of_tildes_or_longer() -> None:
    for fence in ("~~~", "````", "~~~~~~"):
        assert dict(parse_answer_values(f'Here: {fence}json\n{{"n": 1}}\n{fence}')) == {"n": 1}
