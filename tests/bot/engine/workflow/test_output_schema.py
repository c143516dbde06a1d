"""The declared output of a task: how it is written, asked for and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bot.engine.llm.acp.run import MissingResult, parse_result, result_instructions
from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.api.access import ApiProvider
from bot.engine.llm.backend import InvalidAnswer, RunPurpose, RunRequest
from bot.engine.llm.offline.backend import OfflineBackend
from bot.engine.workflow.definition import dump_workflow, load_workflow
from bot.engine.workflow.output_schema import (
    OutputField,
    OutputKind,
    TypedStepAnswer,
    answer_type,
    check_output,
)
from bot.engine.workflow.serialization.reader import read_workflow, workflow_to_data
from tests.bot.engine.llm.builders import build_backend, build_request, collect_run
from tests.bot.engine.workflow.builders import assert_refused, graph_text, node_data, read_node
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ReceivedRequest, ScriptedCall, ScriptedReply

APPROVED = OutputField(name="approved", kind=OutputKind.BOOLEAN)
VERDICT = OutputField(name="verdict", options=("good", "bad"))
SCORE = OutputField(name="score", kind=OutputKind.INTEGER, required=False, description="1 to 10")
FIELDS = (APPROVED, VERDICT, SCORE)

MARKDOWN = """\
# Review
## Tasks
### 1. Review
- {field}: {line}
"""


@pytest.mark.parametrize(
    "written",
    [
        "approved: bool, verdict: good | bad, score?: int",
        {"approved": "boolean", "verdict": ["good", "bad"], "score?": "integer"},
        {"approved": {"type": "bool"}, "verdict": "good|bad",
         "score": {"type": "int", "required": False}},
        [{"name": "approved", "type": "Bool"}, {"name": "verdict", "enum": ["good", "bad"]},
         {"name": "score?", "kind": "int"}],
        {"type": "object", "required": ["approved", "verdict"],
         "properties": {"approved": {"type": "boolean"},
                        "verdict": {"type": "string", "enum": ["good", "bad"]},
                        "score": {"type": "integer"}}},
    ],
)  # fmt: skip
def test_an_output_may_be_written_in_several_ways(written: Any) -> None:
    found = read_node({"id": "a", "output": written}).output

    assert [(f.name, f.kind, f.options, f.required) for f in found] == [
        (f.name, f.kind, f.options, f.required) for f in FIELDS
    ]


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("Output", "approved: bool, verdict: good | bad, score?: int"),
        ("输出", "approved：布尔，verdict：good｜bad，score？：整数"),
    ],
)
def test_an_output_may_be_a_line_in_markdown(field: str, line: str) -> None:
    workflow = read_workflow(MARKDOWN.format(field=field, line=line))

    found = workflow.nodes_by_id["task-1"].output
    assert [(f.name, f.kind, f.options) for f in found] == [
        (f.name, f.kind, f.options) for f in FIELDS
    ]


def test_an_output_survives_being_written_and_stored() -> None:
    written = {"approved": "bool", "score": {"type": "int", "description": "1 to 10"}}
    workflow = read_workflow(graph_text(node_data(output=written)))

    assert read_workflow(json.dumps(workflow_to_data(workflow))) == workflow
    assert load_workflow(dump_workflow(workflow)) == workflow
    assert workflow.nodes_by_id["b"].output[1].description == "1 to 10"


@pytest.mark.parametrize(
    ("written", "key", "field"),
    [
        ({"approved": "maybe"}, "not_one_of", "output.approved.type"),
        ({"two words": "bool"}, "bad_name", "output.two words"),
        ({"summary": "text"}, "reserved_name", "output.summary"),
        ({"Ab": "text", "a_b": "text"}, "twice", "output.a_b"),
        ({"n": {"type": "int", "enum": ["1"]}}, "not_one_of", "output.n.type"),
        ({f"f{n}": "text" for n in range(21)}, "out_of_range", "output"),
        ({}, "out_of_range", "output"),
        (5, "not_a_group", "output"),
        ([5], "not_a_group", "output"),
        ({"a": {"enum": [str(n) for n in range(31)]}}, "out_of_range", "output.a.enum"),
        ({"a": {"enum": ["x" * 101]}}, "too_long", "output.a.enum"),
        ({"a": {"type": "text", "description": "x" * 301}}, "too_long", "output.a.description"),
        ({"a": {"type": "text", "requird": False}}, "unknown_field", "output.a.requird"),
    ],
)
def test_a_hostile_or_mistaken_output_is_refused_with_its_place(
    written: Any, key: str, field: str
) -> None:
    assert_refused(graph_text(node_data(output=written)), [(key, "b", field)])


def test_only_a_task_has_an_output() -> None:
    assert_refused(
        graph_text(node_data("human", output="ok: bool")), [("no_output_here", "b", "output")]
    )


def test_the_form_asks_for_the_fields_by_schema() -> None:
    form = answer_type(FIELDS).model_json_schema()

    assert form["title"] == "StepAnswer"
    assert form["description"] == StepAnswer.model_json_schema()["description"]
    assert "output" in form["required"]
    assert form["properties"]["output"]["required"] == ["approved", "verdict"]
    assert form["properties"]["output"]["properties"] == {
        "approved": {"type": "boolean"},
        "verdict": {"type": "string", "enum": ["good", "bad"]},
        "score": {"type": "integer", "description": "1 to 10"},
    }
    assert answer_type(()) is StepAnswer


def answer(**given: Any) -> dict[str, Any]:
    form = answer_type(FIELDS)
    filled = form.model_validate({"status": "done", "summary": "Seen.", **given})
    assert isinstance(filled, TypedStepAnswer)
    assert json.loads(filled.model_dump_json())["output"] == filled.output
    return filled.output


@pytest.mark.parametrize(
    "given_",
    [
        {"output": {"approved": True, "verdict": "good", "score": 7}},
        {"output": {"Approved": "yes", "Verdict": "GOOD", "score": "7"}},
        {"output": {"approved": 1, "verdict": " good ", "score": 7.0, "more": "x"}},
        {"output": '{"approved": true, "verdict": "good", "score": 7}'},
        {"approved": True, "verdict": "good", "score": 7},
        {"summary": 'All fine.\n```\n{"approved": "是", "verdict": "good", "score": 7}\n```'},
        {"output": {"approved": True}, "summary": 'score: 7\n{"verdict": "good"}'},
    ],
)
def test_values_are_taken_as_models_write_them(given_: dict[str, Any]) -> None:
    found = answer(**given_)

    assert found == {"approved": True, "verdict": "good", "score": 7}
    assert found["approved"] is True


def test_a_text_may_be_empty_unless_it_has_options() -> None:
    """An approving review has nothing to note."""
    assert check_output((OutputField(name="notes"),), [{"notes": ""}]) == {"notes": ""}
    with pytest.raises(ValueError, match="missing or wrong"):
        check_output((VERDICT,), [{"verdict": ""}])


def test_what_may_be_left_out_is_null() -> None:
    assert answer(output={"approved": False, "verdict": "bad"})["score"] is None


@pytest.mark.parametrize(
    ("output", "named"),
    [
        ({"verdict": "good"}, "approved (boolean)"),
        ({"approved": "partially", "verdict": "good"}, "approved (boolean)"),
        ({"approved": "yes, but only if it passes", "verdict": "good"}, "approved (boolean)"),
        ({"approved": True, "verdict": "so so"}, "verdict (good | bad)"),
        ({"approved": True, "verdict": "bad", "score": "high"}, "score (integer)"),
        ({"approved": True, "verdict": "bad", "score": 7.5}, "score (integer)"),
        ({"approved": True, "verdict": ["bad"]}, "verdict (good | bad)"),
        ({}, "approved (boolean), verdict (good | bad)"),
        ("nothing", "approved (boolean), verdict (good | bad)"),
        ([1], "approved (boolean), verdict (good | bad)"),
    ],
)
def test_a_wrong_output_is_refused_by_the_name_of_its_fields(output: Any, named: str) -> None:
    with pytest.raises(ValidationError) as caught:
        answer(output=output)

    assert named in str(caught.value)


@pytest.mark.parametrize("status", ["blocked", "error"])
def test_a_step_that_is_not_done_needs_no_output(status: str) -> None:
    assert answer(status=status) == {}


def test_a_coding_cli_hands_it_in_as_json_and_is_told_what_is_wrong() -> None:
    form = answer_type(FIELDS)
    block = {"status": "done", "summary": "Seen.", "output": {"approved": "yes"}}

    assert '"enum": ["good", "bad"]' in result_instructions(form)
    with pytest.raises(MissingResult, match=r"missing or wrong: verdict \(good \| bad\)"):
        parse_result(f"```json\n{json.dumps(block)}\n```", None, form)
    block["verdict"] = "bad"
    found = parse_result(f"Here:\n```\n{json.dumps(block)}\n```", None, form)
    assert isinstance(found, TypedStepAnswer)
    assert found.output == {"approved": True, "verdict": "bad", "score": None}


@pytest.mark.parametrize("wanted", [(), FIELDS])
async def test_without_a_model_a_declared_output_is_missed_by_name(
    tmp_path: Path, wanted: tuple[OutputField, ...]
) -> None:
    request = RunRequest(
        purpose=RunPurpose.STEP,
        prompt='write "hello" to a.txt',
        system="",
        model="",
        language="en",
        workspace=tmp_path,
        result=answer_type(wanted),
    )

    if not wanted:
        assert (await collect_run(OfflineBackend(), request))[1].value
        return
    with pytest.raises(InvalidAnswer) as caught:
        await collect_run(OfflineBackend(), request)
    assert "approved (boolean), verdict (good | bad)" in caught.value.faults


@pytest.mark.parametrize("api", list(ApiProvider))
async def test_a_model_that_never_gives_it_is_asked_twice_and_the_fault_is_named(
    api: ApiProvider,
) -> None:
    given = {"status": "done", "summary": "Seen.", "output": {"approved": True, "verdict": "x"}}

    def fill(asked: ReceivedRequest) -> ScriptedReply:
        (form,) = asked.tools
        return ScriptedReply(calls=[ScriptedCall(name=form, arguments=given)])

    async with ModelEmulator() as models:
        models.replies(fill)
        backend = build_backend(models, api)
        try:
            with pytest.raises(InvalidAnswer) as caught:
                await collect_run(backend, build_request(api, result=answer_type(FIELDS)))
        finally:
            await backend.aclose()

    assert caught.value.faults == "output: missing or wrong: verdict (good | bad)"
    assert len(models.requests) == 2
    assert "missing or wrong: verdict (good | bad)" in str(models.requests[1].body)


_DEEP: Any = []
for _ in range(50):
    _DEEP = [_DEEP]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (OutputKind.LIST, list(range(201))),
        (OutputKind.LIST, _DEEP),
        (OutputKind.LIST, ["x" * 30_000]),
        (OutputKind.OBJECT, {str(n): "x" * 100 for n in range(500)}),
        (OutputKind.OBJECT, {"n": float("nan")}),
        (OutputKind.STRING, "x" * 30_000),
        (OutputKind.NUMBER, float("inf")),
        (OutputKind.NUMBER, "9" * 5_000),
        (OutputKind.BOOLEAN, {}),
    ],
)
def test_a_value_beyond_the_bounds_is_wrong(kind: OutputKind, value: Any) -> None:
    with pytest.raises(ValueError, match="missing or wrong"):
        check_output((OutputField(name="a", kind=kind),), [{"a": value}])


def test_a_number_beyond_all_measure_is_wrong() -> None:
    with pytest.raises(ValueError, match="missing or wrong"):
        check_output((SCORE,), [{"score": 10**4_000}])


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@given(kind=st.sampled_from(list(OutputKind)), value=_ANY)
def test_any_value_is_stored_in_its_kind_or_refused(kind: OutputKind, value: Any) -> None:
    try:
        found = check_output((OutputField(name="a", kind=kind),), [{"a": value}])["a"]
    except ValueError:
        return
    types = {
        OutputKind.STRING: str, OutputKind.BOOLEAN: bool, OutputKind.INTEGER: int,
        OutputKind.NUMBER: int | float, OutputKind.LIST: list, OutputKind.OBJECT: dict,
    }  # fmt: skip
    assert isinstance(found, types[kind])
    assert json.loads(json.dumps(found, allow_nan=False)) == found
