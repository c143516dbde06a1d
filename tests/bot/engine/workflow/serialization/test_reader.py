"""Alternative spellings of a workflow are read as the same workflow."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.limit_overrides import LimitOverrides
from bot.engine.workflow.definition import (
    OnError,
    RetryPolicy,
    Workflow,
    dump_workflow,
    load_workflow,
)
from bot.engine.workflow.field_reader import parse_duration
from bot.engine.workflow.input_fields import InputDefinition
from bot.engine.workflow.nodes.contract import NodeRole, OnLimit
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.serialization.reader import (
    read_workflow,
    workflow_from_data,
    workflow_to_data,
)
from tests.bot.engine.workflow.builders import read_node
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator


def read_nodes(*listed: Any, **more: Any) -> Workflow:
    return read_workflow(json.dumps({"name": "x", "nodes": list(listed), **more}))


def edge_pairs(workflow: Workflow) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in workflow.edges}


DOCS = Path(__file__).parents[5] / "docs" / "workflows.md"
A, B, C = {"id": "a"}, {"id": "b"}, {"id": "c"}


def test_one_task_is_enough() -> None:
    workflow = read_nodes(A)

    assert [node.id for node in workflow.nodes] == ["start", "a", "end"]
    assert edge_pairs(workflow) == {("start", "a"), ("a", "end")}
    assert [edge.id for edge in workflow.edges] == ["e1", "e2"]


def test_nodes_without_edges_come_one_after_the_other() -> None:
    assert edge_pairs(read_nodes(A, B)) == {("start", "a"), ("a", "b"), ("b", "end")}


def test_a_start_leads_to_all_that_nothing_leads_to_and_an_end_follows_all_that_ends() -> None:
    workflow = read_nodes(A, B, C, edges=[{"from": "a", "to": "c"}])

    assert edge_pairs(workflow) == {
        ("start", "a"),
        ("start", "b"),
        ("a", "c"),
        ("b", "end"),
        ("c", "end"),
    }


def test_a_start_and_end_that_are_there_are_kept() -> None:
    begin, finish = {"id": "go", "type": "start"}, {"id": "over", "type": "end"}

    assert [node.id for node in read_nodes(begin, A, finish).nodes] == ["go", "a", "over"]


def test_edges_may_name_the_start_and_the_end_that_are_added() -> None:
    written = [("start", "a"), ("a", "b"), ("b", "end")]
    workflow = read_nodes(A, B, edges=[{"from": each, "to": to} for each, to in written])

    assert [(edge.source, edge.target) for edge in workflow.edges] == written


def test_a_name_that_is_taken_is_not_given_to_the_start() -> None:
    assert read_nodes({"id": "start"}).nodes[0].id == "start_2"


def test_what_only_leads_back_does_not_end_the_workflow() -> None:
    back = {"from": "b", "to": "a", "maxLoops": 3}
    workflow = read_nodes(A, B, C, edges=[{"from": "a", "to": "b"}, {"from": "a", "to": "c"}, back])

    assert ("b", "end") not in edge_pairs(workflow)
    assert ("c", "end") in edge_pairs(workflow)


@pytest.mark.parametrize(
    "block",
    [
        {"foreach": {"collection": "[1]", "bodyNodes": ["a"]}},
        {"config": {"collection": "{{[1]}}", "body": "a"}},
        {"foreachConfig": {"collection": [1], "body_nodes": ["a"]}},
        {"collection": "[1]", "bodyNodes": ["a"]},
    ],
)
def test_settings_stand_in_a_block_or_in_the_node(block: dict[str, Any]) -> None:
    node = read_node({"id": "f", "type": "foreach", **block}, A)

    assert node.config == ForeachConfig(collection="[1]", body=("a",))


def test_fields_have_several_names() -> None:
    one = read_node(
        {"id": "a", "name": "A", "prompt": "do", "persona": "Tester", "onError": "skip"}
    )
    two = read_node(
        {"id": "a", "title": "A", "description": "do", "agent": "Tester", "on_error": "SKIP"}
    )

    assert one == two
    assert (one.title, one.detail, one.persona, one.on_error) == ("A", "do", "Tester", OnError.SKIP)


@pytest.mark.parametrize("agent", ["auto", "None", ""])
def test_anybody_is_nobody_in_particular(agent: str) -> None:
    assert read_node({"id": "a", "agent": agent}).persona == ""


def test_an_edge_between_a_loop_and_its_body_says_nothing_new() -> None:
    loop = {"id": "l", "type": "loop", "loop": {"condition": "true", "bodyNodes": ["b"]}}
    edges = [{"from": "a", "to": "l"}, {"from": "l", "to": "b"}, {"from": "b", "to": "l"}]

    assert edge_pairs(read_nodes(A, loop, B, edges=edges)) == {
        ("start", "a"),
        ("a", "l"),
        ("l", "end"),
    }


def test_a_switch_gets_an_edge_to_each_of_its_targets() -> None:
    cases = [{"value": 1, "targetNode": "a"}, {"value": "default", "targetNode": "b"}]
    switch = {"id": "s", "type": "switch", "switch": {"expression": "1", "cases": cases}}
    workflow = read_nodes(switch, A, B)

    assert {("s", "a"), ("s", "b")} <= edge_pairs(workflow)


def test_a_condition_may_be_wrapped_or_say_else() -> None:
    edges = [
        {
            "from": "a",
            "to": "b",
            "when": "{{ outputs.a.ok }}",
            "onLimit": "ask",
            "maxLoops": 2,
        },
        {"from": "a", "to": "c", "condition": "else"},
    ]
    workflow = read_nodes(A, B, C, edges=edges)

    ways_out = [edge for edge in workflow.edges if edge.source == "a"]
    assert [edge.condition for edge in ways_out] == ["outputs.a.ok", ""]
    assert (ways_out[0].max_loops, ways_out[0].on_limit) == (2, OnLimit.ASK)


@pytest.mark.parametrize(
    ("nodes_", "most"),
    [
        ([A], 1),
        ([A, {"id": "p", "type": "parallel"}], 3),
        ([{"id": "f", "type": "foreach", "collection": "[1]", "bodyNodes": ["a"]}, A], 1),
        (
            [{"id": "f", "type": "foreach", "collection": "[1]", "bodyNodes": ["a"],
              "mode": "parallel"}, A],
            3,
        ),
    ],
)  # fmt: skip
def test_steps_run_at_once_where_branches_part(nodes_: list[Any], most: int) -> None:
    assert read_nodes(*nodes_).parallel == most


def test_settings_say_how_long_and_how_many_at_once() -> None:
    workflow = read_nodes(A, settings={"timeout": "2h", "maxParallel": 5})

    assert (workflow.timeout, workflow.parallel) == (7_200, 5)


def test_tries_are_a_number_or_a_group() -> None:
    retry = {"maxAttempts": 5, "backoffMs": 100, "backoffMultiplier": 3}

    assert read_node({"id": "a", "retries": 5}).retry == RetryPolicy(max_attempts=5)
    assert read_node({"id": "a", "retry": retry}).retry == RetryPolicy(
        max_attempts=5, backoff_ms=100, multiplier=3
    )


def test_inputs_are_a_list_or_by_name() -> None:
    workflow = read_nodes(A, inputs={"who": {"type": "string", "title": "Who?"}, "n": 3})

    assert workflow.inputs == (
        InputDefinition(name="who", title="Who?"),
        InputDefinition(name="n", kind="number", default=3, required=False),
    )


def test_notes_of_ones_own_are_no_faults() -> None:
    assert read_nodes({**A, "x": 10, "y": 20, "comment": "mine"}, notes="mine").name == "x"


def test_nodes_may_be_by_name_and_yaml_keeps_words_as_they_are() -> None:
    workflow = read_workflow(
        "name: no\nnodes:\n  on: {prompt: yes}\n  off: {type: delay, delay: 5m}\n"
    )

    assert workflow.name == "no"
    assert workflow.nodes_by_id["on"].detail == "yes"
    assert ("on", "off") in edge_pairs(workflow)


@pytest.mark.parametrize("fence", ["```json\n{}\n```", "~~~\n{}\n~~~", "\ufeff{}", "  \n{}\n"])
def test_a_fence_around_it_is_no_part_of_it(fence: str) -> None:
    text = json.dumps({"workflow": {"name": "x", "nodes": [A]}})

    assert read_workflow(fence.replace("{}", text)).name == "x"


def test_a_thousand_nodes_are_read() -> None:
    many = [{"id": f"n{n}", "prompt": "do it"} for n in range(1_000)]

    assert len(read_nodes(*many).nodes) == 1_002


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (90, 90), ("90", 90), ("90s", 90), ("1.5h", 5_400), ("1h 30m", 5_400), ("2 days", 172_800),
        ("500ms", 0.5), ("30分钟", 1_800), ("1小时30分", 5_400), ("1w", 604_800), ("soon", None),
        ("", None), ("5x", None), ("-5", None), (True, None), ([], None), (float("nan"), None),
    ],
)  # fmt: skip
def test_durations_are_written_as_people_do(text: object, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("kind", ["yaml", "markdown"])
def test_the_examples_of_the_documentation_are_read_and_lead_to_the_end(kind: str) -> None:
    text = DOCS.read_text(encoding="utf-8")
    section = text[text.index("## Format") :].split("\n## Named", 1)[0]
    examples = re.findall(rf"```{kind}\n(.*?)```", section, re.DOTALL)

    for example in examples:
        sim = SchedulerSimulator(
            read_workflow(example), work=lambda _, __, path: {"approved": "#2" in path, "ok": True}
        )
        # Nobody is there to send it.
        assert sim.run() in {
            "done",
            "failed: task-4#2: workflow.nobody_decided {'name': 'Send it?'}",
        }
    assert examples


def test_limits_are_written_as_they_are_read() -> None:
    limits = {"turns": 40, "tokens": 64_000, "seconds": "30m"}
    node = {"id": "a", "name": "A", "limits": limits}

    workflow = workflow_from_data({"name": "x", "nodes": [node]})

    (made,) = (each for each in workflow.nodes if each.id == "a")
    assert made.limits == LimitOverrides(turns=40, tokens=64_000, seconds=1_800.0)
    assert workflow_from_data(workflow_to_data(workflow)) == workflow
    assert load_workflow(dump_workflow(workflow)) == workflow


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "X", "nodes": [{"id": "a", "deliverables": ["out/a.md", "b.csv"]}]}',
        "name: X\nnodes:\n  - id: a\n    deliverables: out/a.md, b.csv",
        "# X\n## Tasks\n### 1. A\n- Deliverables: out/a.md, b.csv\n- Description: Do it",
        "# X\n## 任务\n### 1. A\n- 交付物：out/a.md、b.csv\n- 描述：做",
    ],
)
def test_deliverables_are_declared_in_each_format_and_written_as_read(text: str) -> None:
    made = read_workflow(text)
    task = next(node for node in made.nodes if node.role is NodeRole.TASK)

    assert task.deliverables == ("out/a.md", "b.csv")
    assert workflow_from_data(workflow_to_data(made)) == made
