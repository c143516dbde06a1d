"""Calls of one reply that may change something run in order, and the same call is not repeated for
ever."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from bot.engine.llm.api.access import ApiProvider
from bot.engine.llm.api.backend import ApiBackend
from bot.engine.llm.api.repetition import (
    REFUSAL,
    REFUSAL_OF_SUCCESS,
    RepeatableCall,
    RepeatedCallGuard,
    RepeatedCalls,
)
from bot.engine.llm.backend import PartialTurn
from bot.engine.llm.tool_calls import AgentTool, CallDecision, CallKind, CallVerdict, ToolCall
from tests.bot.engine.llm.builders import build_request, collect_run
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ScriptedCall, ScriptedReply


@dataclass
class Recorder:
    """Tools that note when each call begins and ends. The first of a reply takes longest."""

    steps: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    waits: int = 20

    def tool(self, name: str, kind: CallKind) -> AgentTool:
        async def run(arguments: Mapping[str, Any]) -> str:
            self.steps.append(f"{name} begins")
            self.waits -= 5
            for _ in range(max(0, self.waits)):
                await asyncio.sleep(0)
            self.steps.append(f"{name} ends")
            return self.results.pop(0) if self.results else "same"

        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        return AgentTool(name=name, description=name, schema=schema, run=run, kind=kind)


def reply(*names: str, path: str = "a") -> ScriptedReply:
    calls = [ScriptedCall(name=name, arguments={"path": path}) for name in names]
    return ScriptedReply(calls=calls)


async def test_calls_that_may_change_something_run_in_order(
    models: ModelEmulator, gpt: ApiBackend
) -> None:
    made = Recorder()
    tools = (made.tool("write", CallKind.EDIT), made.tool("exec", CallKind.EXECUTE))
    models.replies(reply("write", "exec"), ScriptedReply(text="Ready."))

    await collect_run(gpt, build_request(ApiProvider.OPENAI, tools=tools))

    assert made.steps == ["write begins", "write ends", "exec begins", "exec ends"]


async def test_calls_that_only_read_run_at_once(models: ModelEmulator, gpt: ApiBackend) -> None:
    made = Recorder()
    tools = (made.tool("read", CallKind.READ), made.tool("grep", CallKind.SEARCH))
    models.replies(reply("read", "grep"), ScriptedReply(text="Ready."))

    await collect_run(gpt, build_request(ApiProvider.OPENAI, tools=tools))

    assert made.steps == ["read begins", "grep begins", "grep ends", "read ends"]


async def test_a_change_is_not_made_before_one_that_waits_for_a_decision(
    models: ModelEmulator, gpt: ApiBackend
) -> None:
    made, ended = Recorder(), dict[str, bool]()

    class AskAboutWrites:
        async def __call__(self, call: ToolCall, *, wait_seconds: float = 0.0) -> CallDecision:
            later = call.name == "write"
            return CallDecision(verdict=CallVerdict.PENDING if later else CallVerdict.ALLOW)

        async def record_outcome(self, call_id: str, *, succeeded: bool, **_: Any) -> None:
            ended[call_id] = succeeded

    tools = (
        made.tool("write", CallKind.EDIT),
        made.tool("exec", CallKind.EXECUTE),
        made.tool("read", CallKind.READ),
    )
    models.replies(reply("write", "exec", "read"))

    _, result = await collect_run(
        gpt, build_request(ApiProvider.OPENAI, tools=tools, permit=AskAboutWrites())
    )

    assert [call.name for call in result.suspended] == ["write"]
    assert made.steps == ["read begins", "read ends"]
    assert sorted(ended.values()) == [False, True]


async def test_the_third_identical_call_is_refused_and_the_fourth_ends_the_run(
    models: ModelEmulator, gpt: ApiBackend
) -> None:
    made = Recorder()
    models.replies(*[reply("exec")] * 6)

    with pytest.raises(RepeatedCalls) as error:
        await collect_run(
            gpt,
            build_request(ApiProvider.OPENAI, tools=(made.tool("exec", CallKind.EXECUTE),)),
        )

    assert made.steps.count("exec begins") == 2
    assert models.requests[3].tool_results[-1] == ("exec", REFUSAL_OF_SUCCESS)
    assert len(models.requests) == 4
    assert error.value.hint == "backend.repeats"


async def test_a_model_that_listens_goes_on(models: ModelEmulator, gpt: ApiBackend) -> None:
    made = Recorder()
    models.replies(
        *[reply("exec")] * 3, reply("exec", path="b"), reply("exec"), ScriptedReply(text="Ready.")
    )

    _, result = await collect_run(
        gpt, build_request(ApiProvider.OPENAI, tools=(made.tool("exec", CallKind.EXECUTE),))
    )

    assert result.text == "Ready."
    assert made.steps.count("exec begins") == 4


async def test_the_same_call_with_another_result_is_no_repetition(
    models: ModelEmulator, gpt: ApiBackend
) -> None:
    made = Recorder(results=["1", "2", "2", "3"])
    models.replies(*[reply("exec")] * 3, reply("exec", path="b"), ScriptedReply(text="Ready."))

    await collect_run(
        gpt, build_request(ApiProvider.OPENAI, tools=(made.tool("exec", CallKind.EXECUTE),))
    )

    assert made.steps.count("exec begins") == 4


async def test_identical_calls_count_over_a_resume(models: ModelEmulator, gpt: ApiBackend) -> None:
    made, turns = Recorder(), list[PartialTurn]()

    async def keep(turn: PartialTurn) -> None:
        turns.append(turn)
        if len(turns) == 3:
            raise RuntimeError("the process dies")

    request = build_request(
        ApiProvider.OPENAI,
        tools=(made.tool("exec", CallKind.EXECUTE),),
        gate=_open_gate,
        on_reply=keep,
    )
    models.replies(*[reply("exec")] * 5)
    with pytest.raises(Exception, match="dies"):
        await collect_run(gpt, request)
    history = [message for turn in turns for message in turn.messages]
    again = build_request(
        ApiProvider.OPENAI,
        tools=request.tools,
        gate=_open_gate,
        history=history,
        resumed_text="",
    )

    with pytest.raises(RepeatedCalls):
        await collect_run(gpt, again)

    assert made.steps.count("exec begins") == 2


async def _open_gate(model: str, input_tokens: int, spent: Any) -> int:
    return 1_000


def test_a_history_that_cannot_be_read_counts_nothing() -> None:
    guard = RepeatedCallGuard([{"kind": "response", "parts": [3]}, "x", {"cli": {}}])

    assert guard.refuse(RepeatableCall("read", "a")) == ""


def test_a_refusal_says_whether_the_repeated_call_has_failed() -> None:
    guard = RepeatedCallGuard()
    for result, refusal in (("Wrote a.md.", REFUSAL_OF_SUCCESS), ("Error: no file", REFUSAL)):
        call = RepeatableCall("write", result)
        for _ in range(2):
            assert guard.refuse(call) == ""
            guard.record(call, result)
        assert guard.refuse(call) == refusal


def test_calls_that_go_round_in_a_circle_are_refused_like_one() -> None:
    guard = RepeatedCallGuard()
    look, write = RepeatableCall("read", "a"), RepeatableCall("write", "b")
    for call, result in ((look, "text"), (write, "Wrote b.")) * 2:
        assert guard.refuse(call) == ""
        guard.record(call, result)

    assert guard.refuse(look) == REFUSAL_OF_SUCCESS
    assert guard.refused_tools == {"read", "write"}
    with pytest.raises(RepeatedCalls):
        guard.refuse(write)


def test_a_circle_with_another_result_or_with_something_that_may_change_by_itself_is_none() -> None:
    guard = RepeatedCallGuard(waiting_tools=frozenset({"exec"}))
    look, wait = RepeatableCall("read", "a"), RepeatableCall("exec", "sleep")
    for _ in range(5):
        for call in (look, wait):
            assert guard.refuse(call) == ""
            guard.record(call, "still building")
    for round_ in range(5):
        for call in (look, RepeatableCall("edit", "c")):
            assert guard.refuse(call) == ""
            guard.record(call, f"{round_}")
