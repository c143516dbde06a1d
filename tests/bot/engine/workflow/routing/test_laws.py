"""What holds for every workflow that can be run, whatever happens to the program meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import Phase, assume, given, note, settings
from hypothesis import strategies as st

from bot.engine.workflow.model.shape import Workflow
from bot.engine.workflow.model.validate import faults_of
from bot.engine.workflow.routing.flow import Flow
from bot.engine.workflow.routing.marks import EXHAUSTED, brought, is_over
from bot.engine.workflow.routing.paths import place_of
from storage.records.tasks import NodeRun, NodeStatus
from tests.bot.engine.workflow.routing.graphs import by_path, told, workflows
from tests.bot.engine.workflow.routing.sim import Sim

_TURNS = 2_000
_law = settings(phases=[Phase.generate])
"""An example is told in a few lines; to make it smaller would take minutes where it has no end."""


class Strict(Sim):
    """Holds what was stored against what may not change any more, and, with `again`, the flow
    against one that is made anew from what was stored."""

    again: bool = False

    def turn(self) -> str | None:
        end = super().turn()
        if self.again and end is None:
            while rows := self.flow.settle(self.now, 50):
                self._store(*rows)
            fresh = self._new()
            assert fresh.settle(self.now, 1_000) == ()
            assert _state(fresh) == _state(self.flow)
        return end

    def _store(self, *runs: NodeRun) -> None:
        for run in runs:
            before = self.runs.get(run.path)
            if place_of(run.path) and is_over(before) and before is not None:
                assert EXHAUSTED in before.output, f"{run.path} is done twice"
        super()._store(*runs)


def _state(flow: Flow) -> Mapping[str, Any]:
    return {
        "steps": sorted(place.path for place, _ in flow.steps()),
        "complete": flow.is_complete,
        "failed": flow.failed and flow.failed.path,
        "stuck": flow.why_stuck(),
        "waits": flow.waits,
        "wakes": flow.wakes_at,
        "running": flow.running,
    }


def _results(sim: Sim) -> Mapping[str, Any]:
    return {
        path: (run.status.value, dict(brought(run)), run.error)
        for path, run in sim.runs.items()
        if place_of(path) and run.status is not NodeStatus.PENDING
    }


def _valid(workflow: Workflow) -> Workflow:
    assume(not list(faults_of(workflow)))
    note(told(workflow))
    return workflow


@_law
@given(workflows(parallel=3), st.integers(0, 99))
def test_each_ends_or_says_why_it_cannot_go_on_and_does_nothing_twice(
    workflow: Workflow, seed: int
) -> None:
    sim = Strict(_valid(workflow), work=by_path, seed=seed)

    end = sim.run(_TURNS)

    assert end == "done" or end.startswith(("failed: ", "stuck: workflow."))
    assert len(sim.begun) == len(set(sim.begun))
    assert sim.most_at_once <= 3
    assert not sim.flow.running


@_law
@given(workflows(), st.integers(0, 99))
def test_who_dies_on_the_way_brings_the_same_in_the_end(workflow: Workflow, seed: int) -> None:
    quiet = Strict(_valid(workflow), work=by_path)
    stormy = Strict(workflow, work=by_path, crashes=0.4, seed=seed, at_once=1 + seed % 3)

    ends = quiet.run(_TURNS), stormy.run(_TURNS)

    assert ends[0] == ends[1]
    assert _results(quiet) == _results(stormy)


@_law
@given(workflows(parallel=3), st.integers(0, 99))
def test_made_anew_at_any_moment_it_stands_where_it_stood(workflow: Workflow, seed: int) -> None:
    sim = Strict(_valid(workflow), work=by_path, seed=seed)
    sim.again = True

    assert sim.run(_TURNS)
