"""The end of a workflow."""

from __future__ import annotations

from tests.bot.engine.workflow.builders import make_step, make_workflow
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator


def test_nothing_begins_once_the_end_is_reached() -> None:
    workflow = make_workflow(
        (make_step("s", "start"), make_step("e", "end"), make_step("j", "join"), "a"),
        "s e", "s j", "j a",
    )  # fmt: skip
    sim = SchedulerSimulator(workflow)

    assert sim.run() == "done"
    assert "a" not in sim.done()
