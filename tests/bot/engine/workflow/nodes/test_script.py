"""Settings of scripts."""

from __future__ import annotations

import pytest

from bot.engine.workflow.nodes.script import ScriptConfig
from tests.bot.engine.workflow.builders import (
    IssuePlace,
    assert_refused,
    graph_text,
    node_data,
    read_node,
)


def test_an_expression_has_a_variable() -> None:
    node = read_node({"id": "n", "type": "script", "script": {"expression": "1", "outputVar": "x"}})

    assert node.config == ScriptConfig(expression="1", output="x")


BROKEN: dict[str, tuple[str, list[IssuePlace]]] = {
    "a script of nothing": (
        graph_text(node_data("script", script={"outputVar": "x"})),
        [("missing", "b", "script.expression")],
    ),
    "program code": (
        graph_text(node_data("script", script={"expression": "__import__('os').system('id')"})),
        [("bad_expression", "b", "script.expression")],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_settings_are_refused(name: str) -> None:
    assert_refused(*BROKEN[name])
