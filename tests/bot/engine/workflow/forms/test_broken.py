"""Broken workflows are refused, and every fault is named with its node and field."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from bot.engine.workflow.forms.faults import told
from bot.engine.workflow.forms.reading import read
from bot.engine.workflow.model.faults import BadGraph, Fault
from cards.words import words_for
from storage.records.people import Language

Place = tuple[str, str, str]


def graph(*nodes: Any, edges: Any = None, **more: Any) -> str:
    """`a`, then these nodes; in that order where no edges are given."""
    data = {"name": "x", "nodes": [{"id": "a"}, *nodes], **more}
    return json.dumps(data if edges is None else {**data, "edges": edges})


def node(kind: str = "task", **fields: Any) -> dict[str, Any]:
    return {"id": "b", "type": kind, **fields}


def faults_in(text: str) -> tuple[Fault, ...]:
    with pytest.raises(BadGraph) as caught:
        read(text)
    return caught.value.faults


LOOP = {"type": "while", "condition": "true", "bodyNodes": ["c"]}
EACH = {"collection": "[1]", "bodyNodes": ["c"]}
C = {"id": "c"}

BROKEN: dict[str, tuple[str, list[Place]]] = {
    "nothing": ("", [("no_workflow", "", "")]),
    "a plain sentence": ("please do it", [("no_workflow", "", "")]),
    "a list": ("[1, 2]", [("no_workflow", "", "")]),
    "a number": ("7", [("no_workflow", "", "")]),
    "JSON cut off": ('{"name": "x", "nodes": [', [("bad_json", "", "")]),
    "YAML badly indented": ("name: x\n nodes: [", [("bad_yaml", "", "")]),
    "a YAML alias": ("name: &n x\nnodes: *n", [("yaml_alias", "", "")]),
    "a YAML tag": ("name: !!python/object:os.system x", [("yaml_tag", "", "")]),
    "a bold text in YAML": ("name: **x**", [("yaml_alias", "", "")]),
    "a tag of nobody": ("name: !foo!bar x", [("yaml_tag", "", "")]),
    "two YAML documents": ("name: x\n---\nname: y", [("several_documents", "", "")]),
    "a group as a YAML name": ("? {a: 1}\n: 2", [("yaml_key", "", "")]),
    "too deep": ('{"a":' * 60 + "1" + "}" * 60, [("too_nested", "", "")]),
    "too deep for anything": ("[" * 100_000, [("too_nested", "", "")]),
    "too long": ("x" * 1_000_001, [("too_long", "", "")]),
    "too many values": ("[" + "1," * 250_000 + "1]", [("too_many_values", "", "")]),
    "no number": (
        '{"name": "x", "nodes": [{"id": "a", "timeout": NaN}]}',
        [("bad_number", "", "")],
    ),
    "a name twice": ('{"name": "x", "name": "y", "nodes": []}', [("given_twice", "", "name")]),
    "two spellings": (
        graph(node(autoWait=True, auto_wait=False)),
        [("given_twice", "b", "auto_wait")],
    ),
    "no name": (json.dumps({"nodes": [{"id": "a"}]}), [("missing", "", "name")]),
    "no nodes": (json.dumps({"name": "x"}), [("missing", "", "nodes")]),
    "nodes as a text": (json.dumps({"name": "x", "nodes": "a"}), [("not_a_list", "", "nodes")]),
    "a node that is a word": (graph("b"), [("not_a_group", "", "nodes[2]")]),
    "no id": (graph({"name": "B"}), [("missing", "nodes[2]", "id")]),
    "a bad id": (graph({"id": "b c"}), [("bad_id", "b c", "id")]),
    "an id twice": (graph({"id": "a"}), [("twice", "a", "id")]),
    "an unknown type": (graph(node("teleport")), [("unknown_type", "b", "type")]),
    "a field misspelt": (graph(node(promt="do")), [("unknown_field", "b", "promt")]),
    "settings of another type": (graph(node(loop=LOOP), C), [("wrong_config", "b", "loop")]),
    "no settings": (graph(node("loop")), [("no_config", "b", "loop")]),
    "settings as a list": (graph(node("loop", loop=[1])), [("not_a_group", "b", "loop")]),
    "a prompt as a list": (graph(node(prompt=[1])), [("not_a_text", "b", "prompt")]),
    "a flag as a word": (graph(node(autoWait="maybe")), [("not_a_flag", "b", "autoWait")]),
    "a bad time-out": (graph(node(timeout="soon")), [("bad_duration", "b", "timeout")]),
    "a time-out below nothing": (graph(node(timeout=-1)), [("bad_duration", "b", "timeout")]),
    "too many tries": (graph(node(retry={"maxAttempts": 99})), [("bad_retry", "b", "retry")]),
    "tries as a word": (
        graph(node(retry={"maxAttempts": "x"})),
        [("not_a_number", "b", "retry.maxAttempts")],
    ),
    "half a try": (
        graph(node(retry={"maxAttempts": 1.5})),
        [("not_a_whole_number", "b", "retry.maxAttempts")],
    ),
    "an unknown way with errors": (graph(node(onError="pray")), [("not_one_of", "b", "onError")]),
    "a bad hole in a prompt": (graph(node(prompt="{{1 +}}")), [("bad_expression", "b", "prompt")]),
    "edges as a text": (graph(edges="a-b"), [("not_a_list", "", "edges")]),
    "an edge that is a word": (graph(edges=["a-b"]), [("not_a_group", "", "edges[1]")]),
    "an edge from nowhere": (
        graph(edges=[{"from": "z", "to": "a"}]),
        [("unknown_node", "z→a", "source")],
    ),
    "an edge to nowhere": (
        graph(edges=[{"id": "e", "from": "a", "to": "z"}]),
        [("unknown_node", "e", "target")],
    ),
    "an edge without an end": (graph(edges=[{"from": "a"}]), [("missing", "edges[1]", "target")]),
    "a bad condition": (
        graph(node(), edges=[{"from": "a", "to": "b", "condition": "import os"}]),
        [("bad_expression", "a→b", "condition")],
    ),
    "edges of one name": (
        graph(node(), C, edges=[{"id": "e", "from": "a", "to": each} for each in "bc"]),
        [("twice", "e", "id")],
    ),
    "a circle without a bound": (
        graph(node(), edges=[{"from": "a", "to": "b"}, {"from": "b", "to": "a"}]),
        [("unbounded", "a", "")],
    ),
    "a node that leads to itself": (
        graph(edges=[{"from": "a", "to": "a"}]),
        [("unbounded", "a", "")],
    ),
    "a bound that is too high": (
        graph(edges=[{"from": "a", "to": "a", "maxLoops": 5_000}]),
        [("out_of_range", "a→a", "maxLoops")],
    ),
    "out of reach": (
        graph(node("start"), C, edges=[{"from": "b", "to": "a"}]),
        [("unreachable", "c", "")],
    ),
    "two starts": (
        graph(node("start"), {"id": "s", "type": "start"}, edges=[{"from": "b", "to": "a"}]),
        [("several_starts", "s", "")],
    ),
    "no way to the end": (
        graph(node("start"), {"id": "e", "type": "end"}, edges=[{"from": "b", "to": "a"}]),
        [("no_way_to_end", "", ""), ("unreachable", "e", "")],
    ),
    "an unknown body": (
        graph(node("loop", loop=LOOP)),
        [("unknown_node", "b", "loop.bodyNodes")],
    ),
    "an empty body": (
        graph(node("foreach", foreach={"collection": "[1]"})),
        [("missing", "b", "foreach.bodyNodes")],
    ),
    "a node in two bodies": (
        graph(node("loop", loop=LOOP), {"id": "d", "type": "foreach", "foreach": EACH}, C),
        [("in_two_bodies", "d", "foreach.bodyNodes")],
    ),
    "an end in a body": (
        graph(node("loop", loop=LOOP), {"id": "c", "type": "end"}),
        [("not_in_body", "b", "loop.bodyNodes")],
    ),
    "an edge out of a body": (
        graph(node("loop", loop=LOOP), C, edges=[{"id": "e", "from": "c", "to": "a"}]),
        [("crosses_body", "e", "")],
    ),
    "a circle in a body": (
        graph(
            node("loop", loop={**LOOP, "bodyNodes": ["c", "d"]}),
            C,
            {"id": "d"},
            edges=[{"from": "c", "to": "d"}, {"from": "d", "to": "c"}],
        ),
        [("unbounded", "c", "")],
    ),
    "a loop without a condition": (
        graph(node("loop", loop={"type": "until", "bodyNodes": ["c"]}), C),
        [("missing", "b", "loop.condition")],
    ),
    "a loop without an end": (
        graph(node("loop", loop={**LOOP, "maxIterations": 10**6}), C),
        [("out_of_range", "b", "loop.maxIterations")],
    ),
    "an unknown kind of loop": (
        graph(node("loop", loop={**LOOP, "type": "forever"}), C),
        [("not_one_of", "b", "loop.type")],
    ),
    "a loop's bad variable": (
        graph(node("loop", loop={**LOOP, "loopVar": "a-b"}), C),
        [("bad_name", "b", "loop.loopVar")],
    ),
    "too much at once": (
        graph(node("foreach", foreach={**EACH, "maxParallel": 1_000}), C),
        [("out_of_range", "b", "foreach.maxParallel")],
    ),
    "nothing to go through": (
        graph(node("foreach", foreach={"bodyNodes": ["c"]}), C),
        [("missing", "b", "foreach.collection")],
    ),
    "a switch without cases": (
        graph(node("switch", switch={"expression": "1"})),
        [("missing", "b", "switch.cases")],
    ),
    "a switch to nowhere": (
        graph(
            node("switch", switch={"expression": "1", "cases": [{"value": 1, "targetNode": "z"}]})
        ),
        [("unknown_node", "b", "switch.cases")],
    ),
    "a case to nowhere at all": (
        graph(node("switch", switch={"expression": "1", "cases": [{"value": 1}]})),
        [("missing", "b", "switch.cases[1].targetNode")],
    ),
    "a join of none": (
        graph(node("join", join={"mode": "n"})),
        [("too_few", "b", "join.n")],
    ),
    "a delay for ever": (
        graph(node("delay", delay={"value": 999, "unit": "w"})),
        [("bad_duration", "b", "delay.value")],
    ),
    "a delay in moons": (
        graph(node("delay", delay={"value": 1, "unit": "moons"})),
        [("bad_duration", "b", "delay.value")],
    ),
    "no time to wait for": (
        graph(node("schedule", schedule={"timezone": "UTC"})),
        [("cron_or_time", "b", "schedule.cron")],
    ),
    "a bad cron": (
        graph(node("schedule", schedule={"cron": "61 * * * *"})),
        [("bad_cron", "b", "schedule.cron")],
    ),
    "a day that never comes": (
        graph(node("schedule", schedule={"cron": "0 0 31 2 *"})),
        [("bad_cron", "b", "schedule.cron")],
    ),
    "a bad time": (
        graph(node("schedule", schedule={"datetime": "tomorrow"})),
        [("bad_time", "b", "schedule.datetime")],
    ),
    "an unknown zone": (
        graph(node("schedule", schedule={"cron": "0 9 * * *", "timezone": "Mars/Base"})),
        [("unknown_zone", "b", "schedule.timezone")],
    ),
    "a way out of the zones": (
        graph(node("schedule", schedule={"cron": "0 9 * * *", "timezone": "../../etc/passwd"})),
        [("unknown_zone", "b", "schedule.timezone")],
    ),
    "nothing to assign": (
        graph(node("assign", assign={"assignments": []})),
        [("missing", "b", "assign.assignments")],
    ),
    "a bad variable": (
        graph(node("assign", assign={"assignments": [{"variable": "1x", "value": 1}]})),
        [("bad_name", "b", "assign.variable")],
    ),
    "a bad value": (
        graph(
            node(
                "assign",
                assign={"assignments": [{"variable": "x", "value": "(", "isExpression": True}]},
            )
        ),
        [("bad_expression", "b", "assign.value")],
    ),
    "a script of nothing": (
        graph(node("script", script={"outputVar": "x"})),
        [("missing", "b", "script.expression")],
    ),
    "an output of no node": (
        graph(node(), edges=[{"from": "a", "to": "b", "condition": "outputs.z.ok"}]),
        [("unknown_output", "a→b", "condition")],
    ),
    "a state of no node": (
        graph(node("script", script={"expression": "nodeStates['z']", "outputVar": "x"})),
        [("unknown_output", "b", "script.expression")],
    ),
    "an input of no name": (
        graph(node(prompt="{{inputs.topic}}"), inputs=[{"name": "topics"}]),
        [("unknown_input", "b", "prompt")],
    ),
    "a variable that nothing sets": (
        graph(node("switch", switch={"expression": "variables.x", "cases": {"1": "c"}}), C),
        [("unknown_variable", "b", "switch.expression")],
    ),
    "an item outside of its body": (
        graph(node("foreach", foreach=EACH), C, {"id": "d", "prompt": "${item}"}),
        [("unknown_hole", "d", "prompt")],
    ),
    "another item outside of its body": (
        graph(node("foreach", foreach=EACH), C, {"id": "d", "prompt": "{{item}}"}),
        [("unknown_name", "d", "prompt")],
    ),
    "a variable of a shell": (
        graph(node(prompt="ls ${HOME} and ${X:-y}, not $${Z}")),
        [("unknown_hole", "b", "prompt"), ("bad_hole", "b", "prompt")],
    ),
    "a result of no node": (
        graph(outputs={"text": "outputs.z"}),
        [("unknown_output", "", "outputs.text")],
    ),
    "a hole that is not closed": (
        graph(node(prompt="Fix {{outputs.a")),
        [("open_hole", "b", "prompt")],
    ),
    "a join of more than can come": (
        graph(node("join", join={"mode": "n", "n": 2})),
        [("too_many_waited", "b", "join.n")],
    ),
    "a version of tomorrow": (graph(version="99"), [("not_one_of", "", "version")]),
    "a persona elsewhere": (graph(node(persona="../x")), [("bad_persona", "b", "persona")]),
    "program code": (
        graph(node("script", script={"expression": "__import__('os').system('id')"})),
        [("bad_expression", "b", "script.expression")],
    ),
    "bad settings": (
        graph(settings={"timeout": "x", "maxParallel": 99}),
        [("bad_duration", "", "settings.timeout"), ("out_of_range", "", "settings.maxParallel")],
    ),
    "variables as a list": (graph(variables=[1]), [("not_a_group", "", "variables")]),
    "a bad output": (graph(outputs={"x": "1 +"}), [("bad_expression", "", "outputs.x")]),
    "a choice of nothing": (
        graph(inputs=[{"name": "x", "type": "choice"}]),
        [("missing", "x", "inputs.options")],
    ),
    "an input of no kind": (
        graph(inputs=[{"name": "x", "type": "colour"}]),
        [("not_one_of", "x", "inputs.type")],
    ),
    "a default that does not fit": (
        graph(inputs=[{"name": "x", "type": "number", "default": "many"}]),
        [("bad_default", "x", "inputs.default")],
    ),
    "an input twice": (
        graph(inputs=[{"name": "x"}, {"name": "x"}]),
        [("twice", "x", "inputs")],
    ),
    "too long a prompt": (graph(node(prompt="x" * 200_000)), [("too_long", "b", "prompt")]),
    "Markdown that leads nowhere": (
        "# x\n## Tasks\n### 1. a\n- Depends: b\n",
        [("unknown_node", "b→task-1", "source"), ("unreachable", "task-1", "")],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_workflow_is_refused_with_its_faults(name: str) -> None:
    text, expected = BROKEN[name]

    found = [(each.key, each.where, each.field) for each in faults_in(text)]

    assert [place for place in expected if place not in found] == [], found
    assert len(found) <= len(expected) + 2, found


@pytest.mark.parametrize("language", list(Language))
@pytest.mark.parametrize("name", BROKEN)
def test_each_fault_is_told_on_one_line_with_its_place(name: str, language: Language) -> None:
    faults = faults_in(BROKEN[name][0])

    lines = told(faults, words_for(language)).splitlines()

    assert len(lines) == len(faults)
    for line, fault in zip(lines, faults, strict=True):
        assert line.startswith(fault.where or fault.field or line)


def test_all_faults_are_told_at_once() -> None:
    text = graph(
        node("loop", loop={"type": "while", "bodyNodes": ["z"]}, onError="pray"),
        {"id": "c", "prompt": "{{(}}", "timeout": "soon"},
        edges=[{"from": "a", "to": "q"}, {"from": "a", "to": "b", "maxLop": 3}],
        outputs={"x": "("},
    )

    places = {(each.where, each.field) for each in faults_in(text)}

    assert places == {
        ("b", "onError"),
        ("b", "loop.condition"),
        ("b", "loop.bodyNodes"),
        ("c", "prompt"),
        ("c", "timeout"),
        ("a→q", "target"),
        ("a→b", "maxLop"),
        ("", "outputs.x"),
    }


def test_very_many_faults_are_told_in_part() -> None:
    text = graph(*({"id": f"n {n}"} for n in range(500)))

    lines = told(faults_in(text), words_for(Language.ENGLISH), most=10).splitlines()

    assert lines[10:] == ["… and 490 more."]


@pytest.mark.parametrize(
    "part",
    ["# a" + " " * 400_000 + "b\n", "## Tasks" + " " * 400_000 + "x\n", "## Tasks\n" * 90_000,
     "###" * 300_000, "- a: " * 150_000, "a -> " * 150_000, "a -> b (" + " ," * 400_000 + ")\n",
     "- " + "*" * 800_000,
     "- After: b\n" + "  c\n" * 200_000,
     "```\n" * 200_000, "a: " * 300_000, "- " * 300_000, "[" * 800_000,
     "{" * 800_000, "? " * 300_000, '{"a": ' * 100_000, '"' * 900_000, "{a: b, " * 120_000],
)  # fmt: skip
@pytest.mark.parametrize("before", ["", "# x\n## Tasks\n### 1. a\n", "# x\n### 1. a\n## Loops\n"])
def test_a_text_made_to_take_long_is_over_soon(before: str, part: str) -> None:
    with suppress(BadGraph):
        read(before + part[:990_000])


@pytest.mark.parametrize("bodies", [{"b": "b"}, {"b": "c", "c": "b"}])
def test_bodies_that_hold_each_other_are_told_as_that_and_nothing_else(
    bodies: dict[str, str],
) -> None:
    loops = [
        {"id": name, "type": "loop", "loop": {**LOOP, "bodyNodes": [inner]}}
        for name, inner in bodies.items()
    ]

    found = [(fault.key, fault.where) for fault in faults_in(graph(*loops))]

    assert found == [("in_two_bodies", name) for name in bodies]


def test_an_id_that_is_too_long_is_not_missing() -> None:
    assert [fault.key for fault in faults_in(graph({"id": "b" * 300}))] == ["too_long"]
