"""What steps are told, and what a finished workflow gives back."""

from __future__ import annotations

from bot.engine.workflow.model.nodes import Foreach
from bot.engine.workflow.routing.results import given_back
from bot.engine.workflow.routing.seen import as_done
from tests.bot.engine.workflow.routing.made import brings, flow, step
from tests.bot.engine.workflow.routing.sim import Sim


def test_templates_are_filled_with_what_is_seen_from_that_round() -> None:
    told = "{{item}} of {{total}} by {{inputs.who}}: {{outputs.plan.score}}{{outputs.nobody}}"
    nodes = (
        "plan",
        step("each", "foreach", Foreach(collection="['x', 'y']", body=("do",))),
        step("do", detail=told),
    )
    sim = Sim(flow(nodes, "plan each", values={"who": "Ann"}), work=brings(plan="score: 7"))

    while "each[1]/do" not in {place.path for place, _ in sim.flow.steps()}:
        assert sim.turn() is None
        sim.flow.settle(sim.now, 10)
    place, node = next(iter(sim.flow.steps()))
    done = as_done(sim.flow, place, node, sim.now)

    assert done.id == "each[1]/do"
    assert done.detail == "y of 2 by Ann: 7"
    assert any("nobody" in warning for warning in sim.warnings)


def test_a_finished_workflow_gives_back_its_outputs_a_line_each() -> None:
    outputs = {"score": "outputs.a.score + 1", "missing": "outputs.nobody"}
    sim = Sim(flow("a", outputs=outputs), work=brings(a="score: 7"))

    assert sim.run() == "done"
    assert given_back(sim.flow, sim.now).splitlines() == ["score: 8", "missing: "]
