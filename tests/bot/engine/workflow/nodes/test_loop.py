"""Settings of loops."""

from __future__ import annotations

import pytest

from tests.bot.engine.workflow.builders import IssuePlace, assert_refused, graph_text, node_data

LOOP = {"type": "while", "condition": "true", "bodyNodes": ["c"]}
BODY_NODE = {"id": "c"}


BROKEN: dict[str, tuple[str, list[IssuePlace]]] = {
    "a loop without a condition": (
        graph_text(node_data("loop", loop={"type": "until", "bodyNodes": ["c"]}), BODY_NODE),
        [("missing", "b", "loop.condition")],
    ),
    "a loop without an end": (
        graph_text(node_data("loop", loop={**LOOP, "maxIterations": 10**6}), BODY_NODE),
        [("out_of_range", "b", "loop.maxIterations")],
    ),
    "an unknown kind of loop": (
        graph_text(node_data("loop", loop={**LOOP, "type": "forever"}), BODY_NODE),
        [("not_one_of", "b", "loop.type")],
    ),
    "a loop's bad variable": (
        graph_text(node_data("loop", loop={**LOOP, "loopVar": "a-b"}), BODY_NODE),
        [("bad_name", "b", "loop.loopVar")],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_settings_are_refused(name: str) -> None:
    assert_refused(*BROKEN[name])
