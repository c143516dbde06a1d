"""Pure parts of the working method: keywords, and subtasks by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.tasks.journal_recall import MAX_KEYWORDS, extract_keywords
from bot.engine.tasks.task_journal import append_subtasks, find_subtask, split_subtask_name
from bot.engine.workflow.definition import Workflow, WorkflowEdge, WorkflowNode
from bot.engine.workflow.plan import linear_workflow
from bot.engine.workflow.validation import validate_workflow
from storage.errors import AmbiguousId, NotFound

PLAN = append_subtasks(linear_workflow("", ()), ("build it", "build", "测试：单元", "2024", "ship"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Write the report about Berlin to it.md", ("report", "berlin", "it.md")),
        ("写一首关于排队的俳句保存到 haiku.md", ("排队", "俳句", "haiku.md")),
        ("查一下飞书接口限制", ("飞书", "接口", "限制")),
        ("to a an of 的 了 12 34", ()),
        ("alpha beta gamma delta epsilon zeta", ("alpha", "beta", "gamma", "delta", "epsilon")),
    ],
)
def test_keywords_are_what_an_instruction_is_about(text: str, words: tuple[str, ...]) -> None:
    assert extract_keywords(text)[: len(words)] == words
    assert bool(extract_keywords(text)) is bool(words)


@given(st.text())
def test_keywords_are_few_and_each_stands_in_the_text(text: str) -> None:
    found = extract_keywords(text)

    assert len(found) == len(set(found)) <= MAX_KEYWORDS
    assert all(word in text.lower() for word in found)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("build", "build"),
        ("BUILD IT", "build it"),
        ("build i", "build it"),
        ("测试：单元", "测试：单元"),
        ("测", "测试：单元"),
        ("1", "build it"),
        ("#2", "build"),
        ("2024", "2024"),
        ("“ship”", "ship"),
    ],
)
def test_a_subtask_is_named_in_many_ways(name: str, title: str) -> None:
    assert find_subtask(PLAN, {}, name).title == title


@pytest.mark.parametrize("name", ["", "0", "9", "nothing", "%"])
def test_what_names_nothing_is_not_found(name: str) -> None:
    with pytest.raises(NotFound):
        find_subtask(PLAN, {}, name)


def test_a_beginning_of_several_is_ambiguous() -> None:
    plan = append_subtasks(linear_workflow("", ()), ("test one", "test two"))

    with pytest.raises(AmbiguousId) as several:
        find_subtask(plan, {}, "test")

    assert several.value.candidates == ("test one", "test two")


@pytest.mark.parametrize(
    ("said", "title", "rest"),
    [
        ("build it linking now", "build it", "linking now"),
        ("build linking now", "build", "linking now"),
        ('"build" it all', "build", "it all"),
        ("「测试：单元」 写到一半", "测试：单元", "写到一半"),
        ("5 packed", "ship", "packed"),
        ("sh", "ship", ""),
    ],
)
def test_the_longest_name_that_a_text_begins_with_is_meant(
    said: str, title: str, rest: str
) -> None:
    node, text = split_subtask_name(PLAN, {}, said)

    assert (node.title, text) == (title, rest)


def test_new_subtasks_follow_all_that_a_branching_plan_has() -> None:
    plan = validate_workflow(
        Workflow(
            plan="",
            nodes=(
                WorkflowNode(id="s1", title="a"),
                WorkflowNode(id="s2", title="b"),
                WorkflowNode(id="s3", title="c"),
            ),
            edges=(WorkflowEdge(source="s1", target="s2"), WorkflowEdge(source="s1", target="s3")),
        )
    )

    longer = append_subtasks(plan, ("d", "e"))

    new = {(edge.source, edge.target) for edge in longer.edges} - {
        (edge.source, edge.target) for edge in plan.edges
    }
    assert new == {("s2", "s4"), ("s3", "s4"), ("s4", "s5")}
