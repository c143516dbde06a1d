"""Errors in a workflow lead to the place in its text that has to be mended."""

from __future__ import annotations

import pytest

from bot.engine.workflow.diagnostics import to_diagnostics
from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.named_workflows import parse_workflow_text

FLAWED = """\
name: R
inputs:
  - {name: topic, type: banana}
  - name: n
    type: number
    default: x
nodes:
  - {id: a, type: banana}
  - id: b
    when: 1
    prompt: "{{outputs.zz.y}}"
    output: {score: int, ok: what}
  - id: b
    timeout: soon
  - id: l
    loop:
      condition: "1 +"
      bodyNodes: [q]
edges:
  - {from: a, to: nope}
  - from: b
settings: {timeout: x, maxParallel: 900}
"""
PLACES = {
    "topic.inputs.type": (3, 25),
    "n.inputs.default": (6, 14),
    "a.type": (8, 19),
    "b.output.ok.type": (12, 30),
    "b.id": (13, 9),
    "b.timeout": (14, 14),
    "a→nope.to": (20, 19),
    "edges[2].target": (21, 5),
    "settings.timeout": (22, 21),
    "settings.maxParallel": (22, 37),
}


def find_faults(text: str) -> dict[str, tuple[int, int]]:
    """Line and column of each error by its place in words, or else by its key."""
    with pytest.raises(InvalidGraph) as refused:
        parse_workflow_text(text)
    return {
        ".".join(filter(None, (each.location, each.field))) or each.code: (each.line, each.column)
        for each in to_diagnostics(refused.value.issues, text)
    }


def test_every_field_is_found_in_yaml_and_in_a_fence() -> None:
    found = find_faults(FLAWED)
    fenced = find_faults(f"```yaml\n{FLAWED}```\n")

    assert {place: found.get(place) for place in PLACES} == PLACES
    assert {place: fenced.get(place) for place in PLACES} == {
        place: (line + 1, column) for place, (line, column) in PLACES.items()
    }


@pytest.mark.parametrize(
    ("text", "fault", "place"),
    [
        ("name: x\nnodes:\n\t- id: a\n", "yaml_tab", (3, 1)),
        ("nodes:\n  - id: a\n    \tname: b\n", "yaml_tab", (3, 5)),
        ("name: x\n nodes: [", "yaml_colon", (2, 7)),
        ("a:\n  b: 1\n c: 2\n", "yaml_indent", (3, 2)),
        ("name: 'abc\nnodes: []\n", "yaml_quote", (1, 7)),
        ("name: x\nnodes:\n  - {id: a\n", "yaml_bracket", (3, 5)),
        ("a: @x\n", "yaml_start", (1, 4)),
        ("a: 中\nb: 中\x1b[0m\n", "yaml_control", (2, 5)),
        ("a: &x 1\nb: *x\n", "yaml_alias", (2, 4)),
        ('{"name": "x",\n "nodes": [', "json_cut", (2, 12)),
        ('{"name": "x", "nodes": [\n  {"id": "a", "type": "bx"}]}', "a.type", (2, 23)),
        ("nodes: {a: {type: bx}}", "a.type", (1, 19)),
        ("# W\n## Tasks\n### 1. A\n- Type: bx\n### 2. B\n- Depends: 9\n", "task-1.Type", (4, 9)),
        ("a: 1\na: 2\n", "a", (2, 1)),
        ("just words", "no_workflow", (1, 1)),
    ],
)
def test_what_cannot_be_read_is_told_with_its_kind_and_place(
    text: str, fault: str, place: tuple[int, int]
) -> None:
    assert find_faults(text).get(fault) == place


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        '{"a":' * 50_000,
        "x: " + "{a: " * 20_000,
        "中" * 400_000,
        "x: [" + "1," * 300_000 + "1]",
        "a: &a [x]\n" + "\n".join(f"b{n}: &b{n} [*a, *a]" for n in range(100)),
        "name: x\nnodes:\n" + "".join(f"  - {{id: n{n}, type: q}}\n" for n in range(3_000)),
        "name: x\nnodes: [" + "{}," * 5_000 + "]",
    ],
    ids=("deep list", "deep JSON", "deep YAML", "long", "wide", "bomb", "many faults", "empty"),
)
def test_hostile_texts_are_refused_all_the_same(text: str) -> None:
    assert find_faults(text)
