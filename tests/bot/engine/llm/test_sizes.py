"""How much a call will read is guessed from above, and closely where the service has counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.engine.llm.access import Api
from bot.engine.llm.base import Backend, BackendUnavailable, Tool, Usage
from bot.engine.llm.loop.sizes import text_tokens
from tests.bot.engine.llm.test_api_meter import Doorkeeper
from tests.bot.engine.llm.world import request_to, run_to_end, tool_that
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Call, Reply, tokens

PROSE = "The harbour master counts the ships that come in, and writes them into his book. "
CHINESE = "港口的管理员清点进港的船只，并把它们写进本子里。"
CODE = "def count(ships: list[Ship]) -> int:\n    return sum(1 for ship in ships if ship.moored)\n"
MANUAL = "Rules of this house, which every worker is told again before each call. " * 60


@settings(deadline=None)
@given(st.text(max_size=400))
def test_no_text_is_guessed_too_small(text: str) -> None:
    assert text_tokens(text) + 1 >= tokens(json.dumps(text)) - 1


@settings(deadline=None)
@given(st.lists(st.sampled_from(list('a bZ9,{\n字é😀"\\')), max_size=300).map("".join))
def test_not_even_one_made_to_be_hard(text: str) -> None:
    assert text_tokens(text) + 1 >= tokens(json.dumps(text)) - 1


@pytest.mark.parametrize(
    ("text", "real"),
    [("of a in to it is an on at by", 10), ("4815162342" * 3, 30), ("{}[]();:" * 5, 40)],
)
def test_short_words_digits_and_marks_may_each_be_a_token(text: str, real: int) -> None:
    assert text_tokens(text) >= real


def test_what_no_tokenizer_has_words_for_counts_almost_by_the_letter() -> None:
    blob = "aGVsbG8gd29ybGQsIHRoaXMgaXMgYmFzZTY0" * 50

    assert text_tokens(blob) >= len(blob) * 0.7


@pytest.mark.parametrize(
    "text", [PROSE, CHINESE, CODE, PROSE + CHINESE + CODE], ids=["en", "zh", "code", "mixed"]
)
@pytest.mark.parametrize("many", [1, 12])
async def test_a_session_that_was_counted_is_guessed_closely_and_never_too_low(
    models: Models, api: Api, backend: Backend, text: str, many: int
) -> None:
    await _story(models, backend, api, said=text * many, results=text * (13 - many))


async def _story(
    models: Models,
    backend: Backend,
    api: Api,
    *,
    said: str,
    results: str,
) -> None:
    """Two runs of one session, each with a call of a tool."""
    door = Doorkeeper()
    history: tuple[Any, ...] = ()
    used: list[Usage] = []
    for text in (PROSE * 60, said):
        call = Call(name="tool0", arguments={"path": "a.md"})
        models.replies(Reply(calls=[call]), Reply(text=results))
        before = len(door.asked)
        request = request_to(
            api,
            text,
            system=MANUAL,
            tools=_tools(results, 12),
            history=history,
            gate=door,
        )
        _, result = await run_to_end(backend, request)
        history += result.new_history
        used += [*[each for _, _, each in door.asked[before:]][1:], result.usage]
    guesses = [guess for _, guess, _ in door.asked]
    real = _each(used)
    assert [guess for guess, read in zip(guesses, real, strict=True) if guess < read] == []
    known = zip(guesses[1:], real[1:], strict=True)
    assert [(guess, read) for guess, read in known if guess > 1.25 * read] == []


def _each(used: Sequence[Usage]) -> list[int]:
    """What each call read: usage is of a run so far, and begins anew with each run of two."""
    first, second, third, fourth = (usage.input_tokens for usage in used)
    return [first, second - first, third, fourth - third]


def _tools(answer: str, count: int) -> tuple[Tool, ...]:
    calls: list[Mapping[str, Any]] = []
    return tuple(tool_that(answer, calls, name=f"tool{n}") for n in range(count))


async def test_a_tool_that_is_new_to_the_session_is_counted(
    models: Models, api: Api, backend: Backend
) -> None:
    door = Doorkeeper()
    models.replies(Reply(text="hello"), Reply(text="hello again"), Reply(text="and again"))
    history: tuple[Any, ...] = ()
    for count in (10, 10, 60):
        request = request_to(api, tools=_tools("ok", count), history=history, gate=door)
        _, result = await run_to_end(backend, request)
        history += result.new_history

    first, second, third = (guess for _, guess, _ in door.asked)
    assert second < first
    assert third > second + 50 * 30


async def test_an_answer_that_breaks_off_is_booked_for_what_it_read_and_what_came(
    models: Models, api: Api, backend: Backend
) -> None:
    words = "all of these words have been written and will be paid for " * 20
    models.replies(Reply(text=words, drop_after=150))
    door = Doorkeeper()

    with pytest.raises(BackendUnavailable) as broken:
        await run_to_end(backend, request_to(api, PROSE * 40, gate=door))

    usage = broken.value.usage
    assert usage.requests == 1
    assert usage.input_tokens >= tokens(PROSE * 40)
    assert usage.output_tokens > 50
    assert usage.guessed_output > 40
    assert usage.guessed_input == (usage.input_tokens if api is Api.OPENAI else 0)


async def test_an_answer_that_is_cancelled_is_booked_in_the_same_way(
    models: Models, api: Api, backend: Backend
) -> None:
    words = "all of these words have been written and will be paid for " * 20
    models.replies(Reply(text=words, hold=asyncio.Event(), hold_after=150))
    door = Doorkeeper()

    async with backend.run(request_to(api, PROSE * 40, gate=door)) as run:
        heard = 0
        async for _ in run.events:
            heard += 1
            if heard == 100:
                break

    assert run.spent.requests == 1
    assert run.spent.input_tokens >= tokens(PROSE * 40)
    assert run.spent.output_tokens > 40


async def test_what_came_before_a_break_is_not_booked_twice(
    models: Models, api: Api, backend: Backend
) -> None:
    models.replies(
        Reply(calls=[Call(name="write", arguments={"path": "a.md"})]),
        Reply(text="half an answer " * 20, drop_after=30),
    )
    door = Doorkeeper()

    with pytest.raises(BackendUnavailable) as broken:
        await run_to_end(backend, request_to(api, tools=(tool_that("ok", []),), gate=door))

    usage = broken.value.usage
    (_, first, _), (_, second, spent) = door.asked
    assert usage.requests == 2
    assert spent.input_tokens < usage.input_tokens <= first + second
