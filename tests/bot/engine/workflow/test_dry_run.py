"""A dry run takes the path of a real one with the same outputs, and tells its workers the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import RunPurpose
from bot.engine.workflow import checkpoint_events as events
from bot.engine.workflow.definition import Workflow
from bot.engine.workflow.dry_run import (
    DryRun,
    DryRunConditions,
    GivenResults,
    OutputMisfit,
    dry_run,
)
from bot.engine.workflow.named_workflows import parse_workflow_text, prepare_run
from bot.engine.workflow.node_runs import parse_activation, taken_edges
from bot.engine.workflow.nodes.contract import NodeRole
from bot.engine.workflow.presentation.drawing import render_svg
from bot.engine.workflow.serialization.reader import parse_text
from bot.engine.workflow.subworkflows import expand
from bot.engine.workflow.validation import find_issues
from bot.engine.workflow.workflow_cases import read_given
from cards.catalog import catalog_for
from cards.views.dry_runs import dry_run_lines
from storage.records.dry_runs import DryRunEnd, WorkflowDryRun
from storage.records.people import Language
from storage.records.tasks import NodeRun, NodeStatus, TaskStatus
from tests.bot.engine.workflow.integration.workflow_world import PacedBackend, workflow_world
from tests.bot.engine.workflow.random_workflows import by_path, workflows
from tests.bot.engine.workflow.scheduler_simulator import START
from tests.bot.engine.workflow.transition_simulator import TransitionSimulator, make_task

_law = settings(phases=[Phase.generate])
CONDITIONS = DryRunConditions(
    words=catalog_for(Language.ENGLISH),
    now=START,
    zone=ZoneInfo("Asia/Shanghai"),
    max_context_tokens=120_000,
    approval_lifetime=timedelta(days=7),
    risk_words=("deploy",),
)
NOTE = """\
name: Release note
inputs: [{name: topic}]
nodes:
  - {id: write, name: Write, prompt: "A note on {{inputs.topic}}"}
  - {id: review, name: Review, output: {approved: bool, notes: {type: text, required: false}}}
  - {id: fix, name: Fix, prompt: "Mind: {{outputs.review.notes}}", deliverables: [note.md]}
  - {id: sign, type: human, name: Sign it}
  - {id: send, name: Deploy it}
edges:
  - {from: write, to: review}
  - {from: review, to: sign, condition: outputs.review.approved}
  - {from: review, to: fix}
  - {from: fix, to: review, maxLoops: 2, onLimit: fail}
  - {from: sign, to: send}
outputs: {note: outputs.write, sent: outputs.send}
"""


class ResultsByPath(GivenResults):
    """What the steps of the simulator bring."""

    def find(self, node: str, label: str, times: int) -> Any:
        if node not in self.outputs:
            return None
        brought = by_path(self.outputs[node], {}, label)
        return {"error": brought[1:]} if isinstance(brought, str) else brought


class PathLabels(DryRun):
    def _label(self, path: str) -> str:
        return path


def paths(runs: Mapping[str, NodeRun]) -> Mapping[str, Any]:
    return {
        path: (run.status.value, sorted(taken_edges(run) or ()))
        for path, run in runs.items()
        if parse_activation(path) and run.status is not NodeStatus.PENDING
    }


@_law
@given(workflows(), st.integers(0, 99))
def test_a_dry_run_takes_the_path_of_a_real_one(workflow: Workflow, seed: int) -> None:
    assume(not list(find_issues(workflow)))
    # The simulator lets those with a timeout expire.
    assume(all(node.spec.answer_timeout(node.settings) is None for node in workflow.nodes))
    real = TransitionSimulator(workflow, work=by_path, seed=seed, crashes=0.2)
    steps = {
        node.id: node for node in workflow.nodes if node.role in (NodeRole.TASK, NodeRole.CALL)
    }
    dry = PathLabels(workflow, make_task(), ResultsByPath(outputs=steps), CONDITIONS)

    end = real.run(4_000)
    found = dry.run("w")

    assume(found.end is not DryRunEnd.UNDECIDED)
    assert paths(dry.state.runs) == paths(real.runs)
    assert (found.end is DryRunEnd.COMPLETED) == (end == TaskStatus.COMPLETED)


def run_note(outputs: Mapping[str, Any], **decisions: bool) -> WorkflowDryRun:
    workflow = parse_workflow_text(NOTE)
    values = {"topic": "otters"}
    prepared = prepare_run("note", workflow, values)
    given_ = GivenResults(outputs=outputs, decisions=decisions)
    return dry_run("note", replace(workflow, values=values), prepared, given_, CONDITIONS)


def test_given_outputs_choose_the_edges_and_reach_the_prompts() -> None:
    found = run_note(
        {
            "write": "Otters hold hands.",
            "review": [{"approved": False, "notes": "Too short"}, {"approved": True}],
            "send": "Sent.",
        }
    )

    by = {each.label: each for each in found.nodes}
    assert found.end is DryRunEnd.COMPLETED
    assert found.path == ("write", "review", "fix", "review#2", "sign", "send")
    assert (by["review"].taken, by["review#2"].taken) == (("fix",), ("sign",))
    assert "A note on otters" in by["write"].prompt
    assert "Mind: Too short" in by["fix"].prompt
    assert "Files that must be there when it is done: note.md" in by["fix"].prompt
    assert "You are a worker of Shiftboss" in by["fix"].system
    assert found.outputs == {"note": "Otters hold hands.", "sent": "Sent."}
    assert found.not_given == ("fix", "sign")
    assert [each.label for each in found.nodes if each.asks] == ["sign", "send"]
    assert found.cost is not None
    assert 0 < found.cost.least_input < found.cost.most_input
    assert found.cost.most_output == 5 * 32_000


@pytest.mark.parametrize(
    ("decisions", "way"),
    [
        ("outputs.look.size: big", "print"),
        ("outputs.look.size: 3", "mail"),
        ("outputs.look.size: false", "file"),
        ("'outputs.look.size == \"big\"': true", "print"),
        ("{}", "undecided"),
    ],
)
def test_a_case_of_a_switch_is_chosen_by_a_decision(decisions: str, way: str) -> None:
    workflow = parse_workflow_text(
        """\
name: Sort
nodes:
  - {id: look, name: Look}
  - {id: which, type: switch, expression: outputs.look.size, default: file,
     cases: {big: print, 3: mail}}
  - {id: print, name: Print}
  - {id: mail, name: Mail}
  - {id: file, name: File}
edges: [{from: look, to: which}]
"""
    )
    data = parse_text(f"outputs: {{look: I am torn.}}\ndecisions:\n  {decisions}\n")
    given_ = read_given(data, workflow)
    found = dry_run("sort", workflow, prepare_run("sort", workflow, {}), given_, CONDITIONS)

    assert (found.path[-1] if found.end is DryRunEnd.COMPLETED else found.end) == way


@pytest.mark.parametrize(
    ("outputs", "end", "path", "told"),
    [
        ({"review": {"approved": True}, "sign": False}, "blocked", "sign", ""),
        ({"write": {"error": "no pen"}}, "failed", "write", "no pen"),
        ({"review": {"approved": False}}, "failed", "fix#3", "limit of returns"),
        ({}, "undecided", "review", "approved"),
    ],
)
def test_it_ends_as_a_run_would_and_says_why(
    outputs: Mapping[str, Any], end: str, path: str, told: str
) -> None:
    found = run_note(outputs)

    assert found.end == end
    assert found.path[-1] == path
    assert told in f"{found.reason} {found.undecided}"


def test_an_answer_decides_what_is_open_and_a_wrong_output_is_told() -> None:
    assert run_note({}, **{"outputs.review.approved": True}).end is DryRunEnd.COMPLETED
    with pytest.raises(OutputMisfit, match="approved"):
        run_note({"review": {"approved": "perhaps"}})


RACE = """\
name: Race
nodes:
  - {id: fork, type: parallel}
  - {id: check, name: Check}
  - {id: write, name: Write}
  - {id: side, type: human, name: Side}
  - {id: review, name: Review, output: {good: bool}}
  - {id: one, name: One}
  - {id: two, name: Two}
  - {id: late, name: Late}
  - {id: never, name: Never}
  - {id: meet, type: join, join: any, cancelOthers: true}
  - {id: last, name: Last}
edges:
  - {from: fork, to: check}
  - {from: fork, to: write}
  - {from: fork, to: one}
  - {from: fork, to: late}
  - {from: check, to: meet, condition: outputs.check.approved}
  - {from: write, to: review}
  - {from: write, to: side}
  - {from: side, to: meet}
  - {from: review, to: write, condition: not outputs.review.good, maxLoops: 3}
  - {from: review, to: meet}
  - {from: late, to: never}
  - {from: never, to: meet}
  - {from: one, to: two}
  - {from: two, to: meet}
  - {from: meet, to: last}
settings: {maxParallel: 2}
"""


class LateResults(DryRun):
    """Cancelled steps bring a result all the same."""

    def _commit(self, event: events.CheckpointEvent) -> events.NextAction:
        before = dict(self._running)
        action = super()._commit(event)
        for path, step in before.items():
            if self.state.runs[path].status is NodeStatus.CANCELLED:
                done = replace(step.run, status=NodeStatus.DONE, ended_at=self._now)
                late = super()._commit(events.StepEnded(run=done, title="", reply=None))
                assert isinstance(late, events.StepsStarted)
                assert not late.steps
        return action


def test_what_a_join_cancels_asks_nobody_and_takes_no_late_result() -> None:
    """When `two` arrives, `check` has left a condition open, `review` wants another round, `side`
    is asked, `late` runs and `never` has not begun."""
    prepared = prepare_run("race", parse_workflow_text(RACE), {})
    outputs = {"check": "Perhaps.", "review": {"good": False}}
    dry = LateResults(
        parse_workflow_text(RACE), make_task(), GivenResults(outputs=outputs), CONDITIONS
    )

    found = dry.run(prepared.title)

    by = {each.label: each for each in found.nodes}
    assert found.end is DryRunEnd.COMPLETED, found
    cancelled = {name for name, each in by.items() if each.status is NodeStatus.CANCELLED}
    assert cancelled == {"side", "late", "never"}
    assert "late" in found.path
    assert not {"never", "write#2"} & {*found.path}
    assert found.path[-1] == "last"


async def test_a_worker_is_told_what_the_dry_run_says(tmp_path: Path) -> None:
    answers = {
        "Write": StepAnswer(status="done", summary="Otters hold hands."),
        "Review": StepAnswer(status="done", summary="approved: true"),
        "Send it": StepAnswer(status="done", summary="Sent."),
    }
    text = NOTE.replace("Deploy it", "Send it").replace(
        ", output: {approved: bool, notes: {type: text, required: false}}", ""
    )
    workflow = replace(
        parse_workflow_text(
            text.replace("sign, type: human, name: Sign it", "sign, name: Sign it")
        ),
        values={"topic": "otters"},
    )
    backend = PacedBackend()
    backend.answers |= answers
    async with workflow_world(tmp_path, backend) as here:
        task = await here.engine.run_workflow(workflow)
        await here.engine.until(task, TaskStatus.COMPLETED)
        real = [each for each in backend.requests if each.purpose is RunPurpose.STEP]
        outputs = {
            run.path: run.output["summary"]
            for run in (await here.runs(task)).values()
            if "summary" in run.output
        }
    dry = DryRun(workflow, task, GivenResults(outputs=outputs), CONDITIONS).run("w")

    assert [each.prompt for each in dry.nodes if each.prompt] == [each.prompt for each in real]


def test_the_limit_of_a_sub_workflow_is_shown_and_drawn() -> None:
    inner = parse_workflow_text(
        "name: Inner\nnodes: [{id: x, name: X}]\nsettings: {timeout: 90m}\n"
    )
    text = "name: Outer\nnodes: [{id: sub, type: subworkflow, workflow: inner}]\n"
    whole = expand(parse_workflow_text(text), lambda _name, _version: inner)

    found = dry_run("outer", whole, prepare_run("outer", whole, {}), GivenResults(), CONDITIONS)

    words = catalog_for(Language.ENGLISH)
    (line,) = [each for each in dry_run_lines(found, words, prompts=False) if "`sub`" in each]
    assert "sub-workflow · at most 1 h 30 min" in line
    assert "at most 1 h 30 min" in render_svg(whole, words)
