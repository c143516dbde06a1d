"""Plans are read however a model words them, and no text is too odd to be refused politely."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.engine.llm.answer_schemas import PlanAnswer, plan_answer_for
from bot.engine.llm.written_forms import read_form
from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.planner import plan_from_answer
from tests.case_tables import all_cases

TWO = {"plan": "So.", "steps": [{"title": "Write it"}, {"title": "Check it"}]}
JSON = json.dumps(TWO)
TITLES = ["Write it", "Check it"]

WORDINGS: dict[str, str] = {
    "bare JSON": JSON,
    "a fence": f"```json\n{JSON}\n```",
    "a fence among words": f"Here is my plan:\n\n```\n{JSON}\n```\nShall I begin?",
    "words around it": f"I suggest {JSON} as the plan.",
    "behind a thought": f"<think>First 1. look\n2. think</think>\n{JSON}",
    "behind a thought without its opening": f"Hm, {{maybe}} so.\n</think>{JSON}",
    "Python's quotes": str(TWO),
    "a comma too many": JSON[:-2] + ",],}",
    "a list of objects": json.dumps(TWO["steps"]),
    "a list of texts among words": f"Steps: {json.dumps(TITLES)}",
    "other names": '{"tasks": [{"name": "Write it"}, {"task": "Check it"}]}',
    "numbers as keys": '{"steps": {"1": "Write it", "2": "Check it"}}',
    "the plan is the list": '{"plan": ["Write it", "Check it"]}',
    "steps as text": '{"steps": "1. Write it\\n2. Check it"}',
    "an envelope": f'{{"plan": {JSON}}}',
    "a call in JSON": f'{{"name": "final_result", "arguments": {JSON}}}',
    "a call in a tag": f'<tool_call>{{"name": "make_plan", "arguments": {JSON}}}</tool_call>',
    "a call in code": f"```tool_code\nprint(plan({JSON}))\n```",
    "a function tag": f"<function=final_result>{JSON}</function>",
    "step tags": "<plan><step>Write it</step>\n<step>Check it</step></plan>",
    "step tags with fields": "<step n='1'><title>Write it</title></step>"
    "<step><name>Check it</name></step>",
    "a numbered list": "1. Write it\n2. Check it",
    "a list in a fence": "Sure!\n```markdown\n1) Write it\n2) Check it\n```",
    "a numbered list in bold": "My plan:\n\n**1. Write it**\n   with care\n\n**2. Check it**\n",
    "bold heads": "1. **Write it**: with care.\n2. **Check it** - twice.\n\nThat is all.",
    "bullets": "- Write it\n- Check it",
    "checkboxes": "* [ ] Write it\n* [x] Check it",
    "headings": "## Step 1: Write it\nWith care.\n## Step 2: Check it\n- twice",
    "nested lists": "1. Write it\n   - one\n   - two\n2. Check it\n   1. again",
    "words for steps": "Step 1 - Write it\nStep 2 - Check it",
    "numbers in brackets": "(1) Write it\n(2) Check it",
    "Chinese numbers": "计划如下：\n一、Write it\n二、Check it",
    "Chinese steps": "第一步：Write it\n第二步：Check it",
    "Chinese words and numbers": "步骤1：Write it\n步骤2：Check it",
    "Chinese brackets": "（1）Write it\n（2）Check it",
    "numbers in circles": "① Write it\n② Check it",
}


@all_cases("name", WORDINGS)
def test_a_plan_is_read_however_it_is_worded(name: str) -> None:
    answer = read_form(WORDINGS[name], PlanAnswer)

    assert isinstance(answer, PlanAnswer)
    assert [step.title for step in answer.steps] == TITLES


def test_a_lists_words_become_the_plan_and_the_details() -> None:
    answer = read_form(
        "I go slowly.\n\n1. **Write**: use a.md\n   - with care\n2. 检查：看一遍", PlanAnswer
    )

    assert isinstance(answer, PlanAnswer)
    assert answer.plan == "I go slowly."
    assert [(step.title, step.detail) for step in answer.steps] == [
        ("Write", "use a.md\n- with care"),
        ("检查", "看一遍"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Sure, I will do it.",
        "It is 1.5 GB.",
        "10:30 is fine",
        '{"steps": []}',
        "- one thing",
        "{}",
        "[1, 2]",
        '{"key": "value"}',
        "<step>",
        '{"plan": "I will do it"}',
    ],
)
def test_what_is_no_plan_is_none(text: str) -> None:
    assert read_form(text, PlanAnswer) is None


BAD_FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "an over-long persona": ({"persona": "x" * 300}, {"persona": ""}),
    "an unknown persona": ({"persona": "nobody"}, {"persona": ""}),
    "a persona in capitals": ({"persona": " Writer "}, {"persona": "writer"}),
    "an unknown kind": ({"kind": "code"}, {"kind": "work"}),
    "a kind of another type": ({"kind": ["ask"]}, {"kind": "work"}),
    "a dependency on no step": ({"depends_on": ["s9"]}, {}),
    "one file as text": ({"deliverables": "a.md"}, {"deliverables": ["a.md"]}),
    "files of other types": ({"deliverables": [1, "a.md", ""]}, {"deliverables": ["a.md"]}),
    "a word for no": ({"repeatable": "False"}, {"repeatable": False}),
    "a number for no": ({"repeatable": 0}, {"repeatable": False}),
    "a word that is neither": ({"repeatable": "maybe"}, {"repeatable": True}),
    "a detail of another type": ({"detail": {"do": "it"}}, {"detail": ""}),
}


@pytest.mark.parametrize("name", BAD_FIELDS)
def test_a_bad_field_is_dropped_and_the_rest_kept(name: str) -> None:
    given, expected = BAD_FIELDS[name]

    answer = plan_answer_for(("writer",)).model_validate(
        {"steps": [{"title": "Write it", "detail": "well"} | given, {"oops": 1}]}
    )

    (step,) = answer.steps
    assert (
        step.model_dump()
        == {
            "title": "Write it",
            "detail": "well",
            "kind": "work",
            "repeatable": True,
            "persona": "",
            "deliverables": [],
        }
        | expected
    )


def test_a_long_title_is_cut_and_kept_as_the_detail() -> None:
    answer = PlanAnswer.model_validate({"steps": [{"title": "word " * 100}]})

    assert len(answer.steps[0].title) == 200
    assert answer.steps[0].detail == ("word " * 100).strip()


def test_the_form_names_the_personas_that_a_step_may_have() -> None:
    form = plan_answer_for(("coder", "writer"))

    step = form.model_json_schema()["$defs"]["PlanStep"]
    assert step["properties"]["persona"]["enum"] == ["", "coder", "writer"]
    assert issubclass(form, PlanAnswer)


pieces = st.sampled_from(
    ["{", "}", "[", "]", '"', "'", "1. ", "- ", "\n", "```", "json\n", "<step>", "</step>",
     "<think>", "</think>", '"steps":', '"title":', '"nodes":', "<tool_call>", "步骤", "a", ","]
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.text(max_size=300), st.lists(pieces, max_size=60).map("".join)))
def test_any_text_is_a_valid_plan_or_none(text: str) -> None:
    answer = read_form(text, PlanAnswer)

    if answer is not None:
        assert isinstance(answer, PlanAnswer)
        try:
            workflow = plan_from_answer(answer)
        except InvalidGraph:
            assert answer.workflow, "only a workflow may be sent back"
        else:
            assert workflow.nodes or workflow.answer


@pytest.mark.parametrize(
    "piece",
    ["{", '{"steps":[', "1. x\n", "<step>", "<step><title>", "<think>", "```\n{", '"\\', "[[",
     "- [ ] ", "**1.", "x"],
)  # fmt: skip
def test_a_plan_of_ten_megabytes_takes_no_time_to_speak_of(piece: str) -> None:
    read_form(piece * (10_000_000 // len(piece)), PlanAnswer)


@pytest.mark.parametrize(
    "title", ["**ab**" + " " * 20_000 + "\nx", "**ab**" + ":" * 20_000 + "\nx"]
)
def test_a_step_with_runs_of_blanks_or_signs_is_read_in_linear_time(title: str) -> None:
    found = read_form(json.dumps({"steps": [title]}), PlanAnswer)

    assert isinstance(found, PlanAnswer)
    assert found.steps[0].title.startswith("**ab**") or found.steps[0].title.startswith("ab")


def test_a_fence_with_a_long_run_of_blanks_is_read_in_linear_time() -> None:
    assert read_form("```" + " " * 190_000 + "x", PlanAnswer) is None


def test_a_step_of_marks_alone_harms_no_plan() -> None:
    found = read_form(json.dumps({"steps": ["***", "Write it"]}), PlanAnswer)

    assert isinstance(found, PlanAnswer)
    assert found.steps[-1].title == "Write it"
