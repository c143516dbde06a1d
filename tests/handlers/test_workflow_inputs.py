"""Values that people type for a workflow's inputs."""

from __future__ import annotations

import pytest

from handlers.workflow_inputs import (
    InvalidWorkflowInput,
    parse_inputs,
    parse_value,
    split_named_values,
)
from storage.records.workflows import WorkflowInput

TOPIC = WorkflowInput(name="topic", title="What about")
N = WorkflowInput(name="n", kind="number", default=3, required=False)
LOUD = WorkflowInput(name="loud", kind="bool", required=False)
SIZE = WorkflowInput(name="size", kind="choice", options=("small", "Large"))
ALL = (TOPIC, N, LOUD, SIZE)


@pytest.mark.parametrize(
    ("text", "free", "pairs"),
    [
        ("", "", {}),
        ("cats and dogs", "cats and dogs", {}),
        ("topic=cats and dogs size=small", "", {"topic": "cats and dogs", "size": "small"}),
        ('topic="a=b size=small" n=2', "", {"topic": "a=b size=small", "n": "2"}),
        ('topic="she said \\"hi\\""', "", {"topic": 'she said "hi"'}),
        ("cats n=2", "cats", {"n": "2"}),
        ("topic=", "", {"topic": ""}),
        ("主题=猫 和 狗\nn=2", "", {"主题": "猫 和 狗", "n": "2"}),
        ("see http://x.org/?q=1", "see http://x.org/?q=1", {}),
    ],
)
def test_values_go_on_to_the_next_name_or_stand_in_quotes(
    text: str, free: str, pairs: dict[str, str]
) -> None:
    assert split_named_values(text) == (free, pairs)


@pytest.mark.parametrize(
    ("wanted", "text", "value"),
    [
        (TOPIC, "cats", "cats"),
        (N, "3", 3),
        (N, "-0.5", -0.5),
        (N, "1e3", 1000),
        (LOUD, "Yes", True),
        (LOUD, "否", False),
        (SIZE, "large", "Large"),
    ],
)
def test_a_text_becomes_a_value_of_its_inputs_kind(
    wanted: WorkflowInput, text: str, value: object
) -> None:
    assert parse_value(wanted, text) == value
    assert type(parse_value(wanted, text)) is type(value)


@pytest.mark.parametrize(
    ("wanted", "text", "key"),
    [
        (TOPIC, "x" * 20_001, "long"),
        (N, "many", "number"),
        (N, "1e999", "number"),
        (N, "nan", "number"),
        (N, "9" * 4_400, "number"),
        (LOUD, "perhaps", "bool"),
        (SIZE, "huge", "choice"),
    ],
)
def test_what_does_not_fit_says_what_would(wanted: WorkflowInput, text: str, key: str) -> None:
    assert parse_value(wanted, text) == InvalidWorkflowInput(input=wanted, key=key, text=text)


def test_everything_wrong_is_found_at_once() -> None:
    found = parse_inputs(ALL, {"n": "many", "colour": "red", "size": "huge"})

    assert [each.input.name for each in found.invalid] == ["n", "size"]
    assert found.missing == (TOPIC,)
    assert found.unknown == ("colour",)


def test_words_without_a_name_are_the_first_text_that_is_wanted() -> None:
    early = WorkflowInput(name="note", default="none", required=False)

    found = parse_inputs((early, TOPIC), {}, "cats and dogs")

    assert found.values == {"topic": "cats and dogs"}
    assert found.is_complete


def test_words_that_no_input_takes_are_not_lost_silently() -> None:
    assert parse_inputs((N,), {"n": "1"}, "and more").unknown == ("and more",)


def test_an_input_goes_by_its_name_or_title_in_any_case() -> None:
    found = parse_inputs(ALL, {"WHAT ABOUT": "cats", "Size": "small"})

    assert found.texts == {"topic": "cats", "size": "small"}
    assert found.is_complete
