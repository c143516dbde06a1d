"""The shipped JSON Schema accepts what the parser accepts, and refuses its mistakes of form."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.serialization.data_parser import parse_yaml
from bot.engine.workflow.serialization.json_schema import (
    read_schema_file,
    render_schema,
    workflow_schema,
)
from bot.engine.workflow.serialization.reader import read_draft, workflow_from_data
from tests.case_tables import all_cases

GALLERY = Path(__file__).parents[5] / "bot" / "engine" / "workflow" / "gallery"
EVERYTHING = """\
name: All
version: "2.0"
inputs: [{name: topic, type: text}, {name: n, type: number, default: 3}]
variables: {v: 1}
nodes:
  - {id: begin, type: start}
  - {id: write, name: Write, prompt: p, persona: coder, timeout: 30m, retry: 3, autoWait: yes,
     limits: {turns: 4, seconds: 1h}, output: {ok: bool}, deliverables: a.md, onError: SKIP}
  - {id: which, type: switch, expression: inputs.n, cases: {"1": a}, defaultTarget: b}
  - {id: a, type: delay, delay: 1h 30m}
  - {id: b, type: Schedule, schedule: {cron: "0 9 * * *", timezone: Asia/Shanghai}}
  - {id: each, type: foreach, foreach: {collection: "[1]", bodyNodes: [c], mode: parallel}}
  - {id: c, type: assign, assign: {assignments: {x: 1}}}
  - {id: l, type: loop, condition: "false", body: d, max_iterations: 3}
  - {id: d, type: script, expression: "1", outputVar: y}
  - {id: j, type: join, mode: n, n: 2}
  - {id: sign, type: human, assignee: [Ann, Bob], timeout: 2h}
edges:
  - {from: write, to: which, label: go}
  - {source: a, target: j, maxLoops: "3"}
outputs: {text: outputs.write}
settings: {timeout: 2h, maxParallel: 3}
"""


@cache
def validator() -> jsonschema.Draft202012Validator:
    schema = workflow_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_shipped_file_is_up_to_date() -> None:
    """Write it anew: `python -m bot.engine.workflow.serialization.json_schema`."""
    assert read_schema_file() == render_schema()


def good_files() -> Iterator[Any]:
    yield parse_yaml(EVERYTHING)
    for kind in NodeType:
        yield {"name": kind.value, **parse_yaml(kind.spec.example)}
    for path in sorted(GALLERY.glob("[ez][nh]/*.yaml")):
        yield parse_yaml(path.read_text(encoding="utf-8"))


def test_what_the_parser_accepts_the_schema_accepts() -> None:
    for data in good_files():
        assert read_draft(data)[1] == []
        assert [error.message for error in validator().iter_errors(data)] == []


@all_cases(
    "text",
    [
        "[]",
        "{nodes: []}",
        "{name: x, nodes: walk}",
        "{name: x, nodes: [walk]}",
        "{name: [x], nodes: []}",
        "{name: x, nodes: [{id: a, type: swich}]}",
        "{name: x, nodes: [{id: a, timeout: soon}]}",
        "{name: x, nodes: [{id: a, onError: stop}]}",
        "{name: x, nodes: [{id: a, autoWait: perhaps}]}",
        "{name: x, nodes: [{id: a, limits: 3}]}",
        "{name: x, nodes: [{id: a, limits: {turns: many}}]}",
        "{name: x, nodes: [{id: a, retry: {maxAttempts: often}}]}",
        "{name: x, nodes: [{id: a, type: join, join: {mode: some}}]}",
        "{name: x, nodes: [{id: a, type: join, mode: some}]}",
        "{name: x, nodes: [{id: a, type: foreach, foreach: {maxParallel: x}}]}",
        "{name: x, nodes: [{id: a, type: switch, switch: {cases: 3}}]}",
        "{name: x, nodes: [{id: a, type: human, human: {autoApprove: x}}]}",
        "{name: x, nodes: [{id: a}], edges: [{from: a}]}",
        "{name: x, nodes: [{id: a}], edges: {from: a}}",
        "{name: x, nodes: [{id: a}], edges: [{from: a, to: a, maxLoops: x}]}",
        "{name: x, nodes: [{id: a}], inputs: [{name: n, type: banana}]}",
        "{name: x, nodes: [{id: a}], variables: [1]}",
        "{name: x, nodes: [{id: a}], settings: {timeout: x}}",
        "{name: x, nodes: [{id: a}], settings: {maxParallel: x}}",
    ],
)
def test_a_mistake_of_form_is_refused_by_both(text: str) -> None:
    data = parse_yaml(text)

    assert not validator().is_valid(data)
    with pytest.raises(InvalidGraph):
        workflow_from_data(data)


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(
        ["", "x", "30m", " 1H ", "yes", "TRUE", "1e2", "fail", "Any", "human", "2 天"]
    ),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["id", "name", "value", "type", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    inside: Any = data if isinstance(data, dict) else {}
    items = enumerate(data) if isinstance(data, list) else inside.items()
    for key, value in items:
        yield from places(value, (*path, key))


@settings(max_examples=150)
@given(st.data())
def test_after_any_change_what_the_parser_accepts_the_schema_accepts(draw: st.DataObject) -> None:
    files = list(good_files())
    data = copy.deepcopy(draw.draw(st.sampled_from(files)))
    *way, last = draw.draw(st.sampled_from(list(places(data))))
    inside: Any = data
    for key in way:
        inside = inside[key]
    inside[last] = draw.draw(_VALUES)

    try:
        issues = read_draft(data)[1]
    except InvalidGraph:
        return

    if not issues:
        assert [error.message for error in validator().iter_errors(data)] == []
