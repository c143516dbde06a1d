"""Both model APIs behind one protocol: they stream, use tools and fill in forms."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from bot.engine.llm.access import Access, Api
from bot.engine.llm.answers import StepAnswer
from bot.engine.llm.api import ApiBackend
from bot.engine.llm.base import Backend, BackendDenied, BadAnswer, Purpose
from bot.engine.llm.events import TextDelta, ToolFinished, ToolStarted
from tests.bot.engine.llm.world import (
    MODELS,
    request_to,
    run_to_end,
    text_of,
    tool_that,
)
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Call, Reply

STEP: dict[str, Any] = {
    "status": "done",
    "summary": "It is done.",
    "files": ["a.md"],
    "needs_replan": False,
}
WRITE = Call(name="write", arguments={"path": "a.md", "content": "x"})
FINAL = Call(name="final_result", arguments=STEP)


async def test_an_answer_streams_from_its_first_word(
    models: Models, api: Api, backend: Backend
) -> None:
    models.replies(Reply(text="First words come with the start."))

    events, result = await run_to_end(backend, request_to(api))

    assert len(events) > 5
    assert text_of(events) == result.text == "First words come with the start."
    assert result.value is None
    assert result.model == MODELS[api]
    assert models.requests[0].stream
    assert models.requests[0].system == "You are a test."
    assert models.refused == []


async def test_tools_are_called_and_the_form_is_filled_in(
    models: Models, api: Api, backend: Backend
) -> None:
    calls: list[Mapping[str, Any]] = []
    models.replies(Reply(text="I write.", calls=[WRITE]), Reply(text="Now.", calls=[FINAL]))
    tool = tool_that("Wrote a.md\nand more", calls)
    request = request_to(api, purpose=Purpose.STEP, tools=(tool,), result=StepAnswer)

    events, result = await run_to_end(backend, request)

    assert calls == [{"path": "a.md", "content": "x"}]
    assert result.value == StepAnswer(**STEP)
    assert text_of(events) == result.text == "I write.\n\nNow."
    shown = [event for event in events if not isinstance(event, TextDelta)]
    assert isinstance(shown[0], ToolStarted)
    assert (shown[0].name, shown[0].title) == ("write", "write a.md")
    assert shown[1:] == [ToolFinished(call_id=shown[0].call_id, good=True, summary="Wrote a.md")]
    assert models.requests[1].results == (("write", "Wrote a.md\nand more"),)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (Call(name="write", arguments={"content": "x"}), "missing: path"),
        (Call(name="write", arguments={"path": "a", "mode": 1}), "unknown: mode"),
        (Call(name="write", arguments={"path": 7}), "path must be of type string"),
    ],
)
async def test_wrong_arguments_are_told_to_the_model_and_never_reach_the_tool(
    models: Models, api: Api, backend: Backend, call: Call, says: str
) -> None:
    calls: list[Mapping[str, Any]] = []
    models.replies(Reply(calls=[call]), Reply(text="I see."))

    events, _ = await run_to_end(backend, request_to(api, tools=(tool_that("", calls),)))

    assert calls == []
    assert says in models.requests[1].results[0][1]
    assert [event.good for event in events if isinstance(event, ToolFinished)] == [False]


async def test_an_error_text_of_a_tool_is_no_success(
    models: Models, api: Api, backend: Backend
) -> None:
    models.replies(Reply(calls=[WRITE]), Reply(text="I see."))
    tool = tool_that("Error: disk full", [])

    events, _ = await run_to_end(backend, request_to(api, tools=(tool,)))

    assert [event.good for event in events if isinstance(event, ToolFinished)] == [False]


async def test_a_broken_tool_is_our_fault_and_not_the_models(
    models: Models, api: Api, backend: Backend
) -> None:
    class Broken(Exception):
        pass

    async def run(arguments: Mapping[str, Any]) -> str:
        raise Broken

    models.replies(Reply(calls=[WRITE]))
    tool = tool_that("", [])

    with pytest.raises(Broken):
        await run_to_end(
            backend,
            request_to(
                api,
                tools=(type(tool)(name=tool.name, description="", schema=tool.schema, run=run),),
            ),
        )


async def test_silence_after_a_tool_is_an_answer(
    models: Models, api: Api, backend: Backend
) -> None:
    models.replies(Reply(calls=[WRITE]), Reply(text=""))

    _, result = await run_to_end(backend, request_to(api, tools=(tool_that("ok", []),)))

    assert result.text == ""
    assert len(models.requests) == 2


async def test_a_form_filled_in_wrongly_is_asked_for_once_more(
    models: Models, api: Api, backend: Backend
) -> None:
    wrong = Call(name="final_result", arguments={**STEP, "status": "perhaps"})
    models.replies(Reply(calls=[wrong]), Reply(calls=[FINAL]))

    _, result = await run_to_end(backend, request_to(api, result=StepAnswer))

    assert result.value == StepAnswer(**STEP)
    assert len(models.requests) == 2


_WRONG = Reply(calls=[Call(name="final_result", arguments={"status": 5})])
_CUT_OFF = Reply(calls=[Call(name="final_result", raw='{"status": "do')], stop="cut")


@pytest.mark.parametrize(
    "replies",
    [
        (_WRONG, _WRONG),
        (Reply(text="It is done, I think."), Reply(text="Really.")),
        (Reply(text=""), Reply(text="")),
        (_CUT_OFF, _CUT_OFF),
        (Reply(text="It is do", stop="cut"), Reply(text="It is do", stop="cut")),
        (
            Reply(calls=[Call(name="final_result", raw="{no json")]),
            Reply(calls=[Call(name="final_result", raw="{no json")]),
        ),
        (Reply(text="I cannot help.", stop="refused"), Reply(text="No.", stop="refused")),
    ],
)
async def test_a_form_never_filled_in_is_a_bad_answer(
    models: Models, api: Api, backend: Backend, replies: tuple[Reply, ...]
) -> None:
    models.replies(*replies)

    with pytest.raises(BadAnswer) as error:
        await run_to_end(backend, request_to(api, result=StepAnswer))

    assert len(models.requests) <= 2
    assert error.value.usage.requests == len(models.requests)
    assert error.value.usage.output_tokens > 0


@pytest.mark.parametrize(
    ("access", "hint"),
    [
        (Access(api=Api.ANTHROPIC, key=""), "backend.no_anthropic_key"),
        (Access(api=Api.ANTHROPIC, key="", base_url="http://x"), "backend.no_anthropic_key"),
        (Access(api=Api.ANTHROPIC, key="k"), ""),
        (Access(api=Api.OPENAI, key=""), "backend.no_openai_key"),
        (Access(api=Api.OPENAI, key="", base_url="http://x"), ""),
        (Access(api=Api.OPENAI, key="k"), ""),
    ],
)
async def test_what_is_missing_is_said(access: Access, hint: str) -> None:
    backend = ApiBackend(access, ())

    assert (await backend.check()).problem == hint
    if hint:
        with pytest.raises(BackendDenied):
            await run_to_end(backend, request_to(access.api))


def test_nothing_heavy_is_loaded_before_a_model_is_used() -> None:
    code = (
        "import sys\n"
        "import bot.engine.llm.base, bot.engine.llm.offline, bot.engine.llm.api\n"
        "import bot.engine.llm.registry\n"
        "heavy = {'pydantic_ai', 'anthropic', 'openai', 'httpx', 'httpx2', 'genai_prices'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )

    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert out.stdout.strip() == "[]"
