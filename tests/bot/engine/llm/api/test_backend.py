"""Both model APIs behind one protocol: they stream, use tools and fill in forms."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.api.access import ApiAccess, ApiProvider
from bot.engine.llm.api.backend import ApiBackend
from bot.engine.llm.backend import (
    Backend,
    BackendDenied,
    InvalidAnswer,
    RunPurpose,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from tests.bot.engine.llm.builders import (
    MODELS,
    build_request,
    collect_run,
    joined_text,
    recording_tool,
)
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ScriptedCall, ScriptedReply
from tests.waiting import WAIT_SECONDS

STEP: dict[str, Any] = {
    "status": "done",
    "summary": "It is done.",
    "files": ["a.md"],
    "needs_replan": False,
}
WRITE = ScriptedCall(name="write", arguments={"path": "a.md", "content": "x"})
FINAL = ScriptedCall(name="final_result", arguments=STEP)


async def test_an_answer_streams_from_its_first_word(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    models.replies(ScriptedReply(text="First words come with the start."))

    events, result = await collect_run(backend, build_request(api))

    assert len(events) > 5
    assert joined_text(events) == result.text == "First words come with the start."
    assert result.value is None
    assert result.model == MODELS[api]
    assert models.requests[0].stream
    assert models.requests[0].system == "You are a test."
    assert models.refused == []


async def test_tools_are_called_and_the_form_is_filled_in(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    calls: list[Mapping[str, Any]] = []
    models.replies(
        ScriptedReply(text="I write.", calls=[WRITE]), ScriptedReply(text="Now.", calls=[FINAL])
    )
    tool = recording_tool("Wrote a.md\nand more", calls)
    request = build_request(api, purpose=RunPurpose.STEP, tools=(tool,), result=StepAnswer)

    events, result = await collect_run(backend, request)

    assert calls == [{"path": "a.md", "content": "x"}]
    assert result.value == StepAnswer(**STEP)
    assert joined_text(events) == result.text == "I write.\n\nNow."
    shown = [event for event in events if not isinstance(event, TextDelta)]
    assert isinstance(shown[0], ToolStarted)
    assert (shown[0].name, shown[0].title) == ("write", "write a.md")
    assert shown[1:] == [
        ToolFinished(call_id=shown[0].call_id, succeeded=True, summary="Wrote a.md")
    ]
    assert models.requests[1].tool_results == (("write", "Wrote a.md\nand more"),)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (ScriptedCall(name="write", arguments={"content": "x"}), "missing: path"),
        (ScriptedCall(name="write", arguments={"path": "a", "mode": 1}), "unknown: mode"),
        (ScriptedCall(name="write", arguments={"path": 7}), "path must be of type string"),
    ],
)
async def test_wrong_arguments_are_told_to_the_model_and_never_reach_the_tool(
    models: ModelEmulator, api: ApiProvider, backend: Backend, call: ScriptedCall, says: str
) -> None:
    calls: list[Mapping[str, Any]] = []
    models.replies(ScriptedReply(calls=[call]), ScriptedReply(text="I see."))

    events, _ = await collect_run(backend, build_request(api, tools=(recording_tool("", calls),)))

    assert calls == []
    assert says in models.requests[1].tool_results[0][1]
    assert [event.succeeded for event in events if isinstance(event, ToolFinished)] == [False]


async def test_an_error_text_of_a_tool_is_no_success(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    models.replies(ScriptedReply(calls=[WRITE]), ScriptedReply(text="I see."))
    tool = recording_tool("Error: disk full", [])

    events, _ = await collect_run(backend, build_request(api, tools=(tool,)))

    assert [event.succeeded for event in events if isinstance(event, ToolFinished)] == [False]


async def test_a_broken_tool_is_our_fault_and_not_the_models(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    class Broken(Exception):
        pass

    async def run(arguments: Mapping[str, Any]) -> str:
        raise Broken

    models.replies(ScriptedReply(calls=[WRITE]))
    tool = recording_tool("", [])

    with pytest.raises(Broken):
        await collect_run(
            backend,
            build_request(
                api,
                tools=(type(tool)(name=tool.name, description="", schema=tool.schema, run=run),),
            ),
        )


async def test_silence_after_a_tool_is_an_answer(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    models.replies(ScriptedReply(calls=[WRITE]), ScriptedReply(text=""))

    _, result = await collect_run(backend, build_request(api, tools=(recording_tool("ok", []),)))

    assert result.text == ""
    assert len(models.requests) == 2


async def test_a_form_filled_in_wrongly_is_asked_for_once_more(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    wrong = ScriptedCall(name="final_result", arguments={**STEP, "status": "perhaps"})
    models.replies(ScriptedReply(calls=[wrong]), ScriptedReply(calls=[FINAL]))

    _, result = await collect_run(backend, build_request(api, result=StepAnswer))

    assert result.value == StepAnswer(**STEP)
    assert len(models.requests) == 2


_WRONG = ScriptedReply(calls=[ScriptedCall(name="final_result", arguments={"status": 5})])
_CUT_OFF = ScriptedReply(
    calls=[ScriptedCall(name="final_result", raw='{"status": "do')], stop="cut"
)


@pytest.mark.parametrize(
    "replies",
    [
        (_WRONG, _WRONG),
        (ScriptedReply(text="It is done, I think."), ScriptedReply(text="Really.")),
        (ScriptedReply(text=""), ScriptedReply(text="")),
        (_CUT_OFF, _CUT_OFF),
        (ScriptedReply(text="It is do", stop="cut"), ScriptedReply(text="It is do", stop="cut")),
        (
            ScriptedReply(calls=[ScriptedCall(name="final_result", raw="{no json")]),
            ScriptedReply(calls=[ScriptedCall(name="final_result", raw="{no json")]),
        ),
        (
            ScriptedReply(text="I cannot help.", stop="refused"),
            ScriptedReply(text="No.", stop="refused"),
        ),
    ],
)
async def test_a_form_never_filled_in_is_a_bad_answer(
    models: ModelEmulator, api: ApiProvider, backend: Backend, replies: tuple[ScriptedReply, ...]
) -> None:
    models.replies(*replies)

    with pytest.raises(InvalidAnswer) as error:
        await collect_run(backend, build_request(api, result=StepAnswer))

    assert len(models.requests) <= 2
    assert error.value.usage.requests == len(models.requests)
    assert error.value.usage.output_tokens > 0


@pytest.mark.parametrize(
    ("access", "hint"),
    [
        (ApiAccess(provider=ApiProvider.ANTHROPIC, key=""), "backend.no_anthropic_key"),
        (
            ApiAccess(provider=ApiProvider.ANTHROPIC, key="", base_url="http://x"),
            "backend.no_anthropic_key",
        ),
        (ApiAccess(provider=ApiProvider.ANTHROPIC, key="k"), ""),
        (ApiAccess(provider=ApiProvider.OPENAI, key=""), "backend.no_openai_key"),
        (ApiAccess(provider=ApiProvider.OPENAI, key="", base_url="http://x"), ""),
        (ApiAccess(provider=ApiProvider.OPENAI, key="k"), ""),
    ],
)
async def test_what_is_missing_is_said(access: ApiAccess, hint: str) -> None:
    backend = ApiBackend(access, ())

    assert (await backend.check()).problem == hint
    if hint:
        with pytest.raises(BackendDenied):
            await collect_run(backend, build_request(access.provider))


def test_nothing_heavy_is_loaded_before_a_model_is_used() -> None:
    code = (
        "import sys\n"
        "import bot.engine.llm.backend, bot.engine.llm.offline.backend\n"
        "import bot.engine.llm.api.backend\n"
        "import bot.engine.llm.backend_registry\n"
        "heavy = {'pydantic_ai', 'anthropic', 'openai', 'httpx', 'httpx2', 'genai_prices'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )

    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS,
    )

    assert out.stdout.strip() == "[]"


async def test_the_reader_of_events_is_built_before_the_first_answer(models: ModelEmulator) -> None:
    # The SDK keeps what it has built for the whole process.
    built: Any = import_module("anthropic._models").__dict__["_CachedTypeAdapter"]
    access = ApiAccess(provider=ApiProvider.ANTHROPIC, key=models.key, base_url=models.url)
    backend = ApiBackend(access, ())
    built.cache_clear()

    await backend.preload(MODELS[ApiProvider.ANTHROPIC])
    before = built.cache_info().misses
    await collect_run(backend, build_request(ApiProvider.ANTHROPIC))
    await backend.aclose()

    assert built.cache_info().misses == before
