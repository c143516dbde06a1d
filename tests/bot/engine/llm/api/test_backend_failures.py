"""How a model API can fail, run out or be cut short, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from bot.engine.llm.api.access import ApiAccess, ApiProvider
from bot.engine.llm.api.backend import ApiBackend
from bot.engine.llm.api.error_mapping import translate_error
from bot.engine.llm.backend import (
    Backend,
    BackendDenied,
    BackendUnavailable,
    ContextTooLong,
    InvalidAnswer,
    RunLimitReached,
    RunLimits,
    RunNotice,
    TextDelta,
    TokenUsage,
)
from tests.bot.engine.llm.builders import build_backend, build_request, collect_run, recording_tool
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import (
    ReceivedRequest,
    ScriptedCall,
    ScriptedFailure,
    ScriptedReply,
)
from tests.waiting import WAIT_SECONDS, let_time_pass, wait_until

WRITE = ScriptedCall(name="write", arguments={"path": "a.md", "content": "x"})


@pytest.mark.parametrize(
    "reply",
    [
        ScriptedReply(text=""),
        ScriptedReply(text="  \n "),
        ScriptedReply(text=" \n", stop="cut"),
        ScriptedReply(text="I cannot help with that.", stop="refused"),
        ScriptedReply(garbage="<html>no model here</html>"),
        ScriptedReply(garbage="{}"),
        ScriptedReply(garbage="data: {not json}\n\n"),
        ScriptedReply(garbage='data: {"choices": [{"delta": 5}]}\n\n'),
        ScriptedReply(garbage='event: message_start\ndata: {"type": "message_start"}\n\n'),
        ScriptedReply(garbage=""),
    ],
)
async def test_empty_cut_refused_and_garbled_answers_are_bad(
    models: ModelEmulator, api: ApiProvider, backend: Backend, reply: ScriptedReply
) -> None:
    models.replies(reply, reply)

    with pytest.raises(InvalidAnswer):
        await collect_run(backend, build_request(api))


async def test_a_text_that_is_cut_off_is_kept_as_far_as_it_came_and_can_be_gone_on_with(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    models.replies(ScriptedReply(text="half a sen", stop="cut"), ScriptedReply(text="tence"))

    events, half = await collect_run(backend, build_request(api))
    _, rest = await collect_run(backend, build_request(api, history=half.new_history))

    assert (half.text, half.truncated, half.value) == ("half a sen", True, None)
    assert half.usage.requests == 1
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "half a sen"
    assert (rest.text, rest.truncated) == ("tence", False)
    assert "half a sen" in str(models.requests[-1].body)


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (ScriptedFailure(status=400), BackendDenied),
        (ScriptedFailure(status=401), BackendDenied),
        (ScriptedFailure(status=402), BackendDenied),
        (ScriptedFailure(status=403), BackendDenied),
        (ScriptedFailure(status=404), BackendDenied),
        (ScriptedFailure(status=413), BackendDenied),
        (ScriptedFailure(status=408), BackendUnavailable),
        (ScriptedFailure(status=429, retry_after="7"), BackendUnavailable),
        (ScriptedFailure(status=500), BackendUnavailable),
        (ScriptedFailure(status=502), BackendUnavailable),
        (ScriptedFailure(status=503, retry_after="7"), BackendUnavailable),
        (ScriptedFailure(status=529), BackendUnavailable),
    ],
)
async def test_each_status_means_wait_or_give_up(
    models: ModelEmulator,
    api: ApiProvider,
    backend: Backend,
    failure: ScriptedFailure,
    raised: type[Exception],
) -> None:
    models.replies(ScriptedReply(failure=failure))

    with pytest.raises(raised) as error:
        await collect_run(backend, build_request(api))

    assert len(models.requests) == 1, "the SDK must not retry by itself"
    if failure.retry_after:
        assert isinstance(error.value, BackendUnavailable)
        assert error.value.retry_after == 7.0


@pytest.mark.parametrize(
    ("message", "raised"),
    [
        ("prompt is too long: 250000 tokens > 200000 maximum", RunLimitReached),
        ("Your credit balance is too low to access the API.", BackendDenied),
    ],
)
async def test_anthropics_special_refusals(
    models: ModelEmulator, claude: Backend, message: str, raised: type[Exception]
) -> None:
    models.replies(ScriptedReply(failure=ScriptedFailure(status=400, message=message)))

    with pytest.raises(raised):
        await collect_run(claude, build_request(ApiProvider.ANTHROPIC))


@pytest.mark.parametrize(
    ("message", "window"),
    [
        ("prompt is too long: 250000 tokens > 200000 maximum", 200_000),
        ("input length and `max_tokens` exceed context limit: 190000 + 16000 > 200000", 200_000),
        ("This model's maximum context length is 8,192 tokens. However, you requested 9000", 8_192),
        ("'max_tokens' is too large: 16000. This model's maximum context length is 8192", 8_192),
        ("request (5000 tokens) exceeds the available context size (4096 tokens)", 4_096),
        ("Requested tokens (5000) exceed context window of 4096", 4_096),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed", 0),
        ("Range of input length should be [1, 30720]", 30_720),
        ("Your request exceeded model token limit: 8192 (requested: 9000)", 8_192),
        ("Request too large: Limit 6000, Requested 8000, please reduce your message size", 6_000),
        ("Prompt 超长", 0),
    ],
)
def test_however_a_service_says_it_what_is_too_long_is_known_as_that(
    message: str, window: int
) -> None:
    for body in ({"error": {"message": message}}, [{"error": {"message": message}}]):
        error = ModelHTTPError(status_code=400, model_name="m", body=body)
        failure = translate_error(error, TokenUsage(), "key")

        assert isinstance(failure, ContextTooLong)
        assert failure.window == window


def test_what_is_too_long_in_another_way_is_refused() -> None:
    body = {"error": {"message": "the name of a tool is too long"}}
    error = ModelHTTPError(status_code=400, model_name="m", body=body)

    assert isinstance(translate_error(error, TokenUsage(), "key"), BackendDenied)


async def test_no_quota_is_not_a_rate_limit(models: ModelEmulator, gpt: Backend) -> None:
    failure = ScriptedFailure(status=429, kind="insufficient_quota", code="insufficient_quota")
    models.replies(ScriptedReply(failure=failure))

    with pytest.raises(BackendDenied):
        await collect_run(gpt, build_request(ApiProvider.OPENAI))


async def test_an_error_within_a_stream_is_translated_too(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    kind = "overloaded_error" if api is ApiProvider.ANTHROPIC else "server_error"
    failure = ScriptedFailure(status=529, kind=kind, message="too busy")
    models.replies(ScriptedReply(text="a b c d e f", failure=failure, fail_after=5))

    with pytest.raises(BackendUnavailable, match="too busy"):
        await collect_run(backend, build_request(api))


@pytest.mark.parametrize("pieces", [0, 5])
async def test_a_broken_connection_is_unavailability(
    models: ModelEmulator, api: ApiProvider, backend: Backend, pieces: int
) -> None:
    models.replies(ScriptedReply(text="a b c d e f", drop_after=pieces))

    with pytest.raises(BackendUnavailable):
        await collect_run(backend, build_request(api))


async def test_nobody_listening_is_unavailability(models: ModelEmulator, api: ApiProvider) -> None:
    access = ApiAccess(provider=api, key="k", base_url="http://127.0.0.1:9/v1")
    backend = ApiBackend(access, ())

    with pytest.raises(BackendUnavailable):
        await collect_run(backend, build_request(api))
    await backend.aclose()


async def test_a_service_that_falls_silent_is_unavailable(
    models: ModelEmulator, api: ApiProvider
) -> None:
    models.replies(ScriptedReply(text="a b c", hold=asyncio.Event(), hold_after=3))
    backend = build_backend(models, api, max_silence=0.05)

    with pytest.raises(BackendUnavailable):
        await collect_run(backend, build_request(api))
    await backend.aclose()


async def test_a_service_that_only_keeps_its_connection_alive_is_unavailable(
    models: ModelEmulator, api: ApiProvider
) -> None:
    held = ScriptedReply(text="a b c", hold=asyncio.Event(), hold_after=3, keeps_alive=True)
    models.replies(held)
    backend = build_backend(models, api, max_silence=0.5, silence_notice=0.1)

    with pytest.raises(BackendUnavailable, match=r"silent for 0\.5 seconds"):
        await collect_run(backend, build_request(api))
    await backend.aclose()


async def test_people_are_told_that_a_model_is_silent_and_nobody_that_a_tool_is(
    models: ModelEmulator, api: ApiProvider
) -> None:
    go, patience = asyncio.Event(), WAIT_SECONDS / 3
    seen: list[str] = []

    async def slow(arguments: Mapping[str, Any]) -> str:
        seen.append("tool begins")
        await let_time_pass(patience + 1)
        seen.append("tool ends")
        return "done"

    async def be_silent() -> None:
        await wait_until(lambda: len(models.requests) == 2)
        await let_time_pass(patience + 1)

    models.replies(ScriptedReply(calls=[WRITE]), ScriptedReply(text="Fine.", hold=go))
    backend = build_backend(models, api, silence_notice=patience, max_silence=2 * WAIT_SECONDS)
    tool = replace(recording_tool("ok", []), run=slow)
    silence = asyncio.create_task(be_silent())
    async with backend.run(build_request(api, tools=(tool,))) as run:
        async for event in run.events:
            if isinstance(event, RunNotice):
                seen.append("told")
                go.set()
    await silence
    await backend.aclose()

    assert seen == ["tool begins", "tool ends", "told"]
    assert run.result.text == "Fine."


async def test_an_unknown_model_is_denied(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    with pytest.raises(BackendDenied, match="no-such-model"):
        await collect_run(backend, build_request(api, model="no-such-model"))


async def test_turns_are_limited(models: ModelEmulator, api: ApiProvider, backend: Backend) -> None:
    paths = iter("abcdef")
    models.replies(lambda _: ScriptedReply(calls=[replace(WRITE, arguments={"path": next(paths)})]))
    calls: list[Mapping[str, Any]] = []
    limits = RunLimits(turns=3)

    with pytest.raises(RunLimitReached) as error:
        await collect_run(
            backend, build_request(api, tools=(recording_tool("ok", calls),), limits=limits)
        )

    assert len(models.requests) == len(calls) == 3
    assert error.value.usage.requests == 3
    assert error.value.hint == "backend.limit_turns"


async def test_output_tokens_are_limited_over_all_turns(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    models.replies(lambda _: ScriptedReply(text="many words " * 40, calls=[WRITE]))
    limits = RunLimits(output_tokens=200)

    with pytest.raises(RunLimitReached) as error:
        await collect_run(
            backend, build_request(api, tools=(recording_tool("ok", []),), limits=limits)
        )

    assert error.value.usage.output_tokens > 200
    assert error.value.hint == "backend.limit_tokens"
    body = models.requests[0].body
    assert body.get("max_tokens", body.get("max_completion_tokens")) == 200


async def test_time_is_limited_and_the_call_really_ends(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    def endless(_asked: ReceivedRequest) -> ScriptedReply:
        return ScriptedReply(text="a b c", hold=asyncio.Event(), hold_after=3)

    models.replies(endless)
    for seconds in (0.2, 20.0):
        with pytest.raises(RunLimitReached) as error:
            await collect_run(backend, build_request(api, limits=RunLimits(seconds=seconds)))
        assert error.value.hint == "backend.limit_seconds"
        if models.requests:  # a busy machine has not even asked by then
            break

    await models.wait_for_disconnect()


async def test_time_is_limited_within_a_tool(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    async def run(arguments: Mapping[str, Any]) -> str:
        await asyncio.Event().wait()
        return ""

    models.replies(ScriptedReply(calls=[WRITE]))
    tool = recording_tool("", [])
    slow = type(tool)(name=tool.name, description="", schema=tool.schema, run=run)

    with pytest.raises(RunLimitReached):
        await collect_run(backend, build_request(api, tools=(slow,), limits=RunLimits(seconds=0.2)))


async def test_cancelling_ends_the_call_on_the_wire(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    models.replies(ScriptedReply(text="a b c", hold=asyncio.Event(), hold_after=4))
    work = asyncio.ensure_future(collect_run(backend, build_request(api)))
    await models.wait_for_request()

    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work

    await models.wait_for_disconnect()


async def test_what_was_cut_off_is_known_to_have_cost_something(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    calls: list[Mapping[str, Any]] = []
    wanted = ScriptedCall(name="write", arguments={"path": "a"})
    models.replies(
        ScriptedReply(calls=[wanted]),
        ScriptedReply(text="a b c", hold=asyncio.Event(), hold_after=4),
    )
    async with backend.run(build_request(api, tools=(recording_tool("", calls),))) as run:
        async for event in run.events:
            if isinstance(event, TextDelta):
                break

    assert (run.usage_so_far.requests, run.usage_so_far.input_tokens > 0) == (2, True)
    assert run.usage_so_far.cost


async def test_leaving_the_context_ends_the_call_on_the_wire(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    models.replies(ScriptedReply(text="a b c d e", hold=asyncio.Event(), hold_after=6))

    async with backend.run(build_request(api)) as run:
        first = await anext(run.events)
        assert isinstance(first, TextDelta)

    await models.wait_for_disconnect()


@pytest.mark.parametrize(
    "failure",
    [
        ScriptedFailure(status=401, message="the key KEY is wrong"),
        ScriptedFailure(status=400, message="bad request with KEY in it"),
        ScriptedFailure(status=500, message="KEY"),
    ],
)
async def test_the_key_is_in_no_error_and_no_log(
    models: ModelEmulator,
    api: ApiProvider,
    failure: ScriptedFailure,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    echoed = ScriptedFailure(
        status=failure.status, message=failure.message.replace("KEY", models.key)
    )
    models.replies(ScriptedReply(failure=echoed))
    backend = build_backend(models, api)

    with pytest.raises(Exception, match=r".") as error:
        await collect_run(backend, build_request(api))

    shown = [str(error.value), repr(error.value), str(error.value.__cause__)]
    assert error.value.__suppress_context__
    assert models.key not in " ".join([*shown, repr(backend), repr(backend._access)])
    ours = [record for record in caplog.records if record.name.startswith("bot.")]
    assert models.key not in " ".join(record.getMessage() for record in ours)
    await backend.aclose()
