# ruff: noqa: E501 - one node, one line
"""Sub-workflows: put in, run with names of their own, refused when they run themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.engine.workflow.checkpoint_events import StepsStarted, Woken
from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.expressions.evaluator import fill_template
from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.named_workflows import parse_workflow_text
from bot.engine.workflow.plan import insert_steps
from bot.engine.workflow.run_texts import format_outputs
from bot.engine.workflow.subworkflows import UnknownSubworkflow, collapse, expand
from storage.records.approvals import ApprovalState
from storage.records.tasks import NodeStatus, TaskStatus
from tests.bot.engine.workflow.integration.workflow_world import workflow_world
from tests.bot.engine.workflow.scheduler_simulator import START, SchedulerSimulator
from tests.bot.engine.workflow.transition_simulator import TransitionSimulator
from tests.engine_harness import BOSS
from tests.thoroughness import sampled

OUTER = """\
name: Outer
nodes:
  - {id: write, name: Write}
  - {id: n, type: assign, assignments: [{variable: n, value: 40}]}
  - {id: publish, type: subworkflow, workflow: publish, inputs: {note: "{{outputs.write}}", n: "{{variables.n}}"}}
  - {id: tell, name: "Tell {{outputs.publish.twice}} of {{variables.n}}"}
outputs: {all: outputs.publish.twice, note: outputs.publish.note}
"""
PUBLISH = """\
name: Publish
inputs: [{name: note}, {name: n, type: number}, {name: lang, default: en}]
variables: {n: 1}
nodes:
  - {id: check, name: "Check {{inputs.note}} {{inputs.lang}} {{variables.n}}"}
  - {id: n, type: assign, assignments: [{variable: n, value: inputs.n + variables.n, isExpression: true}]}
  - {id: fix, name: "Fix {{variables.n}}"}
  - {id: deep, type: subworkflow, workflow: deep, inputs: {x: "{{variables.n}}"}}
edges:
  - {from: check, to: fix, condition: outputs.check.bad == true}
  - {from: check, to: n}
  - {from: n, to: deep}
  - {from: fix, to: check, maxLoops: 2}
outputs: {twice: outputs.deep.y, note: inputs.note}
"""
DEEP = """\
name: Deep
inputs: [{name: x, type: number}]
nodes: [{id: y, type: script, expression: inputs.x * 2}]
outputs: {y: outputs.y}
"""


def library(**texts: str) -> Mapping[str, str]:
    return texts


def put_in(text: str, texts: Mapping[str, str], name: str = "outer") -> Workflow:
    def open_workflow(name: str, version: int | None) -> Workflow:
        if name not in texts:
            raise UnknownSubworkflow("unknown_version" if version else "unknown_workflow")
        return parse_workflow_text(texts[name])

    return expand(parse_workflow_text(text), open_workflow, name=name)


@pytest.mark.parametrize("crashes", [0.0, 0.3])
def test_a_sub_workflow_runs_with_names_of_its_own(crashes: float) -> None:
    workflow = put_in(OUTER, library(publish=PUBLISH, deep=DEEP))

    titles: list[str] = []

    def work(node: WorkflowNode, names: Mapping[str, Any], _path: str) -> str:
        titles.append(fill_template(node.title, names, pytest.fail))
        return "bad: false" if node.title.startswith("Check") else f"did {node.id}"

    for seed in range(sampled(50, 3)):
        run = SchedulerSimulator(workflow, work, seed=seed, crashes=crashes)
        assert run.run() == "done"
        assert "Check did write en 1" in titles
        assert titles[-1] == "Tell 82 of 40"
        assert format_outputs(run.scheduler, run.now) == "all: 82\nnote: did write"


def test_an_expanded_plan_can_be_changed_and_turned_back() -> None:
    written = parse_workflow_text(OUTER)
    workflow = put_in(OUTER, library(publish=PUBLISH, deep=DEEP))

    assert collapse(workflow) == written
    assert len(insert_steps(workflow, {}, ["More"]).nodes) == len(workflow.nodes) + 1


@pytest.mark.parametrize(
    ("text", "texts", "keys"),
    [
        (OUTER, {"publish": PUBLISH}, {"unknown_workflow"}),
        (OUTER, {"publish": OUTER}, {"no_such_input"}),
        (OUTER, {"publish": PUBLISH, "deep": DEEP.replace("name: x", "name: z").replace("inputs.x", "inputs.z")}, {"no_such_input", "input_missing"}),
        (
            OUTER.replace(', inputs: {note: "{{outputs.write}}", n: "{{variables.n}}"}', ""),
            {"publish": "name: P\nnodes: [{id: a, type: subworkflow, workflow: OUTER}]"},
            {"runs_itself"},
        ),
        (
            "name: A\nnodes: [{id: a, type: subworkflow, workflow: b}]",
            {"b": "name: B\nnodes: [{id: c, type: subworkflow, workflow: c}, {id: d, type: subworkflow, workflow: c}]",
             "c": "name: C\nnodes: [{id: b, type: subworkflow, workflow: b}]"},
            {"runs_itself"},
        ),
        (
            "name: A\nnodes: [{id: a, type: subworkflow, workflow: w0}]",
            {f"w{n}": f"name: W\nnodes: [{{id: a, type: subworkflow, workflow: w{n + 1}}}]" for n in range(9)},
            {"too_deep"},
        ),
        ("name: A\nnodes: [{id: a, type: subworkflow, workflow: b, version: 4}]", {}, {"unknown_version"}),
    ],
)  # fmt: skip
def test_what_cannot_be_put_in_is_refused(
    text: str, texts: Mapping[str, str], keys: set[str]
) -> None:
    with pytest.raises(InvalidGraph) as refused:
        put_in(text, texts)

    assert {each.key for each in refused.value.issues} == keys


@pytest.mark.parametrize(
    ("inputs", "end"),
    [
        ({"note": "x", "n": "many"}, "workflow.wrong_input"),
        ({"note": "{{outputs.nothing.there}}", "n": 1}, "workflow.no_value"),
        ({"note": "{{variables.empty}}", "n": 1}, "workflow.missing_input"),
    ],
)
def test_values_that_do_not_fit_fail_the_node(inputs: dict[str, str], end: str) -> None:
    workflow = put_in(OUTER, library(publish=PUBLISH, deep=DEEP))
    nodes = tuple(
        replace(node, config=replace(node.settings, inputs=inputs))
        if node.id == "publish"
        else node
        for node in workflow.nodes
    )
    workflow = replace(workflow, nodes=nodes, variables={"empty": ""})

    assert end in SchedulerSimulator(workflow).run()


def test_a_sub_workflow_that_reaches_no_end_is_a_dead_end_of_the_task() -> None:
    inner = """\
name: Inner
nodes: [{id: a, name: A}, {id: b, name: B}]
edges: [{from: a, to: b, condition: "variables.n > 1"}]
variables: {n: 1}
"""
    outer = "name: A\nnodes: [{id: a, type: subworkflow, workflow: b}, {id: z, name: Z}]"
    tolerant = outer.replace("workflow: b", "workflow: b, onError: continue")

    assert "dead_end" in SchedulerSimulator(put_in(outer, library(b=inner))).run()
    assert SchedulerSimulator(put_in(tolerant, library(b=inner))).run() == "done"


LATE = """\
name: Late
settings: {timeout: 10s}
nodes: [{id: look, name: Look}, {id: rest, type: delay, delay: {duration: 1h}}]
edges: [{from: look, to: rest}]
"""
AROUND = """\
name: Around
nodes:
  - {id: sub, name: Sub, type: subworkflow, workflow: late%s}
  - {id: tell, name: Tell}
edges: [{from: sub, to: tell}]
"""


def late_one(on_error: str = "") -> TransitionSimulator:
    return TransitionSimulator(put_in(AROUND % on_error, library(late=LATE), "around"))


def test_a_sub_workflow_that_is_out_of_time_ends_the_task_and_gets_its_time_anew() -> None:
    sim = late_one()
    action = sim.claim()
    assert isinstance(action, StepsStarted)
    assert action.wake_at == sim.now + timedelta(seconds=10)

    sim.now += timedelta(seconds=10)
    assert sim.commit(Woken()) is None

    assert sim.task.status is TaskStatus.FAILED
    assert sim.task.status_reason == "workflow.timed_out_inside {'name': 'Sub'}"
    sim.now += timedelta(days=1)
    assert isinstance(sim.claim(), StepsStarted), "it is tried again"
    sim.now += timedelta(seconds=9)
    sim.end_step("sub[0]/sub_look", "seen")
    assert sim.task.status is TaskStatus.FAILED, "its own wait takes too long"


@pytest.mark.parametrize("at", ["while a step runs", "while nothing runs"])
def test_a_workflow_that_tolerates_it_goes_on_without_a_sub_workflow_that_is_late(at: str) -> None:
    sim = late_one(", onError: continue")
    sim.claim()
    if at == "while nothing runs":
        sim.end_step("sub[0]/sub_look", "seen")
        assert (sim.task.status, sim.task.wake_at) == (
            TaskStatus.WAITING,
            START + timedelta(seconds=10),
        )
        sim.now = START + timedelta(seconds=10)
        action = sim.claim()
    else:
        sim.now += timedelta(seconds=10)
        action = sim.commit(Woken())

    assert isinstance(action, StepsStarted)
    assert [step.node.id for step in action.steps] == ["tell"]
    assert sim.runs["sub"].output["error"] == "workflow.timed_out_inside {'name': 'Sub'}"
    late = "sub[0]/sub_look" if at == "while a step runs" else "sub[0]/sub_rest"
    assert sim.runs[late].status is NodeStatus.CANCELLED
    if at == "while a step runs":
        sim.end_step(late, "too late")
        assert sim.runs[late].status is NodeStatus.CANCELLED
    sim.end_step("tell", "told")
    assert sim.task.status is TaskStatus.COMPLETED


def test_a_late_sub_workflow_takes_back_what_it_asks_people() -> None:
    asks = "name: Late\nsettings: {timeout: 10s}\nnodes: [{id: ok, name: OK, type: human}]"
    workflow = put_in(AROUND % ", onError: continue", library(late=asks), "around")
    sim = TransitionSimulator(workflow)
    sim.claim()
    (asked,) = sim.approvals
    assert sim.approvals[asked].state is ApprovalState.WAITING

    sim.now += timedelta(seconds=10)
    sim.claim()

    assert sim.approvals[asked].state is ApprovalState.EXPIRED


INNER_WAIT = """\
name: Late
settings: {timeout: 10m}
nodes: [{id: rest, type: delay, delay: {duration: 1h}}]
"""


@pytest.mark.parametrize(
    "workflow",
    [
        put_in(AROUND % "", library(late=INNER_WAIT), "around"),
        parse_workflow_text(INNER_WAIT),
    ],
    ids=["a sub-workflow", "the workflow"],
)
async def test_a_wait_that_goes_on_alone_after_a_retry_has_a_limit(
    tmp_path: Path, workflow: Workflow
) -> None:
    async with workflow_world(tmp_path) as here:
        made = await here.engine.run_workflow(workflow)
        await here.engine.until(made, TaskStatus.WAITING)
        await here.advance_clock(minutes=11)
        late = await here.engine.until(made)
        await here.advance_clock(minutes=11)
        await here.engine.tasks.retry(late.task, by=BOSS, source="r:1")
        waits = await here.engine.until(made, TaskStatus.WAITING)
        due = waits.task.wake_at
        await here.advance_clock(minutes=11)
        ended = await here.engine.until(made)

    assert late.task.status is TaskStatus.FAILED
    assert due is not None
    assert due - here.engine.clock.time < timedelta()
    assert ended.task.status is TaskStatus.FAILED
