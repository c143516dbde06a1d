"""A fork into branches."""

from __future__ import annotations

from tests.bot.engine.workflow.builders import make_step, make_workflow
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator


def test_all_branches_run_at_the_same_time() -> None:
    workflow = make_workflow(
        (make_step("fork", "parallel"), "a", "b", "c"), "fork a", "fork b", "fork c", parallel=3
    )
    sim = SchedulerSimulator(workflow)

    assert sim.run() == "done"
    assert sim.max_parallel == 3
