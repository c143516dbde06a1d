"""The emulated model APIs, seen through the providers' own SDKs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest

from tests.emulators.models.emulator import OPENAI_MODELS, ModelEmulator
from tests.emulators.models.script import (
    ReceivedRequest,
    ScriptedCall,
    ScriptedFailure,
    ScriptedReply,
)

CLAUDE = "claude-sonnet-5"
GPT = "gpt-5.2"
TOOL: dict[str, Any] = {
    "name": "write",
    "description": "",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
}
FUNCTION: dict[str, Any] = {
    "type": "function",
    "function": {"name": "write", "parameters": TOOL["input_schema"]},
}
CALL = ScriptedCall(name="write", arguments={"path": "a.md", "content": "你好 " * 20})


@pytest.fixture
async def models() -> AsyncIterator[ModelEmulator]:
    async with ModelEmulator() as models:
        yield models


@pytest.fixture
async def claude(models: ModelEmulator) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        api_key=models.key, base_url=models.url, max_retries=0
    ) as client:
        yield client


@pytest.fixture
async def gpt(models: ModelEmulator) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        api_key=models.key, base_url=models.openai_url, max_retries=0
    ) as client:
        yield client


async def _claude(client: anthropic.AsyncAnthropic, **more: Any) -> anthropic.types.Message:
    asked: dict[str, Any] = {
        "model": CLAUDE,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "hi"}],
    }
    message = await client.messages.create(**(asked | more))
    assert isinstance(message, anthropic.types.Message)
    return message


async def _gpt(client: openai.AsyncOpenAI, **more: Any) -> openai.types.chat.ChatCompletion:
    asked: dict[str, Any] = {"model": GPT, "messages": [{"role": "user", "content": "hi"}]}
    completion = await client.chat.completions.create(**(asked | more))
    assert isinstance(completion, openai.types.chat.ChatCompletion)
    return completion


async def test_both_apis_answer_with_text(
    models: ModelEmulator, claude: anthropic.AsyncAnthropic, gpt: openai.AsyncOpenAI
) -> None:
    models.replies(ScriptedReply(text="one two"), ScriptedReply(text="three"))

    message = await _claude(claude, system="be kind")
    completion = await _gpt(gpt)

    assert [block.to_dict()["text"] for block in message.content] == ["one two"]
    assert (message.stop_reason, message.usage.output_tokens > 0) == ("end_turn", True)
    assert completion.choices[0].message.content == "three"
    assert completion.choices[0].finish_reason == "stop"
    assert [one.last_text for one in models.requests] == ["hi", "hi"]
    assert models.requests[0].system == "be kind"


async def test_the_key_is_checked_and_never_recorded(
    models: ModelEmulator, claude: anthropic.AsyncAnthropic, gpt: openai.AsyncOpenAI
) -> None:
    await _claude(claude)
    await _gpt(gpt)

    assert models.key not in str([one.headers for one in models.requests])
    assert models.requests[0].headers["anthropic-version"]


async def test_claude_streams_words_and_tool_calls(
    models: ModelEmulator, claude: anthropic.AsyncAnthropic
) -> None:
    models.replies(ScriptedReply(text="I will write it now", calls=[CALL]))

    async with claude.messages.stream(
        model=CLAUDE,
        max_tokens=100,
        messages=[{"role": "user", "content": "hi"}],
        tools=[TOOL],  # type: ignore[list-item]  # a plain dict is what goes on the wire
    ) as stream:
        pieces = [text async for text in stream.text_stream]
        message = await stream.get_final_message()

    assert len(pieces) > 4
    assert "".join(pieces) == "I will write it now"
    assert message.stop_reason == "tool_use"
    assert message.content[1].to_dict()["input"] == dict(CALL.arguments)


async def test_gpt_streams_words_tool_calls_and_usage(
    models: ModelEmulator, gpt: openai.AsyncOpenAI
) -> None:
    models.replies(ScriptedReply(text="I will write it now", calls=[CALL]))

    text, arguments, stops, usage = "", "", [], None
    async with gpt.chat.completions.stream(
        model=GPT,
        messages=[{"role": "user", "content": "hi"}],
        tools=[FUNCTION],  # type: ignore[list-item]  # a plain dict is what goes on the wire
        stream_options={"include_usage": True},
    ) as stream:
        async for event in stream:
            if event.type == "chunk":
                usage = event.chunk.usage or usage
                for choice in event.chunk.choices:
                    text += choice.delta.content or ""
                    stops += [choice.finish_reason] if choice.finish_reason else []
                    for call in choice.delta.tool_calls or ():
                        assert call.function
                        arguments += call.function.arguments or ""

    assert text == "I will write it now"
    assert "a.md" in arguments
    assert stops == ["tool_calls"]
    assert usage is not None
    assert usage.completion_tokens > 0


@pytest.mark.parametrize(
    ("more", "status", "says"),
    [
        ({"model": "claude-none"}, 404, "model: claude-none"),
        ({"max_tokens": 0}, 400, "greater than or equal to 1"),
        ({"max_tokens": 1_000_000, "stream": True}, 400, "maximum allowed number of output tokens"),
        ({"messages": []}, 400, "at least one message is required"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "first message"),
        ({"messages": [{"role": "user", "content": ""}]}, 400, "non-empty"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "first message"),
        ({"tools": [{**TOOL, "name": "no spaces"}]}, 400, "tools.0.custom.name"),
        ({"tools": [TOOL, TOOL]}, 400, "must be unique"),
        ({"tool_choice": {"type": "any"}}, 400, "while providing tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, 400, "not found"),
        (
            {
                "messages": [
                    {"role": "user", "content": "x"},
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "t1", "name": "x", "input": {}}],
                    },
                    {"role": "user", "content": "and?"},
                ]
            },
            400,
            "without `tool_result` blocks immediately after: t1",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "t9", "content": "x"}],
                    }
                ]
            },
            400,
            "unexpected `tool_use_id` found in `tool_result` blocks: t9",
        ),
        (
            {
                "system": [
                    {"type": "text", "text": str(n), "cache_control": {"type": "ephemeral"}}
                    for n in range(5)
                ]
            },
            400,
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
    ],
)
async def test_anthropic_requests_are_validated(
    models: ModelEmulator,
    claude: anthropic.AsyncAnthropic,
    more: dict[str, Any],
    status: int,
    says: str,
) -> None:
    with pytest.raises(anthropic.APIStatusError, match=says) as error:
        await _claude(claude, **more)

    assert error.value.status_code == status
    assert models.requests == []
    assert len(models.refused) == 1


@pytest.mark.parametrize(
    ("more", "status", "says"),
    [
        ({"model": "gpt-none"}, 404, "does not exist or you do not have access"),
        ({"max_tokens": 5}, 400, "Use 'max_completion_tokens' instead"),
        ({"messages": []}, 400, "empty array"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "Invalid value: 'robot'"),
        ({"messages": [{"role": "user", "content": None}]}, 400, "expected a string, got null"),
        (
            {"messages": [{"role": "tool", "tool_call_id": "c9", "content": "x"}]},
            400,
            "must be a response to a preceeding message with 'tool_calls'",
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [
                            {
                                "id": "c1",
                                "type": "function",
                                "function": {"name": "x", "arguments": "{}"},
                            }
                        ],
                    },
                    {"role": "user", "content": "and?"},
                ]
            },
            400,
            "did not have response messages: c1",
        ),
        ({"tool_choice": "required"}, 400, "only allowed when 'tools' are specified"),
        ({"stream_options": {"include_usage": True}}, 400, "only allowed when 'stream'"),
        (
            {"tools": [{**FUNCTION, "function": {**FUNCTION["function"], "name": "a b"}}]},
            400,
            "string does not match pattern",
        ),
        (
            {"tools": [{**FUNCTION, "function": {**FUNCTION["function"], "strict": True}}]},
            400,
            "'additionalProperties' is required",
        ),
    ],
)
async def test_openai_requests_are_validated(
    models: ModelEmulator, gpt: openai.AsyncOpenAI, more: dict[str, Any], status: int, says: str
) -> None:
    with pytest.raises(openai.APIStatusError) as error:
        await _gpt(gpt, **more)

    assert error.value.status_code == status
    assert says in error.value.message
    assert models.requests == []


async def test_a_wrong_key_is_refused_by_both(models: ModelEmulator) -> None:
    async with (
        anthropic.AsyncAnthropic(api_key="sk-wrong", base_url=models.url) as claude,
        openai.AsyncOpenAI(api_key="sk-wrong-key", base_url=models.openai_url) as gpt,
    ):
        with pytest.raises(anthropic.AuthenticationError, match="invalid x-api-key"):
            await _claude(claude)
        with pytest.raises(openai.AuthenticationError, match="Incorrect API key") as error:
            await _gpt(gpt)

    assert error.value.code == "invalid_api_key"


@pytest.mark.parametrize("status", [401, 404, 429, 500, 529])
async def test_scripted_failures_are_returned(
    models: ModelEmulator,
    claude: anthropic.AsyncAnthropic,
    gpt: openai.AsyncOpenAI,
    status: int,
) -> None:
    failure = ScriptedReply(
        failure=ScriptedFailure(status=status, message="as asked", retry_after="7")
    )
    models.replies(failure, failure)

    with pytest.raises(anthropic.APIStatusError, match="as asked") as claudes:
        await _claude(claude)
    with pytest.raises(openai.APIStatusError, match="as asked") as gpts:
        await _gpt(gpt)

    for error in (claudes.value, gpts.value):
        assert (error.status_code, error.response.headers["retry-after"]) == (status, "7")


@pytest.mark.parametrize(
    ("stop", "reasons"),
    [("cut", ("max_tokens", "length")), ("refused", ("refusal", "stop"))],
)
async def test_answers_can_be_truncated_or_refused(
    models: ModelEmulator,
    claude: anthropic.AsyncAnthropic,
    gpt: openai.AsyncOpenAI,
    stop: Any,
    reasons: tuple[str, str],
) -> None:
    models.replies(ScriptedReply(text="well", stop=stop), ScriptedReply(text="well", stop=stop))

    message = await _claude(claude)
    completion = await _gpt(gpt)

    assert (message.stop_reason, completion.choices[0].finish_reason) == reasons
    assert bool(completion.choices[0].message.refusal) == (stop == "refused")


async def test_a_connection_can_break_before_and_within_an_answer(
    models: ModelEmulator, claude: anthropic.AsyncAnthropic
) -> None:
    models.replies(
        ScriptedReply(text="a b c d", drop_after=0), ScriptedReply(text="a b c d", drop_after=4)
    )

    with pytest.raises(anthropic.APIConnectionError):
        await _claude(claude)
    heard: list[str] = []
    with pytest.raises(Exception, match=r"closed|disconnected|incomplete"):  # noqa: PT012 - a stream breaks anywhere
        async with claude.messages.stream(
            model=CLAUDE, max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        ) as stream:
            async for text in stream.text_stream:
                heard.append(text)  # noqa: PERF401 - what came before the break is the point

    assert heard == ["a"]


async def test_a_disconnected_client_is_noticed(
    models: ModelEmulator, claude: anthropic.AsyncAnthropic, gpt: openai.AsyncOpenAI
) -> None:
    never = asyncio.Event()
    models.replies(
        ScriptedReply(text="a b c", hold=never, hold_after=4), ScriptedReply(text="a", hold=never)
    )

    async with claude.messages.stream(
        model=CLAUDE, max_tokens=9, messages=[{"role": "user", "content": "hi"}]
    ) as stream:
        assert await anext(aiter(stream.text_stream)) == "a"
    waiting = asyncio.ensure_future(_gpt(gpt))
    await models.wait_for_request(2)
    waiting.cancel()
    await models.wait_for_disconnect(2)

    assert models.disconnects == ["/v1/messages", "/v1/chat/completions"]


async def test_content_marked_for_the_cache_is_written_once_and_read_again(
    models: ModelEmulator, claude: anthropic.AsyncAnthropic
) -> None:
    long: dict[str, Any] = {
        "type": "text",
        "text": "rules " * 2_000,
        "cache_control": {"type": "ephemeral"},
    }

    first = (await _claude(claude, system=[long])).usage
    second = (await _claude(claude, system=[long])).usage

    assert first.cache_creation_input_tokens
    assert first.cache_read_input_tokens == 0
    assert second.cache_read_input_tokens == first.cache_creation_input_tokens
    assert second.cache_creation_input_tokens == 0
    assert 0 < second.input_tokens < 100


async def test_the_models_are_listed(models: ModelEmulator, gpt: openai.AsyncOpenAI) -> None:
    listed = [one.id async for one in gpt.models.list()]

    assert listed == list(OPENAI_MODELS)
    assert set(listed) < models.known_models


async def test_a_reply_may_be_a_function(
    models: ModelEmulator, claude: anthropic.AsyncAnthropic
) -> None:
    def echo(asked: ReceivedRequest) -> ScriptedReply:
        return ScriptedReply(text=asked.last_text.upper())

    models.replies(ScriptedReply(text="first"), echo)

    texts = [(await _claude(claude)).content[0].to_dict()["text"] for _ in range(3)]

    assert texts == ["first", "HI", "HI"]


async def test_the_default_worker_writes_the_requested_file_and_reports(
    models: ModelEmulator, claude: anthropic.AsyncAnthropic
) -> None:
    report = {
        "name": "final_result",
        "input_schema": {"type": "object", "properties": {"status": {}, "summary": {}}},
    }
    asked: dict[str, Any] = {"tools": [TOOL, report], "tool_choice": {"type": "any"}}
    prompt = {"role": "user", "content": "Your step now: save it to haiku.md"}

    first = await _claude(claude, **asked, messages=[prompt])
    call = first.content[1].to_dict()
    answered = [
        prompt,
        {"role": "assistant", "content": [block.to_dict() for block in first.content]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": call["id"], "content": "Wrote haiku.md."}
            ],
        },
    ]
    second = await _claude(claude, **asked, messages=answered)

    assert call["name"] == "write"
    assert second.content[0].to_dict()["input"] == {
        "status": "done",
        "summary": "Wrote haiku.md.",
        "files": ["haiku.md"],
        "needs_replan": False,
    }
