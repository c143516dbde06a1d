"""HTTP nodes: settings, and which requests may be repeated. Their calls: `test_call_steps.py`."""

from __future__ import annotations

import pytest

from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.named_workflows import parse_workflow_text


@pytest.mark.parametrize(
    ("settings", "faults"),
    [
        ("method: post", {("missing", "http.url")}),
        ("url: x, method: steal", {("not_one_of", "http.method")}),
        ("url: x, headers: {Host: y, 'a b': c}", {("bad_header", "http.headers")}),
        ("url: x, body: {a: 1}", {("no_body_here", "http.body")}),
        ("url: '{{nobody}}'", {("unknown_name", "http.url")}),
        ("url: x, method: post, body: {a: ['{{1 +}}']}", {("bad_expression", "http.body")}),
    ],
)
def test_settings_that_cannot_be_right_are_refused(
    settings: str, faults: set[tuple[str, str]]
) -> None:
    with pytest.raises(InvalidGraph) as refused:
        parse_workflow_text(f"name: W\nnodes: [{{id: a, type: http, {settings}}}]")

    assert {(each.key, each.field) for each in refused.value.issues} == faults


@pytest.mark.parametrize(
    ("settings", "repeatable"),
    [
        ("url: x", True),
        ("url: x, method: HEAD", True),
        ("url: x, method: post", False),
        ("url: x, method: post, repeatable: true", True),
    ],
)
def test_whether_it_may_run_twice_follows_from_what_it_does(
    settings: str, *, repeatable: bool
) -> None:
    text = f"name: W\nnodes: [{{id: a, type: http, {settings}}}]"

    assert parse_workflow_text(text).nodes_by_id["a"].repeatable is repeatable
