"""A task's plan, kept to be run again."""

from __future__ import annotations

from dataclasses import replace

from bot.engine.workflow.forms.reading import read
from bot.engine.workflow.graph import Node, linear, load_workflow
from bot.engine.workflow.library.library import text_of
from bot.engine.workflow.library.template import ready, template_of
from bot.engine.workflow.model.shape import Input
from storage.records.tasks import TaskStatus
from tests.samples import a_task

PLAN = linear(
    "First look, then tell.",
    (
        Node(id="s1", title="Look", detail="Search: all of it"),
        Node(id="s2", title="Tell", given=True, repeatable=False),
    ),
)
TASK = replace(
    a_task("d0neab", TaskStatus.COMPLETED), title="Cats", instruction="Write about cats: all."
)


def test_a_kept_plan_reads_back_as_the_same_steps_without_what_became_of_them() -> None:
    ran = replace(PLAN, answer="It is done.", served=3, values={"x": 1})

    kept = read(text_of(template_of(TASK, ran)))

    steps = [node for node in kept.nodes if node.type not in {"start", "end"}]
    assert [(n.id, n.title, n.detail, n.repeatable, n.given) for n in steps] == [
        ("s1", "Look", "Search: all of it", True, False),
        ("s2", "Tell", "", False, False),
    ]
    assert (kept.name, kept.plan) == ("Cats", "First look, then tell.")
    assert (kept.answer, kept.served, kept.values) == ("", 0, {})


def test_run_again_it_is_about_the_same_thing_unless_somebody_says_another() -> None:
    kept = read(text_of(template_of(TASK, PLAN)))

    assert ready("cats", kept, {}).instruction == "Write about cats: all."
    assert ready("cats", kept, {"task": "Write about dogs."}).instruction == "Write about dogs."
    assert ready("cats", kept, {}).title == "Cats"


def test_a_workflow_that_asks_for_something_asks_for_the_same_when_kept_again() -> None:
    asks = replace(PLAN, inputs=(Input(name="topic"),), values={"topic": "cats"}, name="Topics")

    kept = template_of(TASK, asks)

    assert [each.name for each in kept.inputs] == ["topic"]
    assert kept.name == "Topics"
    assert load_workflow(ready("topics", kept, {"topic": "dogs"}).body).values == {"topic": "dogs"}
