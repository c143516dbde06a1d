"""Broken workflows are refused, and every fault is named with its node and field."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.planner import format_issues
from bot.engine.workflow.serialization.reader import read_workflow
from cards.catalog import catalog_for
from storage.records.people import Language
from tests.bot.engine.workflow.builders import (
    IssuePlace,
    assert_refused,
    graph_text,
    issues_in,
    node_data,
)
from tests.case_tables import all_cases

LOOP = {"type": "while", "condition": "true", "bodyNodes": ["c"]}
FOREACH = {"collection": "[1]", "bodyNodes": ["c"]}
BODY_NODE = {"id": "c"}

BROKEN: dict[str, tuple[str, list[IssuePlace]]] = {
    "nothing": ("", [("no_workflow", "", "")]),
    "limits out of range": (
        graph_text(node_data(limits={"turns": 0, "tokens": 3_000_000, "seconds": 0.5})),
        [
            ("out_of_range", "b", "limits.turns"),
            ("out_of_range", "b", "limits.tokens"),
            ("out_of_range", "b", "limits.seconds"),
        ],
    ),
    "limits that are none": (
        graph_text(node_data(limits={"turns": "many", "token": 5})),
        [("not_a_number", "b", "limits.turns"), ("unknown_field", "b", "limits.token")],
    ),
    "limits of a person": (
        graph_text(node_data("human", limits={"turns": 5})),
        [("no_limits_here", "b", "limits")],
    ),
    "deliverables that are no files of the folder": (
        graph_text(node_data(deliverables=["../a.md", "{{variables.gone}}.md", "*.md", "b.md"])),
        [
            ("bad_deliverable", "b", "deliverables"),
            ("bad_deliverable", "b", "deliverables"),
            ("unknown_variable", "b", "deliverables"),
        ],
    ),
    "deliverables of a person": (
        graph_text(node_data("human", deliverables="a.md")),
        [("no_deliverables_here", "b", "deliverables")],
    ),
    "a plain sentence": ("please do it", [("no_workflow", "", "")]),
    "a list": ("[1, 2]", [("no_workflow", "", "")]),
    "a number": ("7", [("no_workflow", "", "")]),
    "JSON cut off": ('{"name": "x", "nodes": [', [("json_cut", "", "")]),
    "YAML badly indented": ("name: x\n nodes: [", [("yaml_colon", "", "")]),
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
        graph_text(node_data(autoWait=True, auto_wait=False)),
        [("given_twice", "b", "auto_wait")],
    ),
    "no name": (json.dumps({"nodes": [{"id": "a"}]}), [("missing", "", "name")]),
    "no nodes": (json.dumps({"name": "x"}), [("missing", "", "nodes")]),
    "nodes as a text": (json.dumps({"name": "x", "nodes": "a"}), [("not_a_list", "", "nodes")]),
    "a node that is a word": (graph_text("b"), [("not_a_group", "", "nodes[2]")]),
    "no id": (graph_text({"name": "B"}), [("missing", "nodes[2]", "id")]),
    "a bad id": (graph_text({"id": "b c"}), [("bad_id", "b c", "id")]),
    "an id twice": (graph_text({"id": "a"}), [("twice", "a", "id")]),
    "an unknown type": (graph_text(node_data("teleport")), [("unknown_type", "b", "type")]),
    "a field misspelt": (graph_text(node_data(promt="do")), [("unknown_field", "b", "promt")]),
    "settings of another type": (
        graph_text(node_data(loop=LOOP), BODY_NODE),
        [("wrong_config", "b", "loop")],
    ),
    "no settings": (graph_text(node_data("loop")), [("no_config", "b", "loop")]),
    "settings as a list": (graph_text(node_data("loop", loop=[1])), [("not_a_group", "b", "loop")]),
    "a prompt as a list": (graph_text(node_data(prompt=[1])), [("not_a_text", "b", "prompt")]),
    "a flag as a word": (
        graph_text(node_data(autoWait="maybe")),
        [("not_a_flag", "b", "autoWait")],
    ),
    "a bad time-out": (graph_text(node_data(timeout="soon")), [("bad_duration", "b", "timeout")]),
    "a time-out below nothing": (
        graph_text(node_data(timeout=-1)),
        [("bad_duration", "b", "timeout")],
    ),
    "too many tries": (
        graph_text(node_data(retry={"maxAttempts": 99})),
        [("bad_retry", "b", "retry")],
    ),
    "tries as a word": (
        graph_text(node_data(retry={"maxAttempts": "x"})),
        [("not_a_number", "b", "retry.maxAttempts")],
    ),
    "half a try": (
        graph_text(node_data(retry={"maxAttempts": 1.5})),
        [("not_a_whole_number", "b", "retry.maxAttempts")],
    ),
    "an unknown way with errors": (
        graph_text(node_data(onError="pray")),
        [("not_one_of", "b", "onError")],
    ),
    "a bad hole in a prompt": (
        graph_text(node_data(prompt="{{1 +}}")),
        [("bad_expression", "b", "prompt")],
    ),
    "edges as a text": (graph_text(edges="a-b"), [("not_a_list", "", "edges")]),
    "an edge that is a word": (graph_text(edges=["a-b"]), [("not_a_group", "", "edges[1]")]),
    "an edge from nowhere": (
        graph_text(edges=[{"from": "z", "to": "a"}]),
        [("unknown_node", "z→a", "source")],
    ),
    "an edge to nowhere": (
        graph_text(edges=[{"id": "e", "from": "a", "to": "z"}]),
        [("unknown_node", "e", "target")],
    ),
    "an edge without an end": (
        graph_text(edges=[{"from": "a"}]),
        [("missing", "edges[1]", "target")],
    ),
    "a bad condition": (
        graph_text(node_data(), edges=[{"from": "a", "to": "b", "condition": "import os"}]),
        [("bad_expression", "a→b", "condition")],
    ),
    "edges of one name": (
        graph_text(
            node_data(), BODY_NODE, edges=[{"id": "e", "from": "a", "to": each} for each in "bc"]
        ),
        [("twice", "e", "id")],
    ),
    "a circle without a bound": (
        graph_text(node_data(), edges=[{"from": "a", "to": "b"}, {"from": "b", "to": "a"}]),
        [("unbounded", "b→a", "")],
    ),
    "a node that leads to itself": (
        graph_text(edges=[{"from": "a", "to": "a"}]),
        [("unbounded", "a→a", "")],
    ),
    "a bound that is too high": (
        graph_text(edges=[{"from": "a", "to": "a", "maxLoops": 5_000}]),
        [("out_of_range", "a→a", "maxLoops")],
    ),
    "out of reach": (
        graph_text(node_data("start"), BODY_NODE, edges=[{"from": "b", "to": "a"}]),
        [("unreachable", "c", "")],
    ),
    "two starts": (
        graph_text(
            node_data("start"), {"id": "s", "type": "start"}, edges=[{"from": "b", "to": "a"}]
        ),
        [("several_starts", "s", "")],
    ),
    "no way to the end": (
        graph_text(
            node_data("start"), {"id": "e", "type": "end"}, edges=[{"from": "b", "to": "a"}]
        ),
        [("no_way_to_end", "", ""), ("unreachable", "e", "")],
    ),
    "an unknown body": (
        graph_text(node_data("loop", loop=LOOP)),
        [("unknown_node", "b", "loop.bodyNodes")],
    ),
    "an empty body": (
        graph_text(node_data("foreach", foreach={"collection": "[1]"})),
        [("missing", "b", "foreach.bodyNodes")],
    ),
    "a node in two bodies": (
        graph_text(
            node_data("loop", loop=LOOP),
            {"id": "d", "type": "foreach", "foreach": FOREACH},
            BODY_NODE,
        ),
        [("in_two_bodies", "d", "foreach.bodyNodes")],
    ),
    "an end in a body": (
        graph_text(node_data("loop", loop=LOOP), {"id": "c", "type": "end"}),
        [("not_in_body", "b", "loop.bodyNodes")],
    ),
    "an edge out of a body": (
        graph_text(
            node_data("loop", loop=LOOP), BODY_NODE, edges=[{"id": "e", "from": "c", "to": "a"}]
        ),
        [("crosses_body", "e", "")],
    ),
    "a circle in a body": (
        graph_text(
            node_data("loop", loop={**LOOP, "bodyNodes": ["c", "d"]}),
            BODY_NODE,
            {"id": "d"},
            edges=[{"from": "c", "to": "d"}, {"from": "d", "to": "c"}],
        ),
        [("unbounded", "d→c", "")],
    ),
    "an output of no node": (
        graph_text(node_data(), edges=[{"from": "a", "to": "b", "condition": "outputs.z.ok"}]),
        [("unknown_output", "a→b", "condition")],
    ),
    "a state of no node": (
        graph_text(node_data("script", script={"expression": "nodeStates['z']", "outputVar": "x"})),
        [("unknown_output", "b", "script.expression")],
    ),
    "an input of no name": (
        graph_text(node_data(prompt="{{inputs.topic}}"), inputs=[{"name": "topics"}]),
        [("unknown_input", "b", "prompt")],
    ),
    "a variable that nothing sets": (
        graph_text(
            node_data("switch", switch={"expression": "variables.x", "cases": {"1": "c"}}),
            BODY_NODE,
        ),
        [("unknown_variable", "b", "switch.expression")],
    ),
    "an item outside of its body": (
        graph_text(
            node_data("foreach", foreach=FOREACH), BODY_NODE, {"id": "d", "prompt": "${item}"}
        ),
        [("unknown_hole", "d", "prompt")],
    ),
    "another item outside of its body": (
        graph_text(
            node_data("foreach", foreach=FOREACH), BODY_NODE, {"id": "d", "prompt": "{{item}}"}
        ),
        [("unknown_name", "d", "prompt")],
    ),
    "a variable of a shell": (
        graph_text(node_data(prompt="ls ${HOME} and ${X:-y}, not $${Z}")),
        [("unknown_hole", "b", "prompt"), ("bad_hole", "b", "prompt")],
    ),
    "a result of no node": (
        graph_text(outputs={"text": "outputs.z"}),
        [("unknown_output", "", "outputs.text")],
    ),
    "a hole that is not closed": (
        graph_text(node_data(prompt="Fix {{outputs.a")),
        [("open_hole", "b", "prompt")],
    ),
    "a version of tomorrow": (graph_text(version="99"), [("not_one_of", "", "version")]),
    "a persona elsewhere": (
        graph_text(node_data(persona="../x")),
        [("bad_persona", "b", "persona")],
    ),
    "bad settings": (
        graph_text(settings={"timeout": "x", "maxParallel": 99}),
        [("bad_duration", "", "settings.timeout"), ("out_of_range", "", "settings.maxParallel")],
    ),
    "variables as a list": (graph_text(variables=[1]), [("not_a_group", "", "variables")]),
    "a bad output": (graph_text(outputs={"x": "1 +"}), [("bad_expression", "", "outputs.x")]),
    "a choice of nothing": (
        graph_text(inputs=[{"name": "x", "type": "choice"}]),
        [("missing", "x", "inputs.options")],
    ),
    "an input of no kind": (
        graph_text(inputs=[{"name": "x", "type": "colour"}]),
        [("not_one_of", "x", "inputs.type")],
    ),
    "a default that does not fit": (
        graph_text(inputs=[{"name": "x", "type": "number", "default": "many"}]),
        [("bad_default", "x", "inputs.default")],
    ),
    "an input twice": (
        graph_text(inputs=[{"name": "x"}, {"name": "x"}]),
        [("twice", "x", "inputs")],
    ),
    "too long a prompt": (
        graph_text(node_data(prompt="x" * 200_000)),
        [("too_long", "b", "prompt")],
    ),
    "Markdown that leads nowhere": (
        "# x\n## Tasks\n### 1. a\n- Depends: b\n",
        [("unknown_node", "b→task-1", "source")],
    ),
}
REVIEW = {
    "id": "re-view",
    "output": {"approved": "bool", "verdict": ["good", "bad"], "score": "int", "notes?": "text",
               "tags": "list"},
}  # fmt: skip


@all_cases("name", BROKEN)
def test_a_broken_workflow_is_refused_with_its_faults(name: str) -> None:
    assert_refused(*BROKEN[name])


def test_all_faults_are_told_at_once() -> None:
    text = graph_text(
        node_data("loop", loop={"type": "while", "bodyNodes": ["z"]}, onError="pray"),
        {"id": "c", "prompt": "{{(}}", "timeout": "soon"},
        edges=[{"from": "a", "to": "q"}, {"from": "a", "to": "b", "maxLop": 3}],
        outputs={"x": "("},
    )

    places = {(each.where, each.field) for each in issues_in(text)}

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
    text = graph_text(*({"id": f"n {n}"} for n in range(500)))

    lines = format_issues(issues_in(text), catalog_for(Language.ENGLISH), limit=10).splitlines()

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
    with suppress(InvalidGraph):
        read_workflow(before + part[:990_000])


@pytest.mark.parametrize("bodies", [{"b": "b"}, {"b": "c", "c": "b"}])
def test_bodies_that_hold_each_other_are_told_as_that_and_nothing_else(
    bodies: dict[str, str],
) -> None:
    loops = [
        {"id": name, "type": "loop", "loop": {**LOOP, "bodyNodes": [inner]}}
        for name, inner in bodies.items()
    ]

    found = [(fault.key, fault.where) for fault in issues_in(graph_text(*loops))]

    assert found == [("in_two_bodies", name) for name in bodies]


def test_an_id_that_is_too_long_is_not_missing() -> None:
    assert [fault.key for fault in issues_in(graph_text({"id": "b" * 300}))] == ["too_long"]


def graph(condition: str, **more: object) -> str:
    return graph_text(
        REVIEW,
        {"id": "c", **more},
        edges=[
            {"from": "a", "to": "re-view"},
            {"id": "way", "from": "re-view", "to": "c", "condition": condition},
            {"from": "re-view", "to": "a", "maxLoops": 2},
        ],
    )


@pytest.mark.parametrize(
    "condition",
    [
        "outputs.re_view.approved",
        "outputs['re-view'].approved == true",
        "outputs.re_view.Approved == 'yes' and outputs.re_view.score >= 7.5",
        "outputs.re_view.verdict == 'good' or outputs.re_view.verdict in ['bad', 'good']",
        "'x' in outputs.re_view.tags and len(outputs.re_view.tags) > 2",
        "outputs.re_view.notes == null or outputs.re_view.notes == 'none'",
        "outputs.re_view.result.includes('ok') and outputs.re_view.files[0] == 'a'",
        "outputs.a.anything == 5",
        "get(outputs.re_view, 'more', 0) > 1",
    ],
)
def test_what_an_output_can_be_is_accepted(condition: str) -> None:
    assert read_workflow(graph(condition)).edges


@pytest.mark.parametrize(
    ("condition", "key"),
    [
        ("outputs.re_view.aproved", "unknown_output_field"),
        ("!outputs['re-view']['colour']", "unknown_output_field"),
        ("outputs.re_view.verdict == 'great'", "not_an_option"),
        ("outputs.re_view.verdict == 'Good'", "not_an_option"),
        ("'great' != outputs.re_view.verdict", "not_an_option"),
        ("outputs.re_view.verdict in ['good', 'great']", "not_an_option"),
        ("outputs.re_view.verdict == true", "wrong_comparison"),
        ("outputs.re_view.approved == 1", "wrong_comparison"),
        ("outputs.re_view.approved == 'approved by Ann'", "wrong_comparison"),
        ("outputs.re_view.approved > 3", "wrong_comparison"),
        ("outputs.re_view.score == '7'", "wrong_comparison"),
        ("outputs.re_view.score == true", "wrong_comparison"),
        ("outputs.re_view.notes > 3", "wrong_comparison"),
        ("outputs.re_view.tags == 'x'", "wrong_comparison"),
    ],
)
def test_what_an_output_can_never_be_is_refused_with_its_place(condition: str, key: str) -> None:
    assert_refused(graph(condition), [(key, "way", "condition")])


def test_a_suggestion_is_made() -> None:
    (issue,) = issues_in(graph("outputs.re_view.aproved"))

    assert issue.suggestion == "approved"


def test_templates_and_outputs_are_checked_too() -> None:
    text = graph("outputs.re_view.approved", prompt="Mind {{outputs.re_view.note}}")

    assert_refused(text, [("unknown_output_field", "c", "prompt")])


@pytest.mark.parametrize(
    ("field", "value", "key"),
    [
        ("verdict", "great", "not_an_option"),
        ("verdict", "GOOD", ""),
        ("approved", "true", ""),
        ("approved", False, ""),
        ("approved", "perhaps so", "wrong_comparison"),
        ("score", "7", ""),
        ("score", "seven", "wrong_comparison"),
    ],
)
def test_the_cases_of_a_switch_are_checked(field: str, value: object, key: str) -> None:
    switch = {"expression": f"outputs.re_view.{field}", "defaultTarget": "d",
              "cases": [{"value": value, "targetNode": "d"}]}  # fmt: skip
    edges = [{"from": "a", "to": "re-view"}, {"from": "re-view", "to": "c"}]
    node = {"id": "c", "type": "switch", "switch": switch}
    text = graph_text(REVIEW, node, {"id": "d"}, edges=edges)

    if key:
        assert_refused(text, [(key, "c", "switch.cases")])
    else:
        assert read_workflow(text).nodes_by_id["c"].settings
