"""What a planner answers becomes a workflow, or is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from bot.engine.llm.answers import PlanAnswer, PlanStep
from bot.engine.workflow.expressions.templates import fill, holes
from bot.engine.workflow.forms.answers import workflow_in, workflow_of
from bot.engine.workflow.graph import is_chain, linear
from bot.engine.workflow.model.faults import BadGraph
from bot.engine.workflow.model.shape import Node, Workflow
from tests.bot.engine.workflow.routing.sim import Sim

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
    return workflow_of(PlanAnswer(workflow=text, **more))


def test_steps_in_order_are_the_linear_form() -> None:
    steps = [PlanStep(title="one", detail="do"), PlanStep(title="two", kind="ask")]

    assert workflow_of(PlanAnswer(plan="So.", steps=steps)) == linear(
        "So.",
        [Node(id="s1", title="one", detail="do"), Node(id="s2", title="two", type="human")],
    )


def test_steps_in_order_are_plain_words_and_no_templates() -> None:
    step = PlanStep(title="Look at ${HOME}", detail="run `echo ${X:-y}`")

    (node,) = workflow_of(PlanAnswer(plan="So.", steps=[step])).nodes

    assert list(holes(f"{node.title} {node.detail}")) == []
    assert fill(node.detail, {}, pytest.fail) == step.detail


def test_words_alone_are_the_answer() -> None:
    assert workflow_of(PlanAnswer(answer="It is {42}.")) == Workflow(plan="", answer="It is {42}.")


def test_an_example_of_json_in_an_answer_is_no_plan() -> None:
    answer = 'Write this:\n```json\n{"key": "value"}\n```'

    assert workflow_in(answer).answer == answer


def test_a_workflow_within_an_answer_is_one() -> None:
    answer = f"I suggest:\n```json\n{json.dumps(REVIEW)}\n```\nGood?"

    assert workflow_in(answer) == answered(REVIEW)


def test_an_edge_back_is_bounded_by_five() -> None:
    workflow = answered(REVIEW, plan="Until it is good.")

    back = next(edge for edge in workflow.edges if edge.source == "fix")
    assert [edge for edge in workflow.edges if edge.max_loops] == [back]
    assert back.max_loops == 5
    assert workflow.plan == "Until it is good."


@pytest.mark.parametrize("good_after", [0, 2, 5])
def test_what_is_reviewed_is_fixed_until_it_is_good(good_after: int) -> None:
    sim = Sim(
        answered(REVIEW),
        work=lambda node, _, __: {"approved": node.id == "review" and _times(sim) > good_after},
    )

    assert sim.run() == "done"
    assert _times(sim) == good_after + 1


def test_what_never_gets_good_ends_with_a_reason() -> None:
    sim = Sim(answered(REVIEW), work=lambda node, _, __: {"approved": False})

    assert "edge_limit" in sim.run() or "dead_end" in sim.run()
    assert _times(sim) == 6


def _times(sim: Sim) -> int:
    return len([path for path in sim.begun if path.startswith("review")])


def test_one_node_is_one_step() -> None:
    workflow = answered({"nodes": [{"id": "a", "name": "A", "prompt": "do"}]}, plan="So.")

    assert workflow == linear("So.", [Node(id="a", title="A", detail="do")])


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

    assert workflow_of(answer) == answered(REVIEW)


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
    with pytest.raises(BadGraph, match=fault):
        answered(text)


def test_an_answer_that_says_nothing_is_none() -> None:
    with pytest.raises(ValidationError, match="at least one step"):
        PlanAnswer(plan="Hm.")


@pytest.mark.parametrize("none", [None, "", "null", "None", "{}", {}, []])
def test_a_word_for_no_workflow_is_none(none: Any) -> None:
    answer = PlanAnswer.model_validate({"answer": "It is 42.", "workflow": none})

    assert workflow_of(answer) == Workflow(plan="", answer="It is 42.")
