"""The transition at a checkpoint, driven without a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, assume, given, note, settings
from hypothesis import strategies as st

from bot.engine.workflow.checkpoint_events import ReasonChanged, Started, StepsStarted, Woken
from bot.engine.workflow.definition import OnError, Workflow, WorkflowNode
from bot.engine.workflow.node_runs import (
    EXHAUSTED_EDGE_KEY,
    UNDECIDED_KEY,
    is_finished,
    parse_activation,
)
from bot.engine.workflow.run_state import ChangeSet
from bot.engine.workflow.step_approvals import CreateRequest, FindNewest, WithdrawRequests
from bot.engine.workflow.validation import find_issues
from storage.records.approvals import ApprovalState
from storage.records.tasks import EventKind, NodeStatus, TaskControl, TaskPhase, TaskStatus
from tests.bot.engine.workflow.builders import make_step, make_workflow
from tests.bot.engine.workflow.random_workflows import by_path, dump_text, workflows
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator
from tests.bot.engine.workflow.transition_simulator import TransitionSimulator, make_task

_TURNS = 2_000
_law = settings(phases=[Phase.generate])


class StrictSimulator(TransitionSimulator):
    """Compares the rows of each transition with what was stored before."""

    def store(self, changes: ChangeSet) -> None:
        for path, run in changes.runs.items():
            before = self.runs.get(path)
            if parse_activation(path) and is_finished(before) and before is not None:
                is_halted = {EXHAUSTED_EDGE_KEY, UNDECIDED_KEY} & before.output.keys()
                assert is_halted, f"{path} is done twice"
            assert run.status is not NodeStatus.RUNNING or path in {
                started.path for started, _ in changes.started
            }
        assert len(changes.started) == sum(
            kind is EventKind.STEP_STARTED for kind, _ in changes.events
        ) + sum(run.output.get("decided_by") is not None for run in changes.ended)
        super().store(changes)


def _valid(workflow: Workflow) -> Workflow:
    assume(not list(find_issues(workflow)))
    note(dump_text(workflow))
    return workflow


def _finished(runs: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        path: run.status
        for path, run in runs.items()
        if parse_activation(path) and is_finished(run)
    }


@_law
@given(workflows(), st.integers(0, 99))
def test_every_workflow_ends_as_its_scheduler_alone_would_end_it(
    workflow: Workflow, seed: int
) -> None:
    alone = SchedulerSimulator(_valid(workflow), work=by_path)
    whole = StrictSimulator(workflow, work=by_path, rollbacks=0.3, seed=seed)

    expected, end = alone.run(_TURNS), whole.run(_TURNS)

    assert (expected == "done") == (end == "completed")
    assert expected == "done" or expected.endswith(whole.task.status_reason)
    assert _finished(alone.runs) == _finished(whole.runs)


@_law
@given(workflows(parallel=3), st.integers(0, 99))
def test_a_task_that_is_taken_up_again_and_again_ends_and_repeats_no_finished_step(
    workflow: Workflow, seed: int
) -> None:
    sim = StrictSimulator(_valid(workflow), work=by_path, crashes=0.2, rollbacks=0.2, seed=seed)

    end = sim.run(_TURNS)

    assert end == "completed" or end.startswith("failed: ")
    assert sim.max_parallel <= 3
    assert sim.task.phase is TaskPhase.ENDED
    assert sum(kind in {EventKind.COMPLETED, EventKind.FAILED} for kind, _ in sim.events) == 1


def test_between_two_plain_steps_the_store_is_asked_nothing() -> None:
    sim = StrictSimulator(make_workflow("a b", "a b"))
    sim.claim()
    sim.events.clear()

    action = sim.end_step("a", "did a")

    assert isinstance(action, StepsStarted)
    assert [step.node.id for step in action.steps] == ["b"]
    assert sim.events == [(EventKind.STEP_DONE, ""), (EventKind.STEP_STARTED, "b")]
    assert sim.calls == []


def test_a_node_that_goes_through_several_states_is_stored_once() -> None:
    sim = StrictSimulator(make_workflow((make_step("ask", "human"), "b"), "ask b"))
    sim.claim()
    sim.approve(*sim.waiting())
    sim.task = replace(sim.task, status=TaskStatus.RUNNING)
    sim.state = None

    outcome = sim.decide(Started())

    assert {path: run.status for path, run in outcome.changes.runs.items()} == {
        "ask": NodeStatus.DONE,
        "b": NodeStatus.RUNNING,
    }
    assert [run.path for run, _ in outcome.changes.started] == ["ask", "b"]
    assert [run.path for run in outcome.changes.ended] == ["ask"]


def test_a_question_withdraws_older_ones_before_it_is_asked() -> None:
    sim = TransitionSimulator(make_workflow((make_step("ask", "human"),)))

    sim.claim()

    assert [type(call) for call in sim.calls] == [FindNewest, WithdrawRequests, CreateRequest]
    assert (sim.task.status, sim.events[-1]) == (
        TaskStatus.WAITING,
        (EventKind.WAITING, sim.waiting()[0].id),
    )


def _asking_beside_a_step() -> TransitionSimulator:
    workflow = make_workflow((make_step("ask", "human"), "a", "b"), parallel=2)
    return TransitionSimulator(replace(workflow, edges=()))


def test_a_request_beside_running_steps_is_announced_once_a_lease() -> None:
    sim = _asking_beside_a_step()

    sim.claim()
    sim.commit(Woken())
    sim.claim()

    assert sim.events.count((EventKind.WAITING, sim.waiting()[0].id)) == 2


def test_an_announcement_that_was_rolled_back_is_made_again() -> None:
    sim = _asking_beside_a_step()
    sim.claim()
    sim.rollbacks = 1.0

    sim.claim()

    assert sim.events.count((EventKind.WAITING, sim.waiting()[0].id)) == 2


@pytest.mark.parametrize(
    ("on_error", "end", "runs"),
    [
        (OnError.FAIL, "blocked: not now", {}),
        (OnError.SKIP, "completed", {"s1": NodeStatus.SKIPPED}),
    ],
)
def test_a_refused_step_blocks_the_task_unless_its_failure_is_tolerated(
    on_error: OnError, end: str, runs: Mapping[str, NodeStatus]
) -> None:
    deploy = WorkflowNode(id="s1", title="deploy it", on_error=on_error)
    sim = TransitionSimulator(make_workflow((deploy,)))
    sim.claim()
    (asked,) = sim.waiting()
    sim.approvals[asked.id] = replace(asked, state=ApprovalState.REJECTED, reason="not now")

    assert sim.run() == end
    assert {path: run.status for path, run in sim.runs.items()} == runs


@pytest.mark.parametrize(
    ("control", "status"),
    [(TaskControl.PAUSE, TaskStatus.PAUSED), (TaskControl.YIELD, TaskStatus.PENDING)],
)
def test_an_ordered_pause_gives_the_slot_back_after_the_running_step(
    control: TaskControl, status: TaskStatus
) -> None:
    sim = StrictSimulator(make_workflow("a b", "a b"))
    sim.claim()
    assert sim.state is not None
    sim.state.task = replace(sim.state.task, control=control)

    action = sim.end_step("a", "did a")

    assert action is None
    assert sim.task.status is status
    assert [kind for kind, _ in sim.events[-2:]] == [EventKind.STEP_DONE, EventKind.PAUSED]
    assert "b" not in sim.runs


def test_a_reason_that_somebody_else_gave_stays_on_the_card() -> None:
    sim = TransitionSimulator(make_workflow("a"), task=make_task(status_reason="asked"))
    before = sim.task

    outcome = sim.decide(ReasonChanged("", "goes on", replaces="unreachable"))

    assert (outcome.changes.events, outcome.changes.task) == ([], {})
    assert sim.state is not None
    assert sim.state.task == before
