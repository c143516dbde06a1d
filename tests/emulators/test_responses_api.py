"""The emulated Responses API, seen through the provider's own SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseFunctionToolCall

from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ScriptedCall, ScriptedFailure, ScriptedReply

TOOL: dict[str, Any] = {
    "type": "function",
    "name": "write",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}
CALL = ScriptedCall(name="write", arguments={"path": "a.md", "content": "你好 " * 20})
MADE = {"type": "function_call", "call_id": "c1", "name": "write", "arguments": "{}"}
MADE_OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "written"}
ASK = {"role": "user", "content": "hi"}


@pytest.fixture
async def models() -> AsyncIterator[ModelEmulator]:
    async with ModelEmulator() as models:
        yield models


@pytest.fixture
async def gpt(models: ModelEmulator) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        api_key=models.key, base_url=models.openai_url, max_retries=0
    ) as client:
        yield client


async def _ask(client: openai.AsyncOpenAI, **more: Any) -> Response:
    asked: dict[str, Any] = {"model": "gpt-5.2", "input": "hi", "store": False}
    response = await client.responses.create(**(asked | more))
    assert isinstance(response, Response)
    return response


async def test_it_answers_with_text_and_tool_calls(
    models: ModelEmulator, gpt: openai.AsyncOpenAI
) -> None:
    models.replies(ScriptedReply(text="one two", calls=[CALL]))

    response = await _ask(gpt, instructions="be kind", tools=[TOOL])

    assert (response.output_text, response.status) == ("one two", "completed")
    call = response.output[1]
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, json.loads(call.arguments)) == ("write", CALL.arguments)
    asked = models.requests[0]
    assert (asked.api, asked.system, asked.user_texts) == ("responses", "be kind", ("hi",))
    assert list(asked.tools) == ["write"]


async def test_a_stream_adds_up_to_the_whole_answer(
    models: ModelEmulator, gpt: openai.AsyncOpenAI
) -> None:
    models.replies(ScriptedReply(text="one two three", calls=[CALL]))
    asked: dict[str, Any] = {"model": "gpt-5.2", "input": [ASK], "tools": [TOOL]}

    async with gpt.responses.stream(**asked) as stream:
        events = [event async for event in stream]
        response = await stream.get_final_response()

    kinds = [event.type for event in events]
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert [event.sequence_number for event in events] == list(range(len(events)))
    words = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert words == response.output_text == "one two three"
    pieces = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert "".join(pieces) == response.output[1].arguments  # type: ignore[union-attr] # a call
    assert response.usage is not None
    assert response.usage.total_tokens > 0


async def test_tool_results_are_recorded_by_tool_also_in_a_namespace(
    models: ModelEmulator, gpt: openai.AsyncOpenAI
) -> None:
    inner = {**MADE, "name": "submit", "namespace": "boss"}
    space = {"type": "namespace", "name": "boss", "tools": [{**TOOL, "name": "submit"}]}
    models.replies(ScriptedReply(calls=[ScriptedCall(name="boss::submit")]))

    response = await _ask(gpt, input=[ASK, inner, MADE_OUTPUT], tools=[space])

    assert models.requests[0].tool_results == (("boss::submit", "written"),)
    told = response.output[0].to_dict()
    assert (told["name"], told["namespace"]) == ("submit", "boss")


async def test_a_free_text_tool_is_called_with_text_wherever_it_was_offered(
    models: ModelEmulator, gpt: openai.AsyncOpenAI
) -> None:
    script = {"type": "custom", "name": "exec"}
    space = {"type": "namespace", "name": "functions", "tools": [script]}
    more = {"type": "additional_tools", "role": "developer", "tools": [space]}
    models.replies(
        ScriptedReply(calls=[ScriptedCall(name="functions::exec", raw="text(1)")]),
        ScriptedReply(text="ok"),
    )

    first = await _ask(gpt, input=[more, ASK])
    call = first.output[0].to_dict()
    output = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "1"}
    await _ask(gpt, input=[more, ASK, call, output])

    assert (call["type"], call["input"]) == ("custom_tool_call", "text(1)")
    assert models.requests[1].tool_results == (("functions::exec", "1"),)


@pytest.mark.parametrize(
    ("stop", "status", "why"),
    [("cut", "incomplete", "max_output_tokens"), ("refused", "completed", None)],
)
async def test_an_answer_may_be_truncated_or_refused(
    models: ModelEmulator, gpt: openai.AsyncOpenAI, stop: Any, status: str, why: str | None
) -> None:
    models.replies(ScriptedReply(text="no", stop=stop))

    response = await _ask(gpt)

    assert response.status == status
    reason = response.incomplete_details.reason if response.incomplete_details else None
    assert reason == why
    kinds = [part.type for part in response.output[0].content]  # type: ignore[union-attr] # words
    assert kinds == ["refusal" if stop == "refused" else "output_text"]


async def test_a_failure_in_the_middle_is_an_event(
    models: ModelEmulator, gpt: openai.AsyncOpenAI
) -> None:
    models.replies(
        ScriptedReply(text="a b c", failure=ScriptedFailure(status=500, message="oh"), fail_after=5)
    )

    stream = await gpt.responses.create(model="gpt-5.2", input="hi", stream=True)
    events = [event async for event in stream]

    assert (events[-1].type, events[-1].message) == ("error", "oh")  # type: ignore[union-attr] # told by its type


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"model": "gpt-9"}, "does not exist"),
        ({"input": None}, "must be provided"),
        ({"extra_body": {"messages": []}}, "has moved to 'input'"),
        ({"extra_body": {"colour": "red"}}, "Unknown parameter: 'colour'"),
        ({"max_output_tokens": 1}, "Expected a value >= 16"),
        ({"include": ["everything"]}, "Supported values are"),
        ({"previous_response_id": "resp_1"}, "not found"),
        ({"tools": [{"type": "function", "parameters": {}}]}, "Missing required parameter"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "does not match pattern"),
        ({"tools": [{**TOOL, "strict": True}]}, "additionalProperties"),
        ({"tools": [{"type": "magic"}]}, "Supported values are"),
        ({"tool_choice": {"type": "function", "name": "x"}, "tools": [TOOL]}, "not found"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"input": [{"role": "tool", "content": "x"}]}, "Supported values are"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        (
            {"input": [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}]},
            "'output_text', and 'refusal'",
        ),
        ({"input": [{**ASK, "id": "item_1"}]}, "begins with 'msg'"),
        ({"input": [ASK, MADE]}, "No tool output found for function call c1"),
        ({"input": [ASK, MADE_OUTPUT]}, "No tool call found for function call output"),
        ({"input": [ASK, {**MADE, "call_id": "c" * 65}]}, "string too long"),
        ({"input": [{"type": "reasoning", "id": "rs_1", "summary": []}]}, "not persisted"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "not persisted"),
        ({"input": [{"type": "wish"}]}, "Supported values are"),
    ],
)
async def test_requests_the_real_api_would_refuse_are_refused(
    models: ModelEmulator, gpt: openai.AsyncOpenAI, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        await _ask(gpt, **more)

    assert message in refused.value.message
    assert [message in one.message for one in models.refused] == [True]
    assert models.requests == []


async def test_another_key_is_refused(models: ModelEmulator) -> None:
    async with openai.AsyncOpenAI(
        api_key="another", base_url=models.openai_url, max_retries=0
    ) as client:
        with pytest.raises(openai.AuthenticationError):
            await _ask(client)
