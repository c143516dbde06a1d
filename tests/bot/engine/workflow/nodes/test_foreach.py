"""Settings of a foreach."""

from __future__ import annotations

import pytest

from bot.engine.workflow.nodes.foreach import ForeachConfig
from tests.bot.engine.workflow.builders import (
    IssuePlace,
    assert_refused,
    graph_text,
    node_data,
    read_node,
)

FOREACH = {"collection": "[1]", "bodyNodes": ["c"]}
BODY_NODE = {"id": "c"}


def test_a_plain_list_is_a_collection() -> None:
    node = read_node(
        {"id": "n", "type": "for-each", "items": 1, "collection": "[1]", "bodyNodes": "z"},
        {"id": "z"},
    )

    assert node.config == ForeachConfig(collection="[1]", body=("z",))


BROKEN: dict[str, tuple[str, list[IssuePlace]]] = {
    "too much at once": (
        graph_text(node_data("foreach", foreach={**FOREACH, "maxParallel": 1_000}), BODY_NODE),
        [("out_of_range", "b", "foreach.maxParallel")],
    ),
    "nothing to repeat over": (
        graph_text(node_data("foreach", foreach={"bodyNodes": ["c"]}), BODY_NODE),
        [("missing", "b", "foreach.collection")],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_settings_are_refused(name: str) -> None:
    assert_refused(*BROKEN[name])
