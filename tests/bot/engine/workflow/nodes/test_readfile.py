"""Nodes that read files: settings. Their calls: `test_call_steps.py`."""

from __future__ import annotations

import pytest

from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.named_workflows import parse_workflow_text


@pytest.mark.parametrize(
    ("settings", "faults"),
    [
        ("format: json", {("missing", "readfile.path")}),
        ("path: ../x", {("bad_deliverable", "readfile.path")}),
        ("path: /etc/passwd", {("bad_deliverable", "readfile.path")}),
        ("path: a, format: xml", {("not_one_of", "readfile.format")}),
    ],
)
def test_settings_that_cannot_be_right_are_refused(
    settings: str, faults: set[tuple[str, str]]
) -> None:
    with pytest.raises(InvalidGraph) as refused:
        parse_workflow_text(f"name: W\nnodes: [{{id: a, type: readfile, {settings}}}]")

    assert {(each.key, each.field) for each in refused.value.issues} == faults


@pytest.mark.parametrize(
    ("settings", "repeatable"),
    [
        ("path: a", True),
        ("path: a, repeatable: false", False),
    ],
)
def test_whether_it_may_run_twice_follows_from_what_it_does(
    settings: str, *, repeatable: bool
) -> None:
    text = f"name: W\nnodes: [{{id: a, type: readfile, {settings}}}]"

    assert parse_workflow_text(text).nodes_by_id["a"].repeatable is repeatable
