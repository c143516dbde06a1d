"""Before each call somebody is asked whether it may be paid, and for how much."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.api.access import ApiProvider
from bot.engine.llm.api.metered_model import (
    IMAGE_TOKENS,
    estimate_input_tokens,
    estimate_text_tokens,
)
from bot.engine.llm.backend import (
    MAX_ANSWER_TOKENS,
    AnswerCutByBudget,
    Backend,
    BackendUnavailable,
    BudgetExceeded,
    InvalidAnswer,
    ReachedCap,
    TokenUsage,
)
from bot.engine.llm.tool_calls import AgentTool
from tests.bot.engine.llm.builders import build_request, collect_run, recording_tool
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import (
    ReceivedRequest,
    ScriptedCall,
    ScriptedReply,
    estimate_tokens,
)
from tests.thoroughness import pairs

WRITE = ScriptedCall(name="write", arguments={"path": "a.md", "content": "x"})
HIT = ReachedCap(
    scope="task",
    subject="k3m9qa",
    day="",
    cap_micros=5,
    cap_tokens=0,
    spent_micros=5,
    spent_tokens=9,
    until=None,
)


class FakeBudgetGate:
    """Lets the first `calls` pass, with `most` tokens each."""

    def __init__(self, calls: int = 99, most: int = 50_000) -> None:
        self._calls = calls
        self._most = most
        self.asked: list[tuple[str, int, TokenUsage]] = []

    async def __call__(self, model: str, input_tokens: int, spent: TokenUsage) -> int:
        self.asked.append((model, input_tokens, spent))
        if len(self.asked) > self._calls:
            raise BudgetExceeded(HIT, usage=spent)
        return self._most


def max_tokens_of(asked: ReceivedRequest) -> int:
    return int(asked.body.get("max_tokens") or asked.body["max_completion_tokens"])


async def test_every_turn_is_asked_for_with_what_the_run_has_used(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    models.replies(ScriptedReply(calls=[WRITE]), ScriptedReply(text="done"))
    door = FakeBudgetGate()

    _, result = await collect_run(
        backend, build_request(api, tools=(recording_tool("ok", []),), gate=door)
    )

    assert [spent.requests for _, _, spent in door.asked] == [0, 1]
    assert door.asked[1][2].input_tokens > 0
    assert result.usage.requests == 2
    assert result.text == "done"


async def test_an_answer_may_be_no_longer_than_what_is_allowed(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    heard: list[ReceivedRequest] = []

    def answer(asked: ReceivedRequest) -> ScriptedReply:
        heard.append(asked)
        return ScriptedReply(text="short")

    models.replies(answer)
    await collect_run(backend, build_request(api, gate=FakeBudgetGate(most=700)))
    await collect_run(backend, build_request(api, gate=FakeBudgetGate(most=900_000)))

    assert [max_tokens_of(asked) for asked in heard] == [700, MAX_ANSWER_TOKENS]


async def test_a_call_that_may_not_be_paid_is_not_made(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    models.replies(ScriptedReply(calls=[WRITE]), ScriptedReply(text="never said"))

    with pytest.raises(BudgetExceeded) as reached:
        await collect_run(
            backend,
            build_request(api, tools=(recording_tool("ok", []),), gate=FakeBudgetGate(calls=1)),
        )

    assert reached.value.cap == HIT
    assert reached.value.usage.requests == 1
    assert reached.value.usage.output_tokens > 0


async def test_a_run_that_has_not_begun_adds_nothing_to_its_session(
    api: ApiProvider, backend: Backend
) -> None:
    with pytest.raises(BudgetExceeded) as reached:
        await collect_run(backend, build_request(api, gate=FakeBudgetGate(calls=0)))

    assert reached.value.new_history == ()
    assert reached.value.usage.requests == 0


async def test_what_is_paid_is_not_paid_again_however_often_the_run_is_stopped(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    """The history ends in what a tool said; services refuse a call without its result."""
    heard: list[ReceivedRequest] = []

    def last(asked: ReceivedRequest) -> ScriptedReply:
        heard.append(asked)
        return ScriptedReply(text="All is written.")

    models.replies(
        ScriptedReply(text="I write.", calls=[WRITE]),
        ScriptedReply(text="And again.", calls=[WRITE]),
        last,
    )
    calls: list[Any] = []
    history: tuple[Any, ...] = ()
    for said in ("first, please", "then go on"):
        with pytest.raises(BudgetExceeded) as reached:
            await collect_run(
                backend,
                build_request(
                    api,
                    said,
                    tools=(recording_tool("ok", calls),),
                    history=history,
                    gate=FakeBudgetGate(calls=1),
                ),
            )
        history += reached.value.new_history

    _, result = await collect_run(
        backend,
        build_request(api, "and finish", tools=(recording_tool("ok", calls),), history=history),
    )

    assert models.refused == []
    assert len(calls) == 2, "no tool is used again"
    assert result.text == "All is written."
    assert heard[0].user_texts[:2] == ("first, please", "then go on")
    assert str(heard[0].body).count("call_id" if api is ApiProvider.OPENAI else "tool_use_id") == 2


async def test_a_form_that_the_lowered_length_cut_off_is_told_apart_and_not_asked_for_again(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    broken = '{"status": "do'
    half = ScriptedCall(name="final_result", raw=broken)
    models.replies(
        ScriptedReply(calls=[WRITE]),
        ScriptedReply(calls=[half], stop="cut"),
        ScriptedReply(text="never"),
    )
    door = FakeBudgetGate(most=2_000)

    request = build_request(api, result=StepAnswer, tools=(recording_tool("ok", []),), gate=door)

    with pytest.raises(AnswerCutByBudget) as short:
        await collect_run(backend, request)

    assert len(door.asked) == 2
    assert short.value.usage.requests == 2
    assert short.value.usage.input_tokens > door.asked[1][2].input_tokens
    assert "write" in str(short.value.new_history), "what came before is kept"
    assert broken not in str(short.value.new_history)


async def test_a_form_that_is_cut_off_at_the_longest_answer_is_a_bad_one(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    half = ScriptedReply(
        calls=[ScriptedCall(name="final_result", raw='{"status": "do')], stop="cut"
    )
    models.replies(half, half, half)

    with pytest.raises(InvalidAnswer) as bad:
        await collect_run(backend, build_request(api, result=StepAnswer, gate=FakeBudgetGate()))

    assert not isinstance(bad.value, AnswerCutByBudget)


async def test_half_a_text_is_kept_whatever_cut_it_off(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    models.replies(ScriptedReply(text="half a", stop="cut"))

    _, result = await collect_run(backend, build_request(api, gate=FakeBudgetGate(most=2_000)))

    assert (result.text, result.truncated) == ("half a", True)


async def test_forms_pass_the_door_too(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    step = {"status": "done", "summary": "It is done.", "files": [], "needs_replan": False}
    models.replies(ScriptedReply(calls=[ScriptedCall(name="final_result", arguments=step)]))

    _, result = await collect_run(
        backend, build_request(api, result=StepAnswer, gate=FakeBudgetGate(calls=1, most=2_000))
    )

    assert isinstance(result.value, StepAnswer)


@pytest.mark.parametrize(
    "text",
    ["plain words of a usual length " * 400, "每个汉字大约是一个词元。" * 300, "x = {};\n" * 900],
)
async def test_what_a_call_reads_is_never_guessed_too_low(
    models: ModelEmulator, api: ApiProvider, backend: Backend, text: str
) -> None:
    door = FakeBudgetGate()
    models.replies(ScriptedReply(calls=[WRITE]), ScriptedReply(text="done"))

    _, result = await collect_run(
        backend, build_request(api, text, tools=(recording_tool(text, []),), gate=door)
    )

    first, second = (feared for _, feared, _ in door.asked)
    assert first >= estimate_tokens(text)
    assert first + second >= result.usage.input_tokens


def test_a_chinese_character_counts_for_more_than_one() -> None:
    assert _estimate([_user_message("字" * 1_000)]) - _estimate([]) >= 1_000


def test_what_the_service_has_counted_is_not_guessed() -> None:
    before = _user_message("z" * 100_000)
    answer = ModelResponse(
        parts=[ToolCallPart(tool_name="look", args={"path": "a"}, tool_call_id="1")],
        usage=RequestUsage(input_tokens=20_000, output_tokens=100),
        model_name="gpt-5.2-2026-01-01",
    )
    result = ModelRequest(parts=[ToolReturnPart(tool_name="look", content="ab", tool_call_id="1")])

    known = _estimate([before, answer, result])

    assert 20_100 < known < 22_000
    assert _estimate([before, answer, result], model="other") > 50_000


def test_pictures_and_tools_are_counted() -> None:
    picture = BinaryContent(data=b"\0" * 900_000, media_type="image/png")
    shown = ModelRequest(parts=[UserPromptPart(content=["look", picture])])
    tool = ToolDefinition(
        name="look", description="d" * 2_000, parameters_json_schema={"type": "object"}
    )

    assert IMAGE_TOKENS < _estimate([shown]) < IMAGE_TOKENS + 2_000
    assert _estimate([], tools=[tool]) - _estimate([]) >= 1_000


def test_an_answer_nobody_counted_is_guessed_like_the_rest() -> None:
    answer = ModelResponse(parts=[TextPart(content="w" * 4_000)], model_name="gpt-5.2")

    assert _estimate([answer]) >= 2_000


def _user_message(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(content=text)])


def _estimate(
    messages: list[ModelMessage],
    *,
    model: str = "gpt-5.2",
    tools: list[ToolDefinition] | None = None,
) -> int:
    return estimate_input_tokens(
        messages, ModelRequestParameters(function_tools=tools or []), model
    )


PROSE = "The harbour master counts the ships that come in, and writes them into his book. "
CHINESE = "港口的管理员清点进港的船只，并把它们写进本子里。"
CODE = "def count(ships: list[Ship]) -> int:\n    return sum(1 for ship in ships if ship.moored)\n"
MANUAL = "Rules of this house, which every worker is told again before each call. " * 60


@settings(deadline=None)
@given(st.text(max_size=400))
def test_no_text_is_guessed_too_small(text: str) -> None:
    assert estimate_text_tokens(text) + 1 >= estimate_tokens(json.dumps(text)) - 1


@settings(deadline=None)
@given(st.lists(st.sampled_from(list('a bZ9,{\n字é😀"\\')), max_size=300).map("".join))
def test_not_even_one_made_to_be_hard(text: str) -> None:
    assert estimate_text_tokens(text) + 1 >= estimate_tokens(json.dumps(text)) - 1


@pytest.mark.parametrize(
    ("text", "real"),
    [("of a in to it is an on at by", 10), ("4815162342" * 3, 30), ("{}[]();:" * 5, 40)],
)
def test_short_words_digits_and_marks_may_each_be_a_token(text: str, real: int) -> None:
    assert estimate_text_tokens(text) >= real


def test_what_no_tokenizer_has_words_for_counts_almost_by_the_letter() -> None:
    blob = "aGVsbG8gd29ybGQsIHRoaXMgaXMgYmFzZTY0" * 50

    assert estimate_text_tokens(blob) >= len(blob) * 0.7


@pytest.mark.parametrize(
    ("text", "many"),
    pairs([PROSE, CHINESE, CODE, PROSE + CHINESE + CODE], [1, 12]),
    ids=lambda value: value[:6] if isinstance(value, str) else str(value),
)
async def test_a_session_that_was_counted_is_guessed_closely_and_never_too_low(
    models: ModelEmulator, api: ApiProvider, backend: Backend, text: str, many: int
) -> None:
    await _run_conversation(models, backend, api, said=text * many, results=text * (13 - many))


async def _run_conversation(
    models: ModelEmulator,
    backend: Backend,
    api: ApiProvider,
    *,
    said: str,
    results: str,
) -> None:
    """Two runs of one session, each with a call of a tool."""
    door = FakeBudgetGate()
    history: tuple[Any, ...] = ()
    used: list[TokenUsage] = []
    for text in (PROSE * 60, said):
        call = ScriptedCall(name="tool0", arguments={"path": "a.md"})
        models.replies(ScriptedReply(calls=[call]), ScriptedReply(text=results))
        before = len(door.asked)
        request = build_request(
            api,
            text,
            system=MANUAL,
            tools=_tools(results, 12),
            history=history,
            gate=door,
        )
        _, result = await collect_run(backend, request)
        history += result.new_history
        used += [*[each for _, _, each in door.asked[before:]][1:], result.usage]
    guesses = [guess for _, guess, _ in door.asked]
    real = _totals(used)
    assert [guess for guess, read in zip(guesses, real, strict=True) if guess < read] == []
    known = zip(guesses[1:], real[1:], strict=True)
    assert [(guess, read) for guess, read in known if guess > 1.25 * read] == []


def _totals(used: Sequence[TokenUsage]) -> list[int]:
    """The input tokens of each call: usage is cumulative within a run and starts again with each of
    two runs."""
    first, second, third, fourth = (usage.input_tokens for usage in used)
    return [first, second - first, third, fourth - third]


def _tools(answer: str, count: int) -> tuple[AgentTool, ...]:
    calls: list[Mapping[str, Any]] = []
    return tuple(recording_tool(answer, calls, name=f"tool{n}") for n in range(count))


async def test_a_tool_that_is_new_to_the_session_is_counted(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    door = FakeBudgetGate()
    models.replies(
        ScriptedReply(text="hello"),
        ScriptedReply(text="hello again"),
        ScriptedReply(text="and again"),
    )
    history: tuple[Any, ...] = ()
    for count in (10, 10, 60):
        request = build_request(api, tools=_tools("ok", count), history=history, gate=door)
        _, result = await collect_run(backend, request)
        history += result.new_history

    first, second, third = (guess for _, guess, _ in door.asked)
    assert second < first
    assert third > second + 50 * 30


async def test_an_answer_that_breaks_off_is_booked_for_what_it_read_and_what_came(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    words = "all of these words have been written and will be paid for " * 20
    models.replies(ScriptedReply(text=words, drop_after=150))
    door = FakeBudgetGate()

    with pytest.raises(BackendUnavailable) as broken:
        await collect_run(backend, build_request(api, PROSE * 40, gate=door))

    usage = broken.value.usage
    assert usage.requests == 1
    assert usage.input_tokens >= estimate_tokens(PROSE * 40)
    assert usage.output_tokens > 50
    assert usage.estimated_output > 40
    assert usage.estimated_input == (usage.input_tokens if api is ApiProvider.OPENAI else 0)


async def test_an_answer_that_is_cancelled_is_booked_in_the_same_way(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    words = "all of these words have been written and will be paid for " * 20
    models.replies(ScriptedReply(text=words, hold=asyncio.Event(), hold_after=150))
    door = FakeBudgetGate()

    async with backend.run(build_request(api, PROSE * 40, gate=door)) as run:
        heard = 0
        async for _ in run.events:
            heard += 1
            if heard == 100:
                break

    assert run.usage_so_far.requests == 1
    assert run.usage_so_far.input_tokens >= estimate_tokens(PROSE * 40)
    assert run.usage_so_far.output_tokens > 40


async def test_what_came_before_a_break_is_not_booked_twice(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    models.replies(
        ScriptedReply(calls=[ScriptedCall(name="write", arguments={"path": "a.md"})]),
        ScriptedReply(text="half an answer " * 20, drop_after=30),
    )
    door = FakeBudgetGate()

    with pytest.raises(BackendUnavailable) as broken:
        await collect_run(backend, build_request(api, tools=(recording_tool("ok", []),), gate=door))

    usage = broken.value.usage
    (_, first, _), (_, second, spent) = door.asked
    assert usage.requests == 2
    assert spent.input_tokens < usage.input_tokens <= first + second
