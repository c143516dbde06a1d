"""Settings of steps for people."""

from __future__ import annotations

from typing import Any

import pytest

from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.named_workflows import parse_workflow_text
from bot.engine.workflow.nodes.human import HumanConfig
from tests.bot.engine.workflow.builders import read_node


def test_a_persons_time_may_stand_in_the_node() -> None:
    node = read_node({"id": "h", "type": "human", "timeout": "1h", "human": {"autoApprove": True}})

    assert node.timeout is None
    assert node.config == HumanConfig(timeout=3_600, auto_approve=True)


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        ("Ann", ("Ann",)),
        ("Ann, telegram:5，王芳、 Bo", ("Ann", "telegram:5", "王芳", "Bo")),
        (["Ann", "Doe, John", "Ann", ""], ("Ann", "Doe, John")),
        (None, ()),
    ],
)
def test_several_people_may_be_asked(told: Any, asked: tuple[str, ...]) -> None:
    in_block = read_node({"id": "h", "type": "human", "human": {"assignee": told}})
    in_node = read_node({"id": "h", "type": "human", "assignee": told})
    short = read_node({"id": "h", "type": "human", "human": told})

    wanted = HumanConfig(assignee=asked)
    assert [node.config or HumanConfig() for node in (in_block, in_node, short)] == [wanted] * 3


def test_people_are_named_by_words_and_not_by_the_hundred() -> None:
    for told in ([{"name": "Ann"}], 5, [str(n) for n in range(21)]):
        with pytest.raises(InvalidGraph):
            read_node({"id": "h", "type": "human", "human": {"assignee": told}})


@pytest.mark.parametrize(
    ("form", "faults"),
    [
        ("{approved: bool}", {("bad_form_field", "human.form[1].name")}),
        ("[{name: a}, {name: a}]", {("bad_form_field", "human.form[2].name")}),
        ("[{label: a}]", {("missing", "human.form[1].name")}),
        ("{a b: text}", {("bad_name", "human.form[1].name")}),
        ("{a: colour}", {("not_one_of", "human.form[1].type")}),
        ("{a: {type: choice}}", {("missing", "human.form[1].options")}),
        ("{a: {type: date, default: soon}}", {("bad_default", "human.form[1].default")}),
        ("{a: number}, autoApprove: true", {("form_without_default", "human.form[1]")}),
    ],
)
def test_a_form_that_nobody_could_fill_in_is_refused(
    form: str, faults: set[tuple[str, str]]
) -> None:
    with pytest.raises(InvalidGraph) as refused:
        parse_workflow_text(f"name: W\nnodes: [{{id: a, type: human, form: {form}}}]")

    assert {(each.key, each.field) for each in refused.value.issues} == faults
