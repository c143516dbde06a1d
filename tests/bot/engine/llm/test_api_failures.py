"""How a model API can fail, run out or be cut short, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from bot.engine.llm.access import Access, Api
from bot.engine.llm.api import ApiBackend
from bot.engine.llm.api_errors import translated
from bot.engine.llm.base import (
    Backend,
    BackendDenied,
    BackendUnavailable,
    BadAnswer,
    LimitReached,
    Limits,
    TooLong,
    Usage,
)
from bot.engine.llm.events import TextDelta
from tests.bot.engine.llm.world import (
    backend_of,
    request_to,
    run_to_end,
    tool_that,
)
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Asked, Call, Failure, Reply

WRITE = Call(name="write", arguments={"path": "a.md", "content": "x"})


@pytest.mark.parametrize(
    "reply",
    [
        Reply(text=""),
        Reply(text="  \n "),
        Reply(text=" \n", stop="cut"),
        Reply(text="I cannot help with that.", stop="refused"),
        Reply(garbage="<html>no model here</html>"),
        Reply(garbage="{}"),
        Reply(garbage="data: {not json}\n\n"),
        Reply(garbage='data: {"choices": [{"delta": 5}]}\n\n'),
        Reply(garbage='event: message_start\ndata: {"type": "message_start"}\n\n'),
        Reply(garbage=""),
    ],
)
async def test_empty_cut_refused_and_garbled_answers_are_bad(
    models: Models, api: Api, backend: Backend, reply: Reply
) -> None:
    models.replies(reply, reply)

    with pytest.raises(BadAnswer):
        await run_to_end(backend, request_to(api))


async def test_a_text_that_is_cut_off_is_kept_as_far_as_it_came_and_can_be_gone_on_with(
    models: Models, api: Api, backend: Backend
) -> None:
    models.replies(Reply(text="half a sen", stop="cut"), Reply(text="tence"))

    events, half = await run_to_end(backend, request_to(api))
    _, rest = await run_to_end(backend, request_to(api, history=half.new_history))

    assert (half.text, half.cut, half.value) == ("half a sen", True, None)
    assert half.usage.requests == 1
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "half a sen"
    assert (rest.text, rest.cut) == ("tence", False)
    assert "half a sen" in str(models.requests[-1].body)


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (Failure(status=400), BackendDenied),
        (Failure(status=401), BackendDenied),
        (Failure(status=402), BackendDenied),
        (Failure(status=403), BackendDenied),
        (Failure(status=404), BackendDenied),
        (Failure(status=413), BackendDenied),
        (Failure(status=408), BackendUnavailable),
        (Failure(status=429, retry_after="7"), BackendUnavailable),
        (Failure(status=500), BackendUnavailable),
        (Failure(status=502), BackendUnavailable),
        (Failure(status=503, retry_after="7"), BackendUnavailable),
        (Failure(status=529), BackendUnavailable),
    ],
)
async def test_each_status_means_wait_or_give_up(
    models: Models, api: Api, backend: Backend, failure: Failure, raised: type[Exception]
) -> None:
    models.replies(Reply(failure=failure))

    with pytest.raises(raised) as error:
        await run_to_end(backend, request_to(api))

    assert len(models.requests) == 1, "the SDK must not retry by itself"
    if failure.retry_after:
        assert isinstance(error.value, BackendUnavailable)
        assert error.value.retry_after == 7.0


@pytest.mark.parametrize(
    ("message", "raised"),
    [
        ("prompt is too long: 250000 tokens > 200000 maximum", LimitReached),
        ("Your credit balance is too low to access the API.", BackendDenied),
    ],
)
async def test_anthropics_special_refusals(
    models: Models, claude: Backend, message: str, raised: type[Exception]
) -> None:
    models.replies(Reply(failure=Failure(status=400, message=message)))

    with pytest.raises(raised):
        await run_to_end(claude, request_to(Api.ANTHROPIC))


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
        failure = translated(error, Usage(), "key")

        assert isinstance(failure, TooLong)
        assert failure.window == window


def test_what_is_too_long_in_another_way_is_refused() -> None:
    body = {"error": {"message": "the name of a tool is too long"}}
    error = ModelHTTPError(status_code=400, model_name="m", body=body)

    assert isinstance(translated(error, Usage(), "key"), BackendDenied)


async def test_no_quota_is_not_a_rate_limit(models: Models, gpt: Backend) -> None:
    failure = Failure(status=429, kind="insufficient_quota", code="insufficient_quota")
    models.replies(Reply(failure=failure))

    with pytest.raises(BackendDenied):
        await run_to_end(gpt, request_to(Api.OPENAI))


async def test_an_error_within_a_stream_is_translated_too(
    models: Models, api: Api, backend: Backend
) -> None:
    kind = "overloaded_error" if api is Api.ANTHROPIC else "server_error"
    failure = Failure(status=529, kind=kind, message="too busy")
    models.replies(Reply(text="a b c d e f", failure=failure, fail_after=5))

    with pytest.raises(BackendUnavailable, match="too busy"):
        await run_to_end(backend, request_to(api))


@pytest.mark.parametrize("pieces", [0, 5])
async def test_a_broken_connection_is_unavailability(
    models: Models, api: Api, backend: Backend, pieces: int
) -> None:
    models.replies(Reply(text="a b c d e f", drop_after=pieces))

    with pytest.raises(BackendUnavailable):
        await run_to_end(backend, request_to(api))


async def test_nobody_listening_is_unavailability(models: Models, api: Api) -> None:
    access = Access(api=api, key="k", base_url="http://127.0.0.1:9/v1")
    backend = ApiBackend(access, ())

    with pytest.raises(BackendUnavailable):
        await run_to_end(backend, request_to(api))
    await backend.aclose()


async def test_a_service_that_falls_silent_is_unavailable(models: Models, api: Api) -> None:
    models.replies(Reply(text="a b c", hold=asyncio.Event(), hold_after=3))
    backend = backend_of(models, api, silence=0.05)

    with pytest.raises(BackendUnavailable):
        await run_to_end(backend, request_to(api))
    await backend.aclose()


async def test_an_unknown_model_is_denied(models: Models, api: Api, backend: Backend) -> None:
    with pytest.raises(BackendDenied, match="no-such-model"):
        await run_to_end(backend, request_to(api, model="no-such-model"))


async def test_turns_are_limited(models: Models, api: Api, backend: Backend) -> None:
    models.replies(lambda _: Reply(calls=[WRITE]))
    calls: list[Mapping[str, Any]] = []
    limits = Limits(turns=3)

    with pytest.raises(LimitReached) as error:
        await run_to_end(backend, request_to(api, tools=(tool_that("ok", calls),), limits=limits))

    assert len(models.requests) == len(calls) == 3
    assert error.value.usage.requests == 3


async def test_output_tokens_are_limited_over_all_turns(
    models: Models, api: Api, backend: Backend
) -> None:
    models.replies(lambda _: Reply(text="many words " * 40, calls=[WRITE]))
    limits = Limits(output_tokens=200)

    with pytest.raises(LimitReached) as error:
        await run_to_end(backend, request_to(api, tools=(tool_that("ok", []),), limits=limits))

    assert error.value.usage.output_tokens > 200
    body = models.requests[0].body
    assert body.get("max_tokens", body.get("max_completion_tokens")) == 200


async def test_time_is_limited_and_the_call_really_ends(
    models: Models, api: Api, backend: Backend
) -> None:
    def endless(_asked: Asked) -> Reply:
        return Reply(text="a b c", hold=asyncio.Event(), hold_after=3)

    models.replies(endless)
    for seconds in (0.2, 20.0):
        with pytest.raises(LimitReached):
            await run_to_end(backend, request_to(api, limits=Limits(seconds=seconds)))
        if models.requests:  # a busy machine has not even asked by then
            break

    await models.disconnected()


async def test_time_is_limited_within_a_tool(models: Models, api: Api, backend: Backend) -> None:
    async def run(arguments: Mapping[str, Any]) -> str:
        await asyncio.Event().wait()
        return ""

    models.replies(Reply(calls=[WRITE]))
    tool = tool_that("", [])
    slow = type(tool)(name=tool.name, description="", schema=tool.schema, run=run)

    with pytest.raises(LimitReached):
        await run_to_end(backend, request_to(api, tools=(slow,), limits=Limits(seconds=0.2)))


async def test_cancelling_ends_the_call_on_the_wire(
    models: Models, api: Api, backend: Backend
) -> None:
    models.replies(Reply(text="a b c", hold=asyncio.Event(), hold_after=4))
    work = asyncio.ensure_future(run_to_end(backend, request_to(api)))
    await models.asked()

    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work

    await models.disconnected()


async def test_what_was_cut_off_is_known_to_have_cost_something(
    models: Models, api: Api, backend: Backend
) -> None:
    calls: list[Mapping[str, Any]] = []
    wanted = Call(name="write", arguments={"path": "a"})
    models.replies(Reply(calls=[wanted]), Reply(text="a b c", hold=asyncio.Event(), hold_after=4))
    async with backend.run(request_to(api, tools=(tool_that("", calls),))) as run:
        async for event in run.events:
            if isinstance(event, TextDelta):
                break

    assert (run.spent.requests, run.spent.input_tokens > 0) == (2, True)
    assert run.spent.cost


async def test_leaving_the_context_ends_the_call_on_the_wire(
    models: Models, api: Api, backend: Backend
) -> None:
    models.replies(Reply(text="a b c d e", hold=asyncio.Event(), hold_after=6))

    async with backend.run(request_to(api)) as run:
        first = await anext(run.events)
        assert isinstance(first, TextDelta)

    await models.disconnected()


@pytest.mark.parametrize(
    "failure",
    [
        Failure(status=401, message="the key KEY is wrong"),
        Failure(status=400, message="bad request with KEY in it"),
        Failure(status=500, message="KEY"),
    ],
)
async def test_the_key_is_in_no_error_and_no_log(
    models: Models,
    api: Api,
    failure: Failure,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    echoed = Failure(status=failure.status, message=failure.message.replace("KEY", models.key))
    models.replies(Reply(failure=echoed))
    backend = backend_of(models, api)

    with pytest.raises(Exception, match=r".") as error:
        await run_to_end(backend, request_to(api))

    shown = [str(error.value), repr(error.value), str(error.value.__cause__)]
    assert error.value.__suppress_context__
    assert models.key not in " ".join([*shown, repr(backend), repr(backend._access)])
    ours = [record for record in caplog.records if record.name.startswith("bot.")]
    assert models.key not in " ".join(record.getMessage() for record in ours)
    await backend.aclose()
