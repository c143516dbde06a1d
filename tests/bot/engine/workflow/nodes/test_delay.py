"""Settings of delays."""

from __future__ import annotations

from typing import Any

import pytest

from bot.engine.workflow.nodes.delay import DelayConfig
from tests.bot.engine.workflow.builders import (
    IssuePlace,
    assert_refused,
    graph_text,
    node_data,
    read_node,
)


@pytest.mark.parametrize(("given", "seconds"), [("90m", 5_400), ({"value": 2, "unit": "h"}, 7_200)])
def test_short_forms_are_understood(given: Any, seconds: float) -> None:
    node = read_node({"id": "n", "type": "delay", "delay": given})

    assert node.config == DelayConfig(seconds=seconds)


BROKEN: dict[str, tuple[str, list[IssuePlace]]] = {
    "a delay for ever": (
        graph_text(node_data("delay", delay={"value": 999, "unit": "w"})),
        [("bad_duration", "b", "delay.value")],
    ),
    "a delay in moons": (
        graph_text(node_data("delay", delay={"value": 1, "unit": "moons"})),
        [("bad_duration", "b", "delay.value")],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_settings_are_refused(name: str) -> None:
    assert_refused(*BROKEN[name])
