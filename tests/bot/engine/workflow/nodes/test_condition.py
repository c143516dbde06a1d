"""A choice by the conditions of edges."""

from __future__ import annotations

from tests.bot.engine.workflow.builders import make_edge, make_step, make_workflow
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator


def test_only_the_first_edge_that_holds_is_taken() -> None:
    workflow = make_workflow(
        (make_step("if", "condition"), "a", "b", "c"),
        make_edge("if a", "false"), make_edge("if b", "true"), make_edge("if c", "true"),
    )  # fmt: skip
    sim = SchedulerSimulator(workflow)

    assert sim.run() == "done"
    assert sim.started == ["b"]
