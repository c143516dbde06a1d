"""The emulated Gemini API, seen from the wire."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ScriptedCall, ScriptedFailure, ScriptedReply

THREE, TWO = "gemini-3.5-flash", "gemini-2.5-pro"
WRITE = {"name": "write", "parametersJsonSchema": {"type": "object"}}
ASK = {"role": "user", "parts": [{"text": "hi"}]}
MADE = {"functionCall": {"name": "write", "args": {}}}
ANSWER = {
    "role": "user",
    "parts": [{"functionResponse": {"name": "write", "response": {"output": "ok"}}}],
}


@pytest.fixture
async def models() -> AsyncIterator[ModelEmulator]:
    async with ModelEmulator() as models:
        yield models


@pytest.fixture
async def web(models: ModelEmulator) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=models.url, headers={"x-goog-api-key": models.key}
    ) as client:
        yield client


async def _ask(web: httpx.AsyncClient, model: str = TWO, **more: Any) -> httpx.Response:
    body = {"contents": [ASK], **more}
    return await web.post(f"/v1beta/models/{model}:generateContent", json=body)


def _chunks(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = [line for line in answer.text.splitlines() if line]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def _calls(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [ASK, {"role": "model", "parts": list(parts)}]


async def test_it_answers_with_text_and_tool_calls(
    models: ModelEmulator, web: httpx.AsyncClient
) -> None:
    models.replies(
        ScriptedReply(text="one", calls=[ScriptedCall(name="write", arguments={"path": "a"})])
    )
    tools = [{"functionDeclarations": [WRITE]}]
    system = {"parts": [{"text": "be kind"}]}

    told = (await _ask(web, tools=tools, systemInstruction=system)).json()

    (candidate,) = told["candidates"]
    words, call = candidate["content"]["parts"]
    assert (words["text"], candidate["finishReason"]) == ("one", "STOP")
    assert call["functionCall"]["args"] == {"path": "a"}
    assert told["usageMetadata"]["totalTokenCount"] > 0
    asked = models.requests[0]
    assert (asked.api, asked.model, asked.system) == ("gemini", TWO, "be kind")
    assert (asked.user_texts, list(asked.tools), asked.stream) == (("hi",), ["write"], False)


async def test_a_stream_adds_up_to_the_whole_answer(
    models: ModelEmulator, web: httpx.AsyncClient
) -> None:
    models.replies(ScriptedReply(text="one two three", calls=[ScriptedCall(name="write")]))

    answer = await web.post(
        f"/v1beta/models/{TWO}:streamGenerateContent?alt=sse", json={"contents": [ASK]}
    )

    chunks = _chunks(answer)
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    assert "".join(part.get("text", "") for part in parts) == "one two three"
    assert parts[-1]["functionCall"]["name"] == "write"
    ends = [chunk["candidates"][0].get("finishReason") for chunk in chunks]
    assert ends == [None] * (len(chunks) - 1) + ["STOP"]


async def test_a_stream_without_events_is_an_array(
    models: ModelEmulator, web: httpx.AsyncClient
) -> None:
    models.replies(ScriptedReply(text="one two"))

    answer = await web.post(f"/v1beta/models/{TWO}:streamGenerateContent", json={"contents": [ASK]})

    assert len(answer.json()) > 1


async def test_tool_results_are_recorded_by_tool(
    models: ModelEmulator, web: httpx.AsyncClient
) -> None:
    models.replies(ScriptedReply(text="ok"))

    await _ask(web, contents=[*_calls(MADE), ANSWER])

    assert models.requests[0].tool_results == (("write", "{'output': 'ok'}"),)


async def test_a_signed_call_is_accepted_in_history_and_an_unsigned_one_is_not(
    models: ModelEmulator, web: httpx.AsyncClient
) -> None:
    models.replies(ScriptedReply(calls=[ScriptedCall(name="write")]), ScriptedReply(text="ok"))
    first = (await _ask(web, THREE)).json()
    made = first["candidates"][0]["content"]["parts"]

    signed = await _ask(web, THREE, contents=[*_calls(*made), ANSWER])
    unsigned = await _ask(web, THREE, contents=[*_calls(MADE), ANSWER])
    older = await _ask(web, THREE, contents=[*_calls(MADE), ANSWER, ASK])

    assert (signed.status_code, unsigned.status_code, older.status_code) == (200, 400, 200)
    assert "missing a thought_signature" in unsigned.json()["error"]["message"]


async def test_token_counting_gives_no_answer(
    models: ModelEmulator, web: httpx.AsyncClient
) -> None:
    answer = await web.post(f"/v1beta/models/{TWO}:countTokens", json={"contents": [ASK]})

    assert answer.json()["totalTokens"] > 0
    assert models.requests == []


@pytest.mark.parametrize(("stop", "told"), [("cut", "MAX_TOKENS"), ("refused", "SAFETY")])
async def test_an_answer_may_be_truncated_or_refused(
    models: ModelEmulator, web: httpx.AsyncClient, stop: Any, told: str
) -> None:
    models.replies(ScriptedReply(text="no", stop=stop))

    answer = (await _ask(web)).json()

    assert answer["candidates"][0]["finishReason"] == told


async def test_failures_have_the_real_apis_format(
    models: ModelEmulator, web: httpx.AsyncClient
) -> None:
    models.replies(
        ScriptedReply(failure=ScriptedFailure(status=429, message="slow down", retry_after="3"))
    )

    answer = await _ask(web)

    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert answer.json()["error"] == {
        "code": 429,
        "message": "slow down",
        "status": "RESOURCE_EXHAUSTED",
    }


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"contents": []}, "contents is not specified"),
        ({"contents": [{"role": "system", "parts": [{"text": "x"}]}]}, "valid role: user, model"),
        ({"contents": [{"role": "user", "parts": []}]}, "parts must not be empty"),
        ({"contents": [{"role": "user", "parts": [{}]}]}, "must have one initialized"),
        ({"contents": [{"role": "user", "parts": [{"words": "x"}]}]}, 'Unknown name "words"'),
        ({"messages": []}, 'Unknown name "messages"'),
        ({"contents": [*_calls(MADE), ASK]}, "equal to the number of function call parts"),
        ({"contents": [*_calls(MADE, MADE), ANSWER]}, "equal to the number of function call"),
        ({"contents": [ASK, ANSWER]}, "immediately after a function call turn"),
        ({"contents": _calls(MADE)[1:]}, "immediately after a user turn"),
        ({"generationConfig": {"temperature": 3}}, "must be in the range"),
        ({"generationConfig": {"warmth": 3}}, 'Unknown name "warmth"'),
        ({"generationConfig": {"responseSchema": {"type": "OBJECT"}}}, "response mime type"),
        ({"generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH"}}}, "not supported"),
        ({"tools": [{"functionDeclarations": [{"name": "1x"}]}]}, "Invalid function name"),
        ({"tools": [{"functionDeclarations": [WRITE, WRITE]}]}, "Duplicate function"),
        (
            {"tools": [{"functionDeclarations": [{"name": "x", "parameters": {"$ref": "#"}}]}]},
            'Unknown name "$ref"',
        ),
        (
            {
                "tools": [{"functionDeclarations": [WRITE]}],
                "generationConfig": {"responseMimeType": "application/json"},
            },
            "Function calling with a response mime type",
        ),
        (
            {"toolConfig": {"functionCallingConfig": {"allowedFunctionNames": ["write"]}}},
            "mode is ANY",
        ),
    ],
)
async def test_requests_the_real_api_would_refuse_are_refused(
    models: ModelEmulator, web: httpx.AsyncClient, more: dict[str, Any], message: str
) -> None:
    answer = await _ask(web, **more)

    told = answer.json()["error"]
    assert (answer.status_code, told["status"]) == (400, "INVALID_ARGUMENT")
    assert message in told["message"]
    assert models.requests == []


async def test_another_model_or_key_is_refused(
    models: ModelEmulator, web: httpx.AsyncClient
) -> None:
    lost = await _ask(web, "gemini-0")
    web.headers["x-goog-api-key"] = "another"
    wrong = await _ask(web)
    del web.headers["x-goog-api-key"]
    without = await _ask(web)

    assert [each.status_code for each in (lost, wrong, without)] == [404, 400, 403]
    assert wrong.json()["error"]["details"][0]["reason"] == "API_KEY_INVALID"
