"""Any text is read as a valid workflow or refused; written workflows are read as the same."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from bot.engine.llm.answer_schemas import PlanAnswer
from bot.engine.workflow.definition import (
    RetryPolicy,
    Workflow,
    WorkflowNode,
    dump_workflow,
    load_workflow,
)
from bot.engine.workflow.expressions.evaluator import fill_template
from bot.engine.workflow.field_reader import InvalidGraph, parse_duration
from bot.engine.workflow.input_fields import InputDefinition
from bot.engine.workflow.nodes.assign import AssignConfig
from bot.engine.workflow.nodes.delay import DelayConfig
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.nodes.schedule import ScheduleConfig
from bot.engine.workflow.nodes.shared_settings import VariableAssignment
from bot.engine.workflow.nodes.switch import SwitchCase, SwitchConfig
from bot.engine.workflow.plan import linear_workflow
from bot.engine.workflow.planner import format_issues, plan_from_answer, plan_from_text
from bot.engine.workflow.serialization.data_parser import dump_yaml
from bot.engine.workflow.serialization.reader import (
    complete_workflow,
    read_workflow,
    workflow_from_data,
    workflow_to_data,
)
from bot.engine.workflow.validation import (
    find_authoring_mistakes,
    find_issues,
    find_unknown_references,
)
from cards.catalog import catalog_for
from storage.records.people import Language
from tests.bot.engine.workflow.random_workflows import workflows
from tests.thoroughness import sampled

FIELDS = (
    "id", "type", "name", "nodes", "edges", "prompt", "from", "to", "condition", "maxLoops",
    "loop", "foreach", "switch", "cases", "value", "targetNode", "bodyNodes", "collection",
    "timeout", "retry", "settings", "inputs", "outputs", "variables", "schedule", "cron",
    "timezone", "datetime", "delay", "unit", "join", "mode", "n", "assign", "assignments",
    "expression", "human", "onError", "autoWait", "options", "default", "init", "end", "step",
)  # fmt: skip
WORDS = (
    "a", "b", "start", "end", "loop", "foreach", "task", "switch", "delay", "true", "1h", "{{a}}",
    "outputs.a", "* * * * *", "0 0 1 1 *", "UTC", "2027-01-01", "all", "n", "while", "", "\ud800",
    "\0", "a" * 70, "9" * 25, "-1",
)  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=8), inner, max_size=5)
    ),
    max_leaves=30,
)
NODE = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4).flatmap(
    lambda more: st.builds(
        lambda name, kind: {**more, "id": name, "type": kind},
        st.sampled_from(("a", "b", "c")),
        st.sampled_from([*NodeType]) | st.sampled_from(WORDS),
    )
)
EDGE = st.fixed_dictionaries(
    {"from": st.sampled_from(("a", "b", "c")), "to": st.sampled_from(("a", "b", "c", "d"))},
    optional={"condition": VALUES, "maxLoops": VALUES, "id": VALUES},
)
GRAPHS = st.fixed_dictionaries(
    {"name": st.just("x"), "nodes": st.lists(NODE, max_size=4)},
    optional={"edges": st.lists(EDGE, max_size=5), "inputs": VALUES, "settings": VALUES},
)


def runs_or_is_refused(text: str) -> None:
    try:
        workflow = read_workflow(text)
    except InvalidGraph as bad:
        lines = [format_issues(bad.issues, catalog_for(language)) for language in Language]
        if not all(lines):
            pytest.fail("it was refused without a reason")
    else:
        assert not list(find_issues(workflow))
        json.dumps(workflow_to_data(workflow)).encode()


@settings(max_examples=sampled(2_000, 80), deadline=None)
@given(value=VALUES)
def test_any_json_is_a_workflow_or_refused(value: Any) -> None:
    runs_or_is_refused(json.dumps(value))


@settings(max_examples=sampled(3_000, 100), deadline=None)
@given(value=GRAPHS)
def test_anything_like_a_graph_is_a_workflow_or_refused(value: Any) -> None:
    runs_or_is_refused(json.dumps(value))


@settings(max_examples=sampled(3_000, 100), deadline=None)
@given(
    text=st.text(max_size=300)
    | st.lists(
        st.sampled_from(
            ("# x\n", "## Tasks\n", "### 1. a\n", "- Depends: 1\n", "- Type: loop\n", "## Loops\n",
             "a -> a (when b, at most 2 times)\n", "name: x\n", "nodes:\n", "- id: a\n", "  - ",
             "{", "}", "[", "]", "&a ", "*a ", "!!x ", "|\n", "```\n", "\t", '"', "---\n", "? ")
        )
    ).map("".join)
)  # fmt: skip
def test_any_text_is_a_workflow_or_refused(text: str) -> None:
    runs_or_is_refused(text)


@settings(max_examples=sampled(2_000, 80), deadline=None)
@given(value=GRAPHS, cut=st.integers(0, 400), around=st.sampled_from(("{}", "```json\n{}\n```")))
def test_any_answer_is_a_workflow_or_refused(value: Any, cut: int, around: str) -> None:
    text = around.replace("{}", json.dumps(value)[:cut])
    for read_answer in (plan_from_text, _answered_plan):
        with suppress(InvalidGraph):
            assert not list(find_issues(read_answer(text)))


def _answered_plan(text: str) -> Workflow:
    return plan_from_answer(PlanAnswer(workflow=text or "x"))


def _with_note(workflow: Workflow, name: str, note: str) -> Workflow:
    first = replace(
        workflow.nodes[0],
        detail=note,
        persona="tester",
        timeout=90.5,
        repeatable=False,
        auto_wait=True,
        retry=RetryPolicy(max_attempts=2, backoff_ms=10, multiplier=1.5),
    )
    if first.type == NodeType.HUMAN:
        first = replace(first, timeout=None)
    choice = InputDefinition(
        name="where", kind="choice", options=("x", "y"), default="x", required=False
    )
    return replace(
        workflow,
        name=name,
        plan=note,
        nodes=(first, *workflow.nodes[1:]),
        inputs=(InputDefinition(name="who", title="Who"), choice),
        outputs={"out": "outputs.n1"},
        timeout=3_600.0,
    )


_LONE_STEP = linear_workflow("one", [WorkflowNode(id="n1", title="n1")])


@settings(max_examples=sampled(1_000, 50), deadline=None)
@given(
    workflow=workflows(parallel=2),
    name=st.sampled_from(("x", "Wöchentlicher Bericht", "周报")),
    note=st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=50),
)
@example(workflow=_LONE_STEP, name="x", note="1E5")
@example(workflow=_LONE_STEP, name="x", note="0o17")
@example(workflow=_LONE_STEP, name="x", note="yes")
def test_what_is_written_is_read_as_the_same(workflow: Workflow, name: str, note: str) -> None:
    whole = complete_workflow(_with_note(workflow, name, note.replace("{", "")))
    assume(
        not [*find_issues(whole), *find_unknown_references(whole), *find_authoring_mistakes(whole)]
    )

    data = workflow_to_data(whole)

    assert read_workflow(json.dumps(data)) == whole
    assert read_workflow(dump_yaml(data)) == whole
    assert complete_workflow(whole) == whole
    assert load_workflow(json.loads(json.dumps(dump_workflow(whole)))) == whole


def test_each_type_of_node_is_written_and_read_as_the_same() -> None:
    kept = Workflow(
        plan="All of them.",
        name="all",
        nodes=(
            WorkflowNode(id="start", title="start", type=NodeType.START),
            WorkflowNode(
                id="wait",
                title="w",
                type="schedule",
                config=ScheduleConfig(cron="0 9 * * 1"),
            ),
            WorkflowNode(
                id="at",
                title="at",
                type="schedule",
                config=ScheduleConfig(at="2027-01-01T00:00", timezone="Asia/Shanghai"),
            ),
            WorkflowNode(
                id="ask",
                title="?",
                type="human",
                config=HumanConfig(assignee=("Bo", "Doe, Ann"), timeout=60),
            ),
            WorkflowNode(id="rest", title="r", type="delay", config=DelayConfig(seconds=1.5)),
            WorkflowNode(
                id="pick",
                title="p",
                type="switch",
                config=SwitchConfig(
                    expression="1",
                    cases=(
                        SwitchCase(value=1, target="set"),
                        SwitchCase(value="default", target="set"),
                    ),
                    default="end",
                ),
            ),
            WorkflowNode(
                id="set",
                title="s",
                type="assign",
                config=AssignConfig(
                    assignments=(
                        VariableAssignment(variable="v", value={"a": [1, None]}),
                        VariableAssignment(variable="w", value="1 + 1", is_expression=True),
                    )
                ),
            ),
            WorkflowNode(id="end", title="end", type=NodeType.END),
        ),
    )
    kept = replace(
        kept,
        edges=read_workflow(json.dumps({**workflow_to_data(kept), "edges": _CHAIN_NODES})).edges,
    )

    assert read_workflow(json.dumps(workflow_to_data(kept))) == kept


_CHAIN_NODES = [
    {"from": one, "to": two}
    for one, two in (
        ("start", "wait"), ("wait", "at"), ("at", "ask"), ("ask", "rest"), ("rest", "pick"),
        ("set", "end"),
    )
]  # fmt: skip


def test_a_template_that_grows_to_megabytes_is_cut() -> None:
    text = "{{variables.big}}" * 5_000
    data = {"name": "x", "variables": {"big": ""}, "nodes": [{"id": "a", "prompt": text}]}
    node = workflow_from_data(data).nodes_by_id["a"]

    filled = fill_template(node.detail, {"variables": {"big": "x" * 100_000}}, warn=pytest.fail)

    assert len(filled) <= 200_000


@given(value=st.text(max_size=30) | st.floats() | st.integers() | st.none() | st.booleans())
def test_any_duration_is_seconds_or_none(value: Any) -> None:
    seconds = parse_duration(value)

    assert seconds is None or isinstance(seconds, int | float)
