"""A planner's answer becomes a valid workflow or is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from bot.engine.llm.answer_schemas import PlanAnswer, PlanStep
from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.expressions.evaluator import fill_template, find_placeholders
from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.plan import is_chain, linear_workflow
from bot.engine.workflow.planner import find_json, plan_from_answer, plan_from_text
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator
from tests.case_tables import all_cases

REVIEW = {
    "nodes": [
        {"id": "write", "name": "Write", "prompt": "Write it"},
        {"id": "review", "name": "Review", "agent": "Reviewer"},
        {"id": "fix", "name": "Fix"},
        {"id": "send", "name": "Send"},
    ],
    "edges": [
        {"from": "write", "to": "review"},
        {"from": "review", "to": "send", "condition": "outputs.review.approved == true"},
        {"from": "review", "to": "fix", "condition": "else"},
        {"from": "fix", "to": "review"},
    ],
}


def answered(workflow: Any, **more: Any) -> Workflow:
    text = workflow if isinstance(workflow, str) else json.dumps(workflow)
    return plan_from_answer(PlanAnswer(workflow=text, **more))


def test_steps_in_order_are_the_linear_form() -> None:
    steps = [PlanStep(title="one", detail="do"), PlanStep(title="two", kind="ask")]

    assert plan_from_answer(PlanAnswer(plan="So.", steps=steps)) == linear_workflow(
        "So.",
        [
            WorkflowNode(id="s1", title="one", detail="do"),
            WorkflowNode(id="s2", title="two", type="human"),
        ],
    )


def test_steps_in_order_are_plain_words_and_no_templates() -> None:
    step = PlanStep(title="Look at ${HOME}", detail="run `echo ${X:-y}`")

    (node,) = plan_from_answer(PlanAnswer(plan="So.", steps=[step])).nodes

    assert list(find_placeholders(f"{node.title} {node.detail}")) == []
    assert fill_template(node.detail, {}, pytest.fail) == step.detail


def test_words_alone_are_the_answer() -> None:
    assert plan_from_answer(PlanAnswer(answer="It is {42}.")) == Workflow(
        plan="", answer="It is {42}."
    )


def test_an_example_of_json_in_an_answer_is_no_plan() -> None:
    answer = 'Write this:\n```json\n{"key": "value"}\n```'

    assert plan_from_text(answer).answer == answer


def test_a_workflow_within_an_answer_is_one() -> None:
    answer = f"I suggest:\n```json\n{json.dumps(REVIEW)}\n```\nGood?"

    assert plan_from_text(answer) == answered(REVIEW)


def test_an_edge_back_is_bounded_by_five() -> None:
    workflow = answered(REVIEW, plan="Until it is good.")

    back = next(edge for edge in workflow.edges if edge.source == "fix")
    assert [edge for edge in workflow.edges if edge.max_loops] == [back]
    assert back.max_loops == 5
    assert workflow.plan == "Until it is good."


@pytest.mark.parametrize("good_after", [0, 2, 5])
def test_what_is_reviewed_is_fixed_until_it_is_good(good_after: int) -> None:
    sim = SchedulerSimulator(
        answered(REVIEW),
        work=lambda node, _, __: {
            "approved": node.id == "review" and _count_rounds(sim) > good_after
        },
    )

    assert sim.run() == "done"
    assert _count_rounds(sim) == good_after + 1


def test_what_never_gets_good_ends_with_a_reason() -> None:
    sim = SchedulerSimulator(answered(REVIEW), work=lambda node, _, __: {"approved": False})

    assert "edge_limit" in sim.run() or "dead_end" in sim.run()
    assert _count_rounds(sim) == 6


def _count_rounds(sim: SchedulerSimulator) -> int:
    return len([path for path in sim.started if path.startswith("review")])


def test_one_node_is_one_step() -> None:
    workflow = answered({"nodes": [{"id": "a", "name": "A", "prompt": "do"}]}, plan="So.")

    assert workflow == linear_workflow("So.", [WorkflowNode(id="a", title="A", detail="do")])


def test_steps_in_order_with_a_start_and_an_end_are_the_linear_form() -> None:
    nodes = [{"id": "s", "type": "start"}, {"id": "b"}, {"id": "a"}, {"id": "e", "type": "end"}]
    edges = [{"from": one, "to": two} for one, two in ("sa", "ab", "be")]
    workflow = answered({"nodes": nodes, "edges": edges})

    assert is_chain(workflow)
    assert [node.id for node in workflow.nodes] == ["a", "b"]


def test_branches_stay_branches() -> None:
    nodes = [{"id": "p", "type": "parallel"}, {"id": "a"}, {"id": "b"}]
    edges = [{"from": "p", "to": "a"}, {"from": "p", "to": "b"}]
    workflow = answered({"nodes": nodes, "edges": edges})

    assert workflow.parallel == 3
    assert [node.id for node in workflow.nodes] == ["start", "p", "a", "b", "end"]


@pytest.mark.parametrize(
    "text",
    [
        "{'nodes': [{'id': 'a', 'name': 'A',},],}",
        '```json\n{"nodes": [{"id": "a", "name": "A"}]}\n```',
        "nodes:\n  - {id: a, name: A}\n",
        "# x\n## Tasks\n### 1. A\n",
    ],
)
def test_a_workflow_is_read_however_it_is_written(text: str) -> None:
    assert [node.title for node in answered(text).nodes] == ["A"]


def test_some_models_give_the_object_itself() -> None:
    answer = PlanAnswer.model_validate({"workflow": REVIEW})

    assert plan_from_answer(answer) == answered(REVIEW)


def test_nobody_is_asked_for_inputs_while_a_task_is_planned() -> None:
    assert answered({**REVIEW, "inputs": [{"name": "who"}]}).inputs == ()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"nodes": [{"id": "a"}], "edges": [{"from": "a", "to": "z"}]}', "a→z.target"),
        ('{"nodes": [{"id": "a", "type": "teleport"}]}', "a.type"),
        ('{"nodes": [{"id": "a"', "bad_json"),
        ("so it goes", "no_workflow"),
    ],
)
def test_a_workflow_that_cannot_be_run_is_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidGraph, match=fault):
        answered(text)


def test_an_answer_that_says_nothing_is_none() -> None:
    with pytest.raises(ValidationError, match="at least one step"):
        PlanAnswer(plan="Hm.")


@pytest.mark.parametrize("none", [None, "", "null", "None", "{}", {}, []])
def test_a_word_for_no_workflow_is_none(none: Any) -> None:
    answer = PlanAnswer.model_validate({"answer": "It is 42.", "workflow": none})

    assert plan_from_answer(answer) == Workflow(plan="", answer="It is 42.")


JSON_CASES: dict[str, tuple[str, Any]] = {
    "bare": ('{"a": 1}', {"a": 1}),
    "fenced": ('Here:\n```json\n{"a": 1}\n```\nDone.', {"a": 1}),
    "fenced without a word": ('```\n{"a": 1}\n```', {"a": 1}),
    "the last fence": ('```json\n{"a": 1}\n```\nBetter:\n```json\n{"a": 2}\n```', {"a": 2}),
    "a fence of code behind it": ('```json\n{"a": 1}\n```\n```python\n{"b"}\n```', {"a": 1}),
    "among words": ('I take {"a": {"b": 2}} for that.', {"a": {"b": 2}}),
    "braces within texts": ('So: {"a": "}{", "b": 1}.', {"a": "}{", "b": 1}),
    "the longest among words": ('{"a": 1} and {"b": [1, 2, 3]} too', {"b": [1, 2, 3]}),
    "a comma too many": ('{"a": [1, 2,], "b": 3,}', {"a": [1, 2], "b": 3}),
    "comments": ('{"a": 1, // one\n /* two */ "b": 2 # three\n}', {"a": 1, "b": 2}),
    "no comment in a text": ('{"a": "http://x", "b": 1,}', {"a": "http://x", "b": 1}),
    "single quotes": ("{'a': 'it is', 'b': True}", {"a": "it is", "b": True}),
    "an escaped single quote": (r"{'a': 'it\'s'}", {"a": "it's"}),
    "curly quotes": ("{“a”: “b”}", {"a": "b"}),
    "quotes within": ('{"a": "say "hi" to her", "b": 1}', {"a": 'say "hi" to her', "b": 1}),
    "a new line within": ('{"a": "one\ntwo"}', {"a": "one\ntwo"}),
    "other control characters": ('{"a": "one\ttwo\x07",}', {"a": "one\ttwo\x07"}),
    "names without quotes": ("{a: 1, b: yes}", {"a": 1, "b": "yes"}),
    "words of Python": ("{'a': None, 'b': False}", {"a": None, "b": False}),
    "a backslash for itself": (r'{"a": "C:\work\d"}', {"a": r"C:\work\d"}),
}


@all_cases("name", JSON_CASES)
def test_json_is_found_and_mended(name: str) -> None:
    text, expected = JSON_CASES[name]

    assert find_json(text) == expected


@pytest.mark.parametrize("text", ["", "It is 42.", "Use {name} here.", "if (a) { b }", "[1, 2]"])
def test_words_without_json_hold_none(text: str) -> None:
    assert find_json(text) is None


@pytest.mark.parametrize(
    "text", ['```json\n{"a": /* 1}\n```', '```json\n{"a": \n```', '{"a": 1 "b": [}', '{"a": }']
)
def test_json_that_is_beyond_mending_is_refused(text: str) -> None:
    with pytest.raises(InvalidGraph, match="bad_json"):
        find_json(text)


@pytest.mark.parametrize(
    "text", ["{" * 100_000, '{"' * 50_000, "{'a': " * 20_000, "{/* " * 20_000, '"\\' * 50_000]
)
def test_hostile_answers_take_no_time_to_speak_of(text: str) -> None:
    assert find_json(text) is None
