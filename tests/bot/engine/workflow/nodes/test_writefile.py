"""Nodes that write files: settings. Their calls: `test_call_steps.py`."""

from __future__ import annotations

import pytest

from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.named_workflows import parse_workflow_text


@pytest.mark.parametrize(
    ("settings", "faults"),
    [
        ("content: x", {("missing", "writefile.path")}),
        ("path: ../x, content: x", {("bad_deliverable", "writefile.path")}),
        ("path: a", {("missing", "writefile.content")}),
        ("path: a, content: '{{nobody}}'", {("unknown_name", "writefile.content")}),
    ],
)
def test_settings_that_cannot_be_right_are_refused(
    settings: str, faults: set[tuple[str, str]]
) -> None:
    with pytest.raises(InvalidGraph) as refused:
        parse_workflow_text(f"name: W\nnodes: [{{id: a, type: writefile, {settings}}}]")

    assert {(each.key, each.field) for each in refused.value.issues} == faults


@pytest.mark.parametrize(
    ("settings", "repeatable"),
    [
        ("path: a, content: x", True),
    ],
)
def test_whether_it_may_run_twice_follows_from_what_it_does(
    settings: str, *, repeatable: bool
) -> None:
    text = f"name: W\nnodes: [{{id: a, type: writefile, {settings}}}]"

    assert parse_workflow_text(text).nodes_by_id["a"].repeatable is repeatable
