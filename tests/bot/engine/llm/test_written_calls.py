"""Models that cannot call tools write their calls, and nobody else can tell."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from bot.engine.llm.access import Access, Api
from bot.engine.llm.answers import PlanAnswer, StepAnswer
from bot.engine.llm.api import ApiBackend
from bot.engine.llm.base import BadAnswer
from bot.engine.llm.calls import Leave, Permission, ToolCall
from bot.engine.llm.events import TextDelta, ToolFinished
from tests.bot.engine.llm.world import request_to, run_to_end, text_of, tool_that
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Call, Reply

STEP: dict[str, Any] = {"status": "done", "summary": "It is done.", "files": ["a.md"]}
FILE = {"path": "a.md", "content": "x"}


@pytest.fixture
async def small(models: Models) -> AsyncIterator[ApiBackend]:
    access = Access(api=Api.OPENAI, key=models.key, base_url=models.openai_url, written_calls=True)
    backend = ApiBackend(access, ())
    yield backend
    await backend.aclose()


def written(tool: str, **arguments: Any) -> Reply:
    return Reply(text=json.dumps({"tool": tool, "arguments": arguments}))


def keys_of(schema: Any) -> set[str]:
    if isinstance(schema, Mapping):
        return set(schema).union(*map(keys_of, schema.values()))
    return set().union(*map(keys_of, schema)) if isinstance(schema, list) else set()


@dataclass
class Later:
    """Somebody has to be asked."""

    wishes: list[ToolCall] = field(default_factory=list)

    async def __call__(self, call: ToolCall) -> Permission:
        self.wishes.append(call)
        return Permission(leave=Leave.LATER)

    async def ended(self, call_id: str, *, good: bool, outcome: str) -> None:
        raise AssertionError("nothing was run")


async def test_a_written_call_is_made_and_a_written_form_is_the_result(
    models: Models, small: ApiBackend
) -> None:
    calls: list[Mapping[str, Any]] = []
    models.replies(written("write", **FILE), written("final_result", **STEP))
    request = request_to(Api.OPENAI, tools=(tool_that("Wrote a.md", calls),), result=StepAnswer)

    events, result = await run_to_end(small, request)

    assert calls == [FILE]
    assert result.value == StepAnswer(**STEP)
    assert [event.good for event in events if isinstance(event, ToolFinished)] == [True]
    assert not any(isinstance(event, TextDelta) for event in events)
    assert models.requests[1].last == "write: Wrote a.md"
    assert models.refused == []


async def test_the_tools_are_told_in_words_and_the_answer_is_held_to_them(
    models: Models, small: ApiBackend
) -> None:
    models.replies(written("final_result", plan="So.", answer="Yes."))

    await run_to_end(small, request_to(Api.OPENAI, result=PlanAnswer))

    asked = models.requests[0]
    assert asked.tools == {}
    assert "steps?: [{title, detail?, kind?: work|ask" in str(asked.body["messages"])
    assert asked.schema is not None
    assert "PlanStep" in asked.schema["$defs"]
    assert not keys_of(asked.schema) & {"maxLength", "maxItems"}, "grammars cannot count so far"


async def test_words_are_an_answer_where_words_will_do(models: Models, small: ApiBackend) -> None:
    models.replies(written("say", text="Hello."))

    events, result = await run_to_end(small, request_to(Api.OPENAI, tools=(tool_that("", []),)))

    assert text_of(events) == result.text == "Hello."


async def test_without_tools_nothing_is_different(models: Models, small: ApiBackend) -> None:
    models.replies(Reply(text="First words come first."))

    events, result = await run_to_end(small, request_to(Api.OPENAI))

    assert len(events) > 3
    assert result.text == "First words come first."
    assert models.requests[0].schema is None


async def test_what_cannot_be_read_is_asked_for_once_more_and_then_given_up(
    models: Models, small: ApiBackend
) -> None:
    models.replies(Reply(text="I think"), Reply(text='{"tool": "final_res'))

    with pytest.raises(BadAnswer):
        await run_to_end(small, request_to(Api.OPENAI, result=StepAnswer))

    assert len(models.requests) == 2


async def test_a_call_that_waits_for_leave_is_made_when_it_has_come(
    models: Models, small: ApiBackend
) -> None:
    calls: list[Mapping[str, Any]] = []
    permit = Later()
    models.replies(written("write", **FILE), written("say", text="Written."))
    tools = (tool_that("Wrote a.md", calls),)
    first = request_to(Api.OPENAI, tools=tools, permit=permit)

    _, put_off = await run_to_end(small, first)
    answers = {permit.wishes[0].call_id: Permission(leave=Leave.ANSWER, text="It is there.")}
    again = request_to(
        Api.OPENAI, "", tools=tools, permit=permit, history=put_off.new_history, answers=answers
    )
    _, result = await run_to_end(small, again)

    assert put_off.suspended == tuple(permit.wishes)
    assert models.requests[1].last.startswith("write: It is there.")
    assert result.text == "Written."


async def test_a_session_of_a_model_that_calls_tools_is_gone_on_with(
    models: Models, small: ApiBackend, gpt: ApiBackend
) -> None:
    models.replies(
        Reply(calls=[Call(name="write", arguments=FILE)]), Reply(text="Ready."), Reply(text="Yes.")
    )
    tools = (tool_that("Wrote a.md", []),)
    _, before = await run_to_end(gpt, request_to(Api.OPENAI, tools=tools))

    await run_to_end(
        small, request_to(Api.OPENAI, "Really?", history=before.new_history, tools=tools)
    )

    said = json.dumps(models.requests[2].body["messages"])
    assert "tool_calls" not in said
    assert "Wrote a.md" in said
