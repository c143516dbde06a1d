"""The start of a workflow."""

from __future__ import annotations

from bot.engine.workflow.serialization.reader import workflow_from_data


def test_a_workflow_has_no_second_start() -> None:
    nodes = [{"id": "go", "type": "start"}, {"id": "a"}]
    workflow = workflow_from_data({"nodes": nodes}, require_name=False)

    assert [node.id for node in workflow.nodes if node.type == "start"] == ["go"]
