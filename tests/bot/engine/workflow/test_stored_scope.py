"""An expression sees in a stored run what the node saw when it began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from bot.engine.workflow.checkpoint_events import CheckpointEvent, NextAction, StepsStarted
from bot.engine.workflow.definition import Workflow
from bot.engine.workflow.named_workflows import parse_workflow_text
from bot.engine.workflow.node_runs import scope_of
from bot.engine.workflow.stored_scope import stored_names
from bot.engine.workflow.validation import find_issues
from storage.records.tasks import NodeRun, RerunRefused
from tests.bot.engine.workflow.random_workflows import by_path, workflows
from tests.bot.engine.workflow.transition_simulator import TransitionSimulator, make_task

_ZONE = ZoneInfo("Asia/Shanghai")
_law = settings(phases=[Phase.generate])
LOOPS = """\
name: Loops
inputs: [{name: topic, default: cats}]
nodes:
  - {id: draft, name: Draft}
  - {id: check, name: Check}
  - {id: each, type: foreach, collection: "[1, 2]", body: [read, note]}
  - {id: read, name: Read}
  - {id: note, name: Note}
  - {id: send, name: Send}
edges:
  - {from: draft, to: check}
  - {from: check, to: draft, condition: "!outputs.check.ok", maxLoops: 3}
  - {from: check, to: each, condition: outputs.check.ok}
  - {from: read, to: note}
  - {from: each, to: send}
"""
COUNTERS = """\
name: Counters
variables: {n: 0, at: 0}
nodes:
  - {id: add, type: script, expression: variables.n + 1, outputVar: n}
  - {id: ask, name: Ask, prompt: "{{variables.n}}"}
  - {id: burst, type: loop, mode: for, start: 1, end: 12, body: [double]}
  - {id: double, type: script, expression: variables.n * 2, outputVar: n}
  - {id: each, type: foreach, collection: "[1, 2]", body: [keep, say]}
  - {id: keep, type: assign, assignments: [{variable: at, value: item, isExpression: true}]}
  - {id: say, name: Say}
  - {id: last, type: script, expression: "variables.n + 1", outputVar: n}
  - {id: send, name: Send}
edges:
  - {from: add, to: ask}
  - {from: ask, to: add, condition: "!outputs.ask.ok", maxLoops: 3}
  - {from: ask, to: burst, condition: outputs.ask.ok}
  - {from: burst, to: each}
  - {from: keep, to: say}
  - {from: each, to: last}
  - {from: last, to: send}
"""


@dataclass
class _Recorder(TransitionSimulator):
    """`seen` has the names of each step's scope as it last began, by its path."""

    seen: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def commit(self, event: CheckpointEvent) -> NextAction:
        action = super().commit(event)
        if isinstance(action, StepsStarted) and self.state is not None:
            for step in action.steps:
                scope = scope_of(step.node.id)
                names = self.state.scheduler.context(scope, self.now).names
                self.seen[step.node.id] = _plain(names)
        return action


def _plain(names: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        name: dict(value) if isinstance(value, Mapping) else value for name, value in names.items()
    }


def _names(
    workflow: Workflow, runs: Mapping[str, NodeRun], node: str, now: datetime
) -> Mapping[str, Any]:
    return stored_names(make_task(), workflow, runs, node, now=now, zone=_ZONE)[1]


@_law
@given(workflows(parallel=1), st.integers(0, 99))
def test_the_scope_of_each_step_is_what_it_saw_when_it_began(workflow: Workflow, seed: int) -> None:
    assume(not list(find_issues(workflow)))
    sim = _Recorder(workflow, work=by_path, seed=seed)

    sim.run()

    for path, seen in sim.seen.items():
        assert _plain(_names(workflow, sim.runs, path, sim.now)) == seen, path


def test_a_finished_a_running_and_a_failed_run_are_seen_with_their_rounds() -> None:
    workflow = parse_workflow_text(LOOPS)
    answers = {"check": {"ok": False, "n": 1}, "check#2": {"ok": True, "n": 2}}

    def work(node: Any, _names: Any, path: str) -> Any:
        return answers.get(path, f"did {path}")

    sim = _Recorder(workflow, work=work)
    sim.run()
    assert set(sim.seen) > {"check#2", "each#2[1]/note"}
    for path, seen in sim.seen.items():
        assert _plain(_names(workflow, sim.runs, path, sim.now)) == seen, path
    first = _names(workflow, sim.runs, "draft#2", sim.now)
    assert (first["outputs"]["check"]["n"], first["loopCount"]) == (1, 1)
    assert _names(workflow, sim.runs, "Note", sim.now)["item"] == 2

    failing = _Recorder(
        workflow, work=lambda n, s, p: "!no" if p == "each#2[1]/note" else work(n, s, p)
    )
    assert failing.run().startswith("failed")
    assert _names(workflow, failing.runs, "note", sim.now)["outputs"]["read"]["result"] == (
        "did each#2[1]/read"
    )
    assert _names(workflow, failing.runs, "", sim.now)["nodeStates"]["each"] == "waiting"

    running = _Recorder(workflow, work=work)
    running.claim()
    running.end_step("draft", "one")
    now = _names(workflow, running.runs, "", running.now)
    assert (now["outputs"]["draft"]["result"], now["nodeStates"]["check"]) == ("one", "running")
    for unknown, key in (("nobody", "unknown_node"), ("send", "not_reached")):
        with pytest.raises(RerunRefused) as refused:
            _names(workflow, running.runs, unknown, running.now)
        assert refused.value.key == key


def test_variables_are_those_that_the_step_saw_also_of_many_assignments_at_one_moment() -> None:
    workflow = parse_workflow_text(COUNTERS)
    answers = {"ask": {"ok": False}, "ask#2": {"ok": True}}
    sim = _Recorder(workflow, work=lambda _node, _names, path: answers.get(path, path))

    sim.run()

    assert [sim.seen[path]["variables"]["n"] for path in ("ask", "ask#2")] == [1, 2]
    for path, seen in sim.seen.items():
        assert _plain(_names(workflow, sim.runs, path, sim.now)) == seen, path
    assert sim.seen["send#2"]["variables"] == {"n": 2 * 2**12 + 1, "at": 2}
