"""Settings of assignments."""

from __future__ import annotations

import pytest

from bot.engine.workflow.nodes.assign import AssignConfig
from bot.engine.workflow.nodes.shared_settings import VariableAssignment
from tests.bot.engine.workflow.builders import (
    IssuePlace,
    assert_refused,
    graph_text,
    node_data,
    read_node,
)


def test_names_and_values_are_assignments() -> None:
    node = read_node({"id": "n", "type": "assign", "assign": {"assignments": {"x": 1}}})

    assert node.config == AssignConfig(assignments=(VariableAssignment(variable="x", value=1),))


BROKEN: dict[str, tuple[str, list[IssuePlace]]] = {
    "nothing to assign": (
        graph_text(node_data("assign", assign={"assignments": []})),
        [("missing", "b", "assign.assignments")],
    ),
    "a bad variable": (
        graph_text(node_data("assign", assign={"assignments": [{"variable": "1x", "value": 1}]})),
        [("bad_name", "b", "assign.variable")],
    ),
    "a bad value": (
        graph_text(
            node_data(
                "assign",
                assign={"assignments": [{"variable": "x", "value": "(", "isExpression": True}]},
            )
        ),
        [("bad_expression", "b", "assign.value")],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_settings_are_refused(name: str) -> None:
    assert_refused(*BROKEN[name])
