"""Invariants of every valid workflow, with crashes at any moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import Phase, assume, given, note, settings
from hypothesis import strategies as st

from bot.engine.workflow.definition import Workflow
from bot.engine.workflow.node_runs import (
    EXHAUSTED_EDGE_KEY,
    is_finished,
    node_output,
    parse_activation,
)
from bot.engine.workflow.scheduler import WorkflowScheduler
from bot.engine.workflow.validation import find_issues
from storage.records.tasks import NodeRun, NodeStatus
from tests.bot.engine.workflow.random_workflows import by_path, dump_text, workflows
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator

_TURNS = 2_000
_law = settings(phases=[Phase.generate])
"""Examples are short, because shrinking endless ones takes minutes."""


class StrictSimulator(SchedulerSimulator):
    """Checks that stored runs never change, and, with `again`, that a scheduler rebuilt from the
    store agrees."""

    again: bool = False

    def turn(self) -> str | None:
        end = super().turn()
        if self.again and end is None:
            while rows := self.scheduler.advance(self.now, 50):
                self._store(*rows)
            fresh = self._new()
            assert fresh.advance(self.now, 1_000) == ()
            assert _state(fresh) == _state(self.scheduler)
        return end

    def _store(self, *runs: NodeRun) -> None:
        for run in runs:
            before = self.runs.get(run.path)
            if parse_activation(run.path) and is_finished(before) and before is not None:
                assert EXHAUSTED_EDGE_KEY in before.output, f"{run.path} is done twice"
        super()._store(*runs)


def _state(flow: WorkflowScheduler) -> Mapping[str, Any]:
    return {
        "steps": sorted(place.path for place, _ in flow.ready_steps()),
        "complete": flow.is_complete,
        "failed": flow.failed_run and flow.failed_run.path,
        "stuck": flow.stuck_reason(),
        "waits": flow.is_waiting,
        "wakes": flow.next_wake_at,
        "running": flow.running_paths,
    }


def _results(sim: SchedulerSimulator) -> Mapping[str, Any]:
    return {
        path: (run.status.value, dict(node_output(run)), run.error)
        for path, run in sim.runs.items()
        if parse_activation(path) and run.status is not NodeStatus.PENDING
    }


def _valid(workflow: Workflow) -> Workflow:
    assume(not list(find_issues(workflow)))
    note(dump_text(workflow))
    return workflow


@_law
@given(workflows(parallel=3), st.integers(0, 99))
def test_each_ends_or_says_why_it_cannot_go_on_and_does_nothing_twice(
    workflow: Workflow, seed: int
) -> None:
    sim = StrictSimulator(_valid(workflow), work=by_path, seed=seed)

    end = sim.run(_TURNS)

    assert end == "done" or end.startswith(("failed: ", "stuck: workflow."))
    assert len(sim.started) == len(set(sim.started))
    assert sim.max_parallel <= 3
    assert not sim.scheduler.running_paths


@_law
@given(workflows(), st.integers(0, 99))
def test_who_dies_on_the_way_brings_the_same_in_the_end(workflow: Workflow, seed: int) -> None:
    quiet = StrictSimulator(_valid(workflow), work=by_path)
    stormy = StrictSimulator(
        workflow, work=by_path, crashes=0.4, seed=seed, moves_per_turn=1 + seed % 3
    )

    ends = quiet.run(_TURNS), stormy.run(_TURNS)

    assert ends[0] == ends[1]
    assert _results(quiet) == _results(stormy)


@_law
@given(workflows(parallel=3), st.integers(0, 99))
def test_made_anew_at_any_moment_it_stands_where_it_stood(workflow: Workflow, seed: int) -> None:
    sim = StrictSimulator(_valid(workflow), work=by_path, seed=seed)
    sim.again = True

    assert sim.run(_TURNS)
