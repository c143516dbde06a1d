"""Conditions and templates are checked against the outputs that tasks declare."""

from __future__ import annotations

import pytest

from bot.engine.workflow.serialization.reader import read_workflow
from tests.bot.engine.workflow.builders import assert_refused, graph_text, issues_in

REVIEW = {
    "id": "re-view",
    "output": {"approved": "bool", "verdict": ["good", "bad"], "score": "int", "notes?": "text",
               "tags": "list"},
}  # fmt: skip


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
        ("outputs.re_view.aproved", "misspelt_output_field"),
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

    assert issue.facts["meant"] == "approved"


def test_templates_and_outputs_are_checked_too() -> None:
    text = graph("outputs.re_view.approved", prompt="Mind {{outputs.re_view.note}}")

    assert_refused(text, [("misspelt_output_field", "c", "prompt")])


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
