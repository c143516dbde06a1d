"""The node types without settings."""

from __future__ import annotations

from bot.engine.workflow.serialization.reader import workflow_from_data
from tests.bot.engine.workflow.builders import make_edge, make_step, make_workflow
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator


def test_a_workflow_has_no_second_start() -> None:
    nodes = [{"id": "go", "type": "start"}, {"id": "a"}]
    workflow = workflow_from_data({"nodes": nodes}, require_name=False)

    assert [node.id for node in workflow.nodes if node.type == "start"] == ["go"]


def test_nothing_begins_once_the_end_is_reached() -> None:
    workflow = make_workflow(
        (make_step("s", "start"), make_step("e", "end"), make_step("j", "join"), "a"),
        "s e", "s j", "j a",
    )  # fmt: skip
    sim = SchedulerSimulator(workflow)

    assert sim.run() == "done"
    assert "a" not in sim.done()


def test_only_the_first_edge_that_holds_is_taken() -> None:
    workflow = make_workflow(
        (make_step("if", "condition"), "a", "b", "c"),
        make_edge("if a", "false"), make_edge("if b", "true"), make_edge("if c", "true"),
    )  # fmt: skip
    sim = SchedulerSimulator(workflow)

    assert sim.run() == "done"
    assert sim.started == ["b"]


def test_all_branches_run_at_the_same_time() -> None:
    workflow = make_workflow(
        (make_step("fork", "parallel"), "a", "b", "c"), "fork a", "fork b", "fork c", parallel=3
    )
    sim = SchedulerSimulator(workflow)

    assert sim.run() == "done"
    assert sim.max_parallel == 3
