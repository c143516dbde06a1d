"""The percentage of a plan: it weighs time, knows branches and loops, and takes nothing back."""

from __future__ import annotations

from hypothesis import Phase, assume, given, note, settings
from hypothesis import strategies as st

from bot.engine.workflow.definition import Workflow, WorkflowTopology
from bot.engine.workflow.presentation.node_display import CurrentRuns
from bot.engine.workflow.presentation.progress import expected_weights, plan_progress
from bot.engine.workflow.validation import find_issues
from tests.bot.engine.workflow.builders import make_edge, make_workflow
from tests.bot.engine.workflow.random_workflows import by_path, dump_text, workflows
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator

_law = settings(phases=[Phase.generate])


def _share(sim: SchedulerSimulator, **seconds: float) -> float:
    nodes = sim.workflow.nodes_by_id
    expected = {name: seconds.get(name, 10.0) for name in nodes}
    current = CurrentRuns(WorkflowTopology(sim.workflow), sim.runs)
    return plan_progress(current, expected_weights(nodes, expected))


@_law
@given(workflows(parallel=2), st.integers(0, 99))
def test_it_takes_nothing_back(workflow: Workflow, seed: int) -> None:
    assume(not list(find_issues(workflow)))
    note(dump_text(workflow))
    sim = SchedulerSimulator(workflow, work=by_path, seed=seed, moves_per_turn=1)
    last, end = 0.0, None
    for _ in range(400):
        if end is not None:
            break
        end = sim.turn()
        now = _share(sim)
        assert now >= last - 1e-9, (sorted(sim.runs), last, now)
        last = now


def test_it_weighs_time_and_leaves_out_what_is_not_taken() -> None:
    plan = make_workflow(
        "a choose long short",
        "a choose",
        make_edge("choose long", "outputs.choose.big"),
        make_edge("choose short", "!outputs.choose.big"),
    )
    sim = SchedulerSimulator(plan, work=lambda node, _names, _path: {"big": False})
    shares = [_share(sim, a=10, choose=10, long=70, short=20)]
    while sim.turn() is None:
        shares.append(round(_share(sim, a=10, choose=10, long=70, short=20), 2))
    shares.append(_share(sim, a=10, choose=10, long=70, short=20))

    # 10 of 110, then 20 of 40 once the long branch is out, then all.
    assert list(dict.fromkeys(shares)) == [0.0, 0.09, 0.18, 1.0]
