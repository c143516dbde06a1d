"""Before each call somebody is asked whether it may be paid, and for how much."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from bot.engine.llm.access import Api
from bot.engine.llm.answers import StepAnswer
from bot.engine.llm.base import (
    MAX_ANSWER,
    Backend,
    BadAnswer,
    BudgetReached,
    CapHit,
    CutShort,
    Usage,
)
from bot.engine.llm.loop.sizes import PICTURE_TOKENS, input_tokens
from tests.bot.engine.llm.world import request_to, run_to_end, tool_that
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Asked, Call, Reply, tokens

WRITE = Call(name="write", arguments={"path": "a.md", "content": "x"})
HIT = CapHit(
    scope="task",
    subject="k3m9qa",
    day="",
    cap_micros=5,
    cap_tokens=0,
    spent_micros=5,
    spent_tokens=9,
    until=None,
)


class Doorkeeper:
    """Lets the first `calls` pass, with `most` tokens each."""

    def __init__(self, calls: int = 99, most: int = 50_000) -> None:
        self._calls = calls
        self._most = most
        self.asked: list[tuple[str, int, Usage]] = []

    async def __call__(self, model: str, input_tokens: int, spent: Usage) -> int:
        self.asked.append((model, input_tokens, spent))
        if len(self.asked) > self._calls:
            raise BudgetReached(HIT, usage=spent)
        return self._most


def most_of(asked: Asked) -> int:
    return int(asked.body.get("max_tokens") or asked.body["max_completion_tokens"])


async def test_every_turn_is_asked_for_with_what_the_run_has_used(
    models: Models, api: Api, backend: Backend
) -> None:
    models.replies(Reply(calls=[WRITE]), Reply(text="done"))
    door = Doorkeeper()

    _, result = await run_to_end(backend, request_to(api, tools=(tool_that("ok", []),), gate=door))

    assert [spent.requests for _, _, spent in door.asked] == [0, 1]
    assert door.asked[1][2].input_tokens > 0
    assert result.usage.requests == 2
    assert result.text == "done"


async def test_an_answer_may_be_no_longer_than_what_is_allowed(
    models: Models, api: Api, backend: Backend
) -> None:
    heard: list[Asked] = []

    def answer(asked: Asked) -> Reply:
        heard.append(asked)
        return Reply(text="short")

    models.replies(answer)
    await run_to_end(backend, request_to(api, gate=Doorkeeper(most=700)))
    await run_to_end(backend, request_to(api, gate=Doorkeeper(most=900_000)))

    assert [most_of(asked) for asked in heard] == [700, MAX_ANSWER]


async def test_a_call_that_may_not_be_paid_is_not_made(
    models: Models, api: Api, backend: Backend
) -> None:
    models.replies(Reply(calls=[WRITE]), Reply(text="never said"))

    with pytest.raises(BudgetReached) as reached:
        await run_to_end(
            backend, request_to(api, tools=(tool_that("ok", []),), gate=Doorkeeper(calls=1))
        )

    assert reached.value.hit == HIT
    assert reached.value.usage.requests == 1
    assert reached.value.usage.output_tokens > 0


async def test_a_run_that_has_not_begun_adds_nothing_to_its_session(
    api: Api, backend: Backend
) -> None:
    with pytest.raises(BudgetReached) as reached:
        await run_to_end(backend, request_to(api, gate=Doorkeeper(calls=0)))

    assert reached.value.new_history == ()
    assert reached.value.usage.requests == 0


async def test_what_is_paid_is_not_paid_again_however_often_the_run_is_stopped(
    models: Models, api: Api, backend: Backend
) -> None:
    """The history ends in what a tool said; services refuse a call without its result."""
    heard: list[Asked] = []

    def last(asked: Asked) -> Reply:
        heard.append(asked)
        return Reply(text="All is written.")

    models.replies(
        Reply(text="I write.", calls=[WRITE]),
        Reply(text="And again.", calls=[WRITE]),
        last,
    )
    calls: list[Any] = []
    history: tuple[Any, ...] = ()
    for said in ("first, please", "then go on"):
        with pytest.raises(BudgetReached) as reached:
            await run_to_end(
                backend,
                request_to(
                    api,
                    said,
                    tools=(tool_that("ok", calls),),
                    history=history,
                    gate=Doorkeeper(calls=1),
                ),
            )
        history += reached.value.new_history

    _, result = await run_to_end(
        backend,
        request_to(api, "and finish", tools=(tool_that("ok", calls),), history=history),
    )

    assert models.refused == []
    assert len(calls) == 2, "no tool is used again"
    assert result.text == "All is written."
    assert heard[0].said[:2] == ("first, please", "then go on")
    assert str(heard[0].body).count("call_id" if api is Api.OPENAI else "tool_use_id") == 2


async def test_a_form_that_the_lowered_length_cut_off_is_told_apart_and_not_asked_for_again(
    models: Models, api: Api, backend: Backend
) -> None:
    broken = '{"status": "do'
    half = Call(name="final_result", raw=broken)
    models.replies(Reply(calls=[WRITE]), Reply(calls=[half], stop="cut"), Reply(text="never"))
    door = Doorkeeper(most=2_000)

    request = request_to(api, result=StepAnswer, tools=(tool_that("ok", []),), gate=door)

    with pytest.raises(CutShort) as short:
        await run_to_end(backend, request)

    assert len(door.asked) == 2
    assert short.value.usage.requests == 2
    assert short.value.usage.input_tokens > door.asked[1][2].input_tokens
    assert "write" in str(short.value.new_history), "what came before is kept"
    assert broken not in str(short.value.new_history)


async def test_a_form_that_is_cut_off_at_the_longest_answer_is_a_bad_one(
    models: Models, api: Api, backend: Backend
) -> None:
    half = Reply(calls=[Call(name="final_result", raw='{"status": "do')], stop="cut")
    models.replies(half, half, half)

    with pytest.raises(BadAnswer) as bad:
        await run_to_end(backend, request_to(api, result=StepAnswer, gate=Doorkeeper()))

    assert not isinstance(bad.value, CutShort)


async def test_half_a_text_is_kept_whatever_cut_it_off(
    models: Models, api: Api, backend: Backend
) -> None:
    models.replies(Reply(text="half a", stop="cut"))

    _, result = await run_to_end(backend, request_to(api, gate=Doorkeeper(most=2_000)))

    assert (result.text, result.cut) == ("half a", True)


async def test_forms_pass_the_door_too(models: Models, api: Api, backend: Backend) -> None:
    step = {"status": "done", "summary": "It is done.", "files": [], "needs_replan": False}
    models.replies(Reply(calls=[Call(name="final_result", arguments=step)]))

    _, result = await run_to_end(
        backend, request_to(api, result=StepAnswer, gate=Doorkeeper(calls=1, most=2_000))
    )

    assert isinstance(result.value, StepAnswer)


@pytest.mark.parametrize(
    "text",
    ["plain words of a usual length " * 400, "每个汉字大约是一个词元。" * 300, "x = {};\n" * 900],
)
async def test_what_a_call_reads_is_never_guessed_too_low(
    models: Models, api: Api, backend: Backend, text: str
) -> None:
    door = Doorkeeper()
    models.replies(Reply(calls=[WRITE]), Reply(text="done"))

    _, result = await run_to_end(
        backend, request_to(api, text, tools=(tool_that(text, []),), gate=door)
    )

    first, second = (feared for _, feared, _ in door.asked)
    assert first >= tokens(text)
    assert first + second >= result.usage.input_tokens


def test_a_chinese_character_counts_for_more_than_one() -> None:
    assert _guess([_said("字" * 1_000)]) - _guess([]) >= 1_000


def test_what_the_service_has_counted_is_not_guessed() -> None:
    before = _said("z" * 100_000)
    answer = ModelResponse(
        parts=[ToolCallPart(tool_name="look", args={"path": "a"}, tool_call_id="1")],
        usage=RequestUsage(input_tokens=20_000, output_tokens=100),
        model_name="gpt-5.2-2026-01-01",
    )
    result = ModelRequest(parts=[ToolReturnPart(tool_name="look", content="ab", tool_call_id="1")])

    known = _guess([before, answer, result])

    assert 20_100 < known < 22_000
    assert _guess([before, answer, result], model="other") > 50_000


def test_pictures_and_tools_are_counted() -> None:
    picture = BinaryContent(data=b"\0" * 900_000, media_type="image/png")
    shown = ModelRequest(parts=[UserPromptPart(content=["look", picture])])
    tool = ToolDefinition(
        name="look", description="d" * 2_000, parameters_json_schema={"type": "object"}
    )

    assert PICTURE_TOKENS < _guess([shown]) < PICTURE_TOKENS + 2_000
    assert _guess([], tools=[tool]) - _guess([]) >= 1_000


def test_an_answer_nobody_counted_is_guessed_like_the_rest() -> None:
    answer = ModelResponse(parts=[TextPart(content="w" * 4_000)], model_name="gpt-5.2")

    assert _guess([answer]) >= 2_000


def _said(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(content=text)])


def _guess(
    messages: list[ModelMessage],
    *,
    model: str = "gpt-5.2",
    tools: list[ToolDefinition] | None = None,
) -> int:
    return input_tokens(messages, ModelRequestParameters(function_tools=tools or []), model)
