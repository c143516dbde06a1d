"""Settings of joins."""

from __future__ import annotations

from typing import Any

import pytest

from bot.engine.workflow.nodes.join import JoinConfig
from tests.bot.engine.workflow.builders import (
    IssuePlace,
    assert_refused,
    graph_text,
    node_data,
    read_node,
)


@pytest.mark.parametrize(
    ("given", "config"), [({"join": "any"}, JoinConfig(mode="any")), ({}, None)]
)
def test_short_forms_are_understood(given: dict[str, Any], config: JoinConfig | None) -> None:
    assert read_node({"id": "n", "type": "join", **given}).config == config


BROKEN: dict[str, tuple[str, list[IssuePlace]]] = {
    "a join of none": (
        graph_text(node_data("join", join={"mode": "n"})),
        [("too_few", "b", "join.n")],
    ),
    "a join of more than can come": (
        graph_text(node_data("join", join={"mode": "n", "n": 2})),
        [("too_many_waited", "b", "join.n")],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_settings_are_refused(name: str) -> None:
    assert_refused(*BROKEN[name])
