"""The target that a switch chooses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import JsonValue

from bot.engine.workflow.definition import WorkflowNode
from bot.engine.workflow.nodes.contract import EvaluationContext, NodeDone, NodeFailure
from bot.engine.workflow.nodes.switch import SwitchCase, SwitchConfig
from bot.engine.workflow.nodes.switch import SwitchNode as Handler
from tests.bot.engine.workflow.builders import (
    IssuePlace,
    assert_refused,
    graph_text,
    node_data,
    read_node,
)


def _chosen_target(wanted: JsonValue, value: Any, default: str = "other") -> str | None:
    config = SwitchConfig(
        expression="v", cases=(SwitchCase(value=wanted, target="yes"),), default=default
    )
    sight = EvaluationContext(
        now=datetime(2026, 11, 22, tzinfo=UTC),
        zone=ZoneInfo("UTC"),
        names={"v": value},
        warn=pytest.fail,
    )
    effect = Handler().enter(WorkflowNode(id="s", title="s", type="switch", config=config), sight)
    assert isinstance(effect, NodeDone)
    return effect.next_node


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (3, 3),
        ("3", 3),
        (3, "3"),
        ("3", 3.0),
        (True, True),
        ("true", True),
        (True, "True"),
        (None, None),
        ("null", None),
        ("Yes", " yes\n"),
        ("approved", {"_raw": "APPROVED"}),
    ],
)
def test_a_case_fits_what_means_the_same(wanted: JsonValue, value: Any) -> None:
    assert _chosen_target(wanted, value) == "yes"


@pytest.mark.parametrize(
    ("wanted", "value"), [(1, True), (0, False), (0, None), ("", None), ("a", "ab"), (1, [1])]
)
def test_what_does_not_fit_goes_the_default_way(wanted: JsonValue, value: Any) -> None:
    assert _chosen_target(wanted, value) == "other"
    assert _chosen_target(wanted, value, default="") == ""


@pytest.mark.parametrize(("default", "kind"), [("other", NodeDone), ("", NodeFailure)])
def test_a_value_nobody_knows_goes_the_default_way_or_fails(default: str, kind: type) -> None:
    config = SwitchConfig(
        expression="w", cases=(SwitchCase(value=1, target="yes"),), default=default
    )
    said: list[str] = []
    sight = EvaluationContext(
        now=datetime(2026, 11, 22, tzinfo=UTC), zone=ZoneInfo("UTC"), names={}, warn=said.append
    )

    effect = Handler().enter(WorkflowNode(id="s", title="s", type="switch", config=config), sight)

    assert isinstance(effect, kind)
    assert len(said) == (kind is NodeDone)


def test_a_case_named_default_is_the_default() -> None:
    cases = [{"value": 1, "targetNode": "a"}, {"value": "default", "targetNode": "b"}]
    switch = {"id": "s", "type": "switch", "switch": {"expression": "1", "cases": cases}}

    assert read_node(switch, {"id": "a"}, {"id": "b"}).config == SwitchConfig(
        expression="1", cases=(SwitchCase(value=1, target="a"),), default="b"
    )


BROKEN: dict[str, tuple[str, list[IssuePlace]]] = {
    "a switch without cases": (
        graph_text(node_data("switch", switch={"expression": "1"})),
        [("missing", "b", "switch.cases")],
    ),
    "a switch to nowhere": (
        graph_text(
            node_data(
                "switch", switch={"expression": "1", "cases": [{"value": 1, "targetNode": "z"}]}
            )
        ),
        [("unknown_node", "b", "switch.cases")],
    ),
    "a case to nowhere at all": (
        graph_text(node_data("switch", switch={"expression": "1", "cases": [{"value": 1}]})),
        [("missing", "b", "switch.cases[1].targetNode")],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_settings_are_refused(name: str) -> None:
    assert_refused(*BROKEN[name])
