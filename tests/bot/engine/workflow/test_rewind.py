"""Running parts of a task again: what stays, what is discarded, and how often a limit counts."""

from __future__ import annotations

from typing import Any

from hypothesis import Phase, assume, given, note, settings
from hypothesis import strategies as st

from bot.engine.workflow.definition import Workflow
from bot.engine.workflow.node_runs import (
    attempts_before,
    is_unreached,
    node_output,
    parse_activation,
)
from bot.engine.workflow.rewind import RunRewind, rerun_from, retry_after_dead_end
from bot.engine.workflow.validation import find_issues
from storage.records.tasks import NO_CHANGES, NodeStatus, RerunChanges, RerunRefused
from tests.bot.engine.workflow.random_workflows import by_path, dump_text, workflows
from tests.bot.engine.workflow.scheduler_simulator import TASK, SchedulerSimulator

_law = settings(phases=[Phase.generate])


def _adopt(sim: SchedulerSimulator, made: RunRewind) -> None:
    for path in made.removed:
        del sim.runs[path]
    sim.runs.update({run.path: run for run in made.changed})
    sim.workflow = made.workflow
    sim.scheduler = sim._new()


def _rerun(sim: SchedulerSimulator, wanted: str, changes: RerunChanges = NO_CHANGES) -> RunRewind:
    def scheduler(workflow: Workflow, runs: Any) -> Any:
        return SchedulerSimulator(workflow, runs=dict(runs)).scheduler

    return rerun_from(
        TASK, sim.workflow, sim.runs, wanted, changes, scheduler=scheduler, now=sim.now
    )


def _retry(sim: SchedulerSimulator) -> RunRewind:
    def scheduler(workflow: Workflow, runs: Any) -> Any:
        return SchedulerSimulator(workflow, runs=dict(runs)).scheduler

    return retry_after_dead_end(TASK, sim.workflow, sim.runs, scheduler=scheduler, now=sim.now)


def _results(sim: SchedulerSimulator) -> dict[str, Any]:
    """Timers write the time."""
    timed = any(node.type in {"delay", "schedule"} for node in sim.workflow.nodes)
    return {
        path: (run.status, {} if timed else dict(node_output(run)), run.error)
        for path, run in sim.runs.items()
        if parse_activation(path)
    }


@_law
@given(workflows(parallel=1), st.integers(0, 99), st.integers(0, 10_000))
def test_a_rerun_keeps_what_came_before_and_repeats_the_rest(
    workflow: Workflow, seed: int, pick: int
) -> None:
    assume(not list(find_issues(workflow)))
    note(dump_text(workflow))
    sim = SchedulerSimulator(workflow, work=by_path, seed=seed)
    end = sim.run()
    ran = sorted(
        path
        for path, run in sim.runs.items()
        if parse_activation(path) and run.status is NodeStatus.DONE and not is_unreached(run)
    )
    assume(ran)
    before, told, wanted = dict(sim.runs), _results(sim), ran[pick % len(ran)]
    note(f"from {wanted}")
    try:
        made = _rerun(sim, wanted)
    except RerunRefused as refused:
        assume(refused.key not in {"several_loops", "not_awaited"})
        raise
    gone = {run.path for run in made.discarded}
    _adopt(sim, made)

    assert wanted in gone
    for path, run in before.items():
        place = parse_activation(path)
        if place is None or path in gone or run.status is NodeStatus.FAILED:
            continue
        is_around = sim.workflow.nodes_by_id[place.node].body and wanted.startswith(f"{path}[")
        assert is_around or sim.runs[path] == run
    assert all(run.attempt <= attempts_before(sim.runs) for run in made.discarded)
    note(f"discarded {sorted(gone)}")
    assert sim.run() == end
    # What fails at once may end the run before the node starts.
    if end == "done":
        assert _results(sim) == told
