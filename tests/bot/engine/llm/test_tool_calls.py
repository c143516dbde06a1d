"""A tool never sees arguments its schema does not allow."""

from __future__ import annotations

from typing import Any

import pytest

from bot.engine.llm.tool_calls import find_argument_error

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "maxLength": 5},
        "offset": {"type": "integer", "minimum": 0, "maximum": 9},
        "mode": {"type": "string", "enum": ["r", "w"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "deep": {"type": "object", "required": ["x"], "properties": {"x": {"type": "number"}}},
        "flag": {"type": ["boolean", "null"]},
    },
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"offset": 0},
        {"offset": 9},
        {"mode": "w"},
        {"tags": []},
        {"tags": ["a", "b"]},
        {"deep": {"x": 1.5, "other": 1}},
        {"flag": None},
        {"flag": True},
    ],
)
def test_good_arguments_have_no_problem(more: dict[str, Any]) -> None:
    assert find_argument_error(SCHEMA, {"path": "a", **more}) == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "the arguments must be of type object"),
        ({}, "missing: path"),
        ({"path": 1}, "path must be of type string"),
        ({"path": "123456"}, "path must not be longer than 5"),
        ({"path": "a", "mode": "x"}, "mode must be one of r, w"),
        ({"path": "a", "offset": -1}, "offset must be at least 0"),
        ({"path": "a", "offset": 10}, "offset must be at most 9"),
        ({"path": "a", "offset": True}, "offset must be of type integer"),
        ({"path": "a", "offset": 1.5}, "offset must be of type integer"),
        ({"path": "a", "tags": ["a", 1]}, "tags[1] must be of type string"),
        ({"path": "a", "deep": {}}, "missing: x"),
        ({"path": "a", "deep": {"x": "1"}}, "deep.x must be of type number"),
        ({"path": "a", "more": 1}, "unknown: more; known are path"),
    ],
)
def test_bad_arguments_are_told_apart(arguments: object, says: str) -> None:
    assert says in find_argument_error(SCHEMA, arguments)
