"""Command nodes: settings, and that they are not repeated. Their calls: `test_call_steps.py`."""

from __future__ import annotations

import pytest

from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.named_workflows import parse_workflow_text


@pytest.mark.parametrize(
    ("settings", "faults"),
    [
        ("seconds: 5", {("missing", "command.command")}),
        ("command: 'rm {{inputs.x}}'", {("hole_in_command", "command.command")}),
        ("command: []", {("missing", "command.command")}),
        ("command: [a, {b: c}]", {("not_a_list_of_words", "command.command")}),
        ("command: ls, seconds: 6000", {("out_of_range", "command.seconds")}),
        ("command: [ls, '{{nobody}}']", {("unknown_name", "command.command")}),
    ],
)
def test_settings_that_cannot_be_right_are_refused(
    settings: str, faults: set[tuple[str, str]]
) -> None:
    with pytest.raises(InvalidGraph) as refused:
        parse_workflow_text(f"name: W\nnodes: [{{id: a, type: command, {settings}}}]")

    assert {(each.key, each.field) for each in refused.value.issues} == faults


@pytest.mark.parametrize(
    ("settings", "repeatable"),
    [
        ("command: ls", False),
        ("command: ls, repeatable: true", True),
    ],
)
def test_whether_it_may_run_twice_follows_from_what_it_does(
    settings: str, *, repeatable: bool
) -> None:
    text = f"name: W\nnodes: [{{id: a, type: command, {settings}}}]"

    assert parse_workflow_text(text).nodes_by_id["a"].repeatable is repeatable
