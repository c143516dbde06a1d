"""Whatever is read, it is a workflow that can be run or is refused; what is written is the same."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bot.engine.llm.answers import PlanAnswer
from bot.engine.workflow.expressions.templates import fill
from bot.engine.workflow.forms.answers import workflow_in, workflow_of
from bot.engine.workflow.forms.completing import completed
from bot.engine.workflow.forms.durations import seconds_in
from bot.engine.workflow.forms.faults import told
from bot.engine.workflow.forms.reading import from_data, read
from bot.engine.workflow.forms.sense import not_meant
from bot.engine.workflow.forms.writing import written
from bot.engine.workflow.graph import dump_workflow, load_workflow
from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.faults import BadGraph
from bot.engine.workflow.model.nodes import NodeType, Retry
from bot.engine.workflow.model.references import unknown_in
from bot.engine.workflow.model.shape import Input, Node, Workflow
from bot.engine.workflow.model.validate import faults_of
from cards.words import words_for
from storage.records.people import Language
from tests.bot.engine.workflow.routing.graphs import workflows
from tests.thorough import sampled

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
        workflow = read(text)
    except BadGraph as bad:
        lines = [told(bad.faults, words_for(language)) for language in Language]
        if not all(lines):
            pytest.fail("it was refused without a reason")
    else:
        assert not list(faults_of(workflow))
        json.dumps(written(workflow)).encode()


@settings(max_examples=sampled(2_000, 150), deadline=None)
@given(value=VALUES)
def test_any_json_is_a_workflow_or_refused(value: Any) -> None:
    runs_or_is_refused(json.dumps(value))


@settings(max_examples=sampled(3_000, 200), deadline=None)
@given(value=GRAPHS)
def test_anything_like_a_graph_is_a_workflow_or_refused(value: Any) -> None:
    runs_or_is_refused(json.dumps(value))


@settings(max_examples=sampled(3_000, 200), deadline=None)
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


@settings(max_examples=sampled(2_000, 150), deadline=None)
@given(value=GRAPHS, cut=st.integers(0, 400), around=st.sampled_from(("{}", "```json\n{}\n```")))
def test_any_answer_is_a_workflow_or_refused(value: Any, cut: int, around: str) -> None:
    text = around.replace("{}", json.dumps(value)[:cut])
    for read_answer in (workflow_in, _answered):
        with suppress(BadGraph):
            assert not list(faults_of(read_answer(text)))


def _answered(text: str) -> Workflow:
    return workflow_of(PlanAnswer(workflow=text or "x"))


def _told(workflow: Workflow, name: str, note: str) -> Workflow:
    first = replace(
        workflow.nodes[0],
        detail=note,
        persona="tester",
        timeout=90.5,
        repeatable=False,
        auto_wait=True,
        retry=Retry(max_attempts=2, backoff_ms=10, multiplier=1.5),
    )
    if first.type == NodeType.HUMAN:
        first = replace(first, timeout=None)
    choice = Input(name="where", kind="choice", options=("x", "y"), default="x", required=False)
    return replace(
        workflow,
        name=name,
        plan=note,
        nodes=(first, *workflow.nodes[1:]),
        inputs=(Input(name="who", title="Who"), choice),
        outputs={"out": "outputs.n1"},
        timeout=3_600.0,
    )


@settings(max_examples=sampled(1_000, 80), deadline=None)
@given(
    workflow=workflows(parallel=2),
    name=st.sampled_from(("x", "Wöchentlicher Bericht", "周报")),
    note=st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=50),
)
def test_what_is_written_is_read_as_the_same(workflow: Workflow, name: str, note: str) -> None:
    whole = completed(_told(workflow, name, note.replace("{", "")))
    assume(not [*faults_of(whole), *unknown_in(whole), *not_meant(whole)])

    data = written(whole)

    assert read(json.dumps(data)) == whole
    assert read(yaml.safe_dump(data, allow_unicode=True)) == whole
    assert completed(whole) == whole
    assert load_workflow(json.loads(json.dumps(dump_workflow(whole)))) == whole


def test_each_type_of_node_is_written_and_read_as_the_same() -> None:
    kept = Workflow(
        plan="All of them.",
        name="all",
        nodes=(
            Node(id="start", title="start", type=NodeType.START),
            Node(id="wait", title="w", type="schedule", config=nodes.Schedule(cron="0 9 * * 1")),
            Node(
                id="at",
                title="at",
                type="schedule",
                config=nodes.Schedule(at="2027-01-01T00:00", timezone="Asia/Shanghai"),
            ),
            Node(
                id="ask",
                title="?",
                type="human",
                config=nodes.Human(assignee=("Bo", "Doe, Ann"), timeout=60),
            ),
            Node(id="rest", title="r", type="delay", config=nodes.Delay(seconds=1.5)),
            Node(
                id="pick",
                title="p",
                type="switch",
                config=nodes.Switch(
                    expression="1",
                    cases=(
                        nodes.Case(value=1, target="set"),
                        nodes.Case(value="default", target="set"),
                    ),
                    default="end",
                ),
            ),
            Node(
                id="set",
                title="s",
                type="assign",
                config=nodes.Assign(
                    assignments=(
                        nodes.Assignment(variable="v", value={"a": [1, None]}),
                        nodes.Assignment(variable="w", value="1 + 1", is_expression=True),
                    )
                ),
            ),
            Node(id="end", title="end", type=NodeType.END),
        ),
    )
    kept = replace(kept, edges=read(json.dumps({**written(kept), "edges": _CHAIN})).edges)

    assert read(json.dumps(written(kept))) == kept


_CHAIN = [
    {"from": one, "to": two}
    for one, two in (
        ("start", "wait"), ("wait", "at"), ("at", "ask"), ("ask", "rest"), ("rest", "pick"),
        ("set", "end"),
    )
]  # fmt: skip


def test_a_template_that_grows_to_megabytes_is_cut() -> None:
    text = "{{variables.big}}" * 5_000
    data = {"name": "x", "variables": {"big": ""}, "nodes": [{"id": "a", "prompt": text}]}
    node = from_data(data).by_id["a"]

    filled = fill(node.detail, {"variables": {"big": "x" * 100_000}}, warn=pytest.fail)

    assert len(filled) <= 200_000


@given(value=st.text(max_size=30) | st.floats() | st.integers() | st.none() | st.booleans())
def test_any_duration_is_seconds_or_none(value: Any) -> None:
    seconds = seconds_in(value)

    assert seconds is None or isinstance(seconds, int | float)
