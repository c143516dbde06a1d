"""Models that cannot call tools write their calls, and nobody else can tell."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic import BaseModel

from bot.engine.llm.answer_schemas import PlanAnswer, StepAnswer
from bot.engine.llm.api.access import ApiAccess, ApiProvider, ToolForm
from bot.engine.llm.api.backend import ApiBackend
from bot.engine.llm.backend import InvalidAnswer, TextDelta, ToolFinished
from bot.engine.llm.tool_calls import (
    CallDecision,
    CallKind,
    CallVerdict,
    NeededCall,
    ResultFault,
    ToolCall,
    WorkChecks,
)
from tests.bot.engine.llm.builders import build_request, collect_run, joined_text, recording_tool
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ScriptedCall, ScriptedReply

STEP: dict[str, Any] = {"status": "done", "summary": "It is done.", "files": ["a.md"]}
FILE = {"path": "a.md", "content": "x"}


@pytest.fixture
async def small(models: ModelEmulator) -> AsyncIterator[ApiBackend]:
    access = ApiAccess(
        provider=ApiProvider.OPENAI,
        key=models.key,
        base_url=models.openai_url,
        tool_form=ToolForm.WRITTEN,
    )
    backend = ApiBackend(access, ())
    yield backend
    await backend.aclose()


async def accept(result: BaseModel) -> None:
    pass


def written_reply(tool: str, **arguments: Any) -> ScriptedReply:
    return ScriptedReply(text=json.dumps({"tool": tool, "arguments": arguments}))


def keys_of(schema: Any) -> set[str]:
    if isinstance(schema, Mapping):
        return set(schema).union(*map(keys_of, schema.values()))
    return set().union(*map(keys_of, schema)) if isinstance(schema, list) else set()


@dataclass
class PendingAuthorizer:
    """Somebody has to be asked."""

    wishes: list[ToolCall] = field(default_factory=list)

    async def __call__(self, call: ToolCall) -> CallDecision:
        self.wishes.append(call)
        return CallDecision(verdict=CallVerdict.PENDING)

    async def ended(self, call_id: str, *, good: bool, outcome: str) -> None:
        raise AssertionError("nothing was run")


async def test_a_written_call_is_made_and_a_written_form_is_the_result(
    models: ModelEmulator, small: ApiBackend
) -> None:
    calls: list[Mapping[str, Any]] = []
    models.replies(written_reply("write", **FILE), written_reply("final_result", **STEP))
    request = build_request(
        ApiProvider.OPENAI, tools=(recording_tool("Wrote a.md", calls),), result=StepAnswer
    )

    events, result = await collect_run(small, request)

    assert calls == [FILE]
    assert result.value == StepAnswer(**STEP)
    assert [event.succeeded for event in events if isinstance(event, ToolFinished)] == [True]
    assert not any(isinstance(event, TextDelta) for event in events)
    reminder = "If the work is done now, call final_result; else make the next call."
    assert models.requests[1].last_text == f"write: Wrote a.md\n\n{reminder}"
    assert models.refused == []


async def test_the_tools_are_told_in_words_and_the_answer_is_held_to_them(
    models: ModelEmulator, small: ApiBackend
) -> None:
    models.replies(written_reply("final_result", plan="So.", answer="Yes."))

    await collect_run(small, build_request(ApiProvider.OPENAI, result=PlanAnswer))

    asked = models.requests[0]
    assert asked.tools == {}
    assert "steps?: [{title, detail?, kind?: work|ask" in str(asked.body["messages"])
    assert asked.schema is not None
    assert "PlanStep" in asked.schema["$defs"]
    assert not keys_of(asked.schema) & {"maxLength", "maxItems"}, "grammars cannot count so far"


async def test_work_that_is_plainly_undone_cannot_be_reported_at_first(
    models: ModelEmulator, small: ApiBackend
) -> None:
    asked: list[Sequence[CallKind]] = []

    async def find_needed_call(calls: Sequence[CallKind]) -> NeededCall:
        asked.append(tuple(calls))
        return NeededCall.ANY

    calls = [written_reply("write", path=f"{n}.md", content="x") for n in range(4)]
    models.replies(*calls, written_reply("final_result", **STEP))
    tool = recording_tool("Wrote it", [])
    request = replace(
        build_request(ApiProvider.OPENAI, tools=(tool,), result=StepAnswer),
        checks=WorkChecks(find_needed_call=find_needed_call, find_result_fault=accept),
    )

    await collect_run(small, request)

    schemas = [_offered(each.schema) for each in models.requests]
    assert schemas == [{"write"}] * 3 + [{"write", "final_result"}] * 2, "it may give up"
    assert [len(calls) for calls in asked] == [0, 1, 2]
    systems = {str(each.body["messages"][0]) for each in models.requests}
    assert len(systems) == 1, "the front stays, for the sake of caches"


def _offered(schema: Any) -> set[str]:
    return {each["properties"]["tool"]["const"] for each in schema.get("anyOf", [schema])}


async def test_after_a_look_only_what_the_work_needs_can_be_called(
    models: ModelEmulator, small: ApiBackend
) -> None:
    async def find_needed_call(calls: Sequence[CallKind]) -> NeededCall | None:
        if CallKind.EXECUTE in calls:
            return None
        return NeededCall.EXECUTING if calls else NeededCall.ANY

    models.replies(
        written_reply("read", path="a.md"),
        written_reply("exec", command="wc -l a.md"),
        written_reply("final_result", **STEP),
    )
    look, run = recording_tool("37 lines", []), recording_tool("37", [])
    tools = (
        replace(look, name="read", kind=CallKind.READ),
        replace(run, name="exec", kind=CallKind.EXECUTE),
    )
    request = replace(
        build_request(ApiProvider.OPENAI, tools=tools, result=StepAnswer),
        checks=WorkChecks(find_needed_call=find_needed_call, find_result_fault=accept),
    )

    await collect_run(small, request)

    offered = [_offered(each.schema) for each in models.requests]
    assert offered == [{"read", "exec"}, {"exec"}, {"read", "exec", "final_result"}]


async def test_a_tool_that_only_brings_the_same_fault_is_withheld(
    models: ModelEmulator, small: ApiBackend
) -> None:
    """A 1.5B model wrote one line over a file four times, although it could edit it."""
    same = written_reply("write", **FILE)
    models.replies(same, same, same, written_reply("final_result", **STEP))
    write = replace(recording_tool("Error: not written", []), kind=CallKind.EDIT)
    edit = replace(recording_tool("Edited", []), name="edit", kind=CallKind.EDIT)

    await collect_run(
        small, build_request(ApiProvider.OPENAI, tools=(write, edit), result=StepAnswer)
    )

    offered = [_offered(each.schema) for each in models.requests]
    assert offered == [{"write", "edit", "final_result"}] * 3 + [{"edit", "final_result"}]


async def test_a_result_with_a_fault_is_sent_back_once(
    models: ModelEmulator, small: ApiBackend
) -> None:
    judged: list[BaseModel] = []

    async def find_result_fault(result: BaseModel) -> ResultFault:
        judged.append(result)
        return ResultFault(text="Not accepted yet: no number.", of_report_only=True)

    models.replies(written_reply("final_result", **STEP), written_reply("final_result", **STEP))
    request = replace(
        build_request(ApiProvider.OPENAI, tools=(recording_tool("", []),), result=StepAnswer),
        checks=WorkChecks(find_needed_call=None, find_result_fault=find_result_fault),
    )

    _, result = await collect_run(small, request)

    assert result.value is not None, "whoever asked judges it then"
    assert len(judged) == 1
    assert "Not accepted yet: no number." in models.requests[1].last_text
    offered = [_offered(each.schema) for each in models.requests]
    assert offered == [{"write", "final_result"}, {"final_result"}], "a call would mend nothing"


async def test_what_an_edit_has_reported_is_not_written_into_a_file(
    models: ModelEmulator, small: ApiBackend
) -> None:
    """A 1.5B model did, over the text that was asked for."""
    calls: list[Mapping[str, Any]] = []
    echo = {"path": "a.md", "content": "Wrote a.md\n"}
    models.replies(
        written_reply("write", **FILE),
        written_reply("write", **echo),
        written_reply("final_result", **STEP),
    )
    tool = replace(recording_tool("Wrote a.md", calls), kind=CallKind.EDIT)

    await collect_run(small, build_request(ApiProvider.OPENAI, tools=(tool,), result=StepAnswer))

    assert calls == [FILE]
    assert "is what a call before has reported" in models.requests[2].last_text


async def test_words_are_an_answer_where_words_will_do(
    models: ModelEmulator, small: ApiBackend
) -> None:
    models.replies(written_reply("say", text="Hello."))

    events, result = await collect_run(
        small, build_request(ApiProvider.OPENAI, tools=(recording_tool("", []),))
    )

    assert joined_text(events) == result.text == "Hello."


async def test_without_tools_nothing_is_different(models: ModelEmulator, small: ApiBackend) -> None:
    models.replies(ScriptedReply(text="First words come first."))

    events, result = await collect_run(small, build_request(ApiProvider.OPENAI))

    assert len(events) > 3
    assert result.text == "First words come first."
    assert models.requests[0].schema is None


async def test_what_cannot_be_read_is_asked_for_once_more_and_then_given_up(
    models: ModelEmulator, small: ApiBackend
) -> None:
    models.replies(ScriptedReply(text="I think"), ScriptedReply(text='{"tool": "final_res'))

    with pytest.raises(InvalidAnswer):
        await collect_run(small, build_request(ApiProvider.OPENAI, result=StepAnswer))

    assert len(models.requests) == 2


async def test_a_call_that_waits_for_leave_is_made_when_it_has_come(
    models: ModelEmulator, small: ApiBackend
) -> None:
    calls: list[Mapping[str, Any]] = []
    permit = PendingAuthorizer()
    models.replies(written_reply("write", **FILE), written_reply("say", text="Written."))
    tools = (recording_tool("Wrote a.md", calls),)
    first = build_request(ApiProvider.OPENAI, tools=tools, permit=permit)

    _, put_off = await collect_run(small, first)
    answers = {
        permit.wishes[0].call_id: CallDecision(verdict=CallVerdict.ANSWER, text="It is there.")
    }
    again = build_request(
        ApiProvider.OPENAI,
        "",
        tools=tools,
        permit=permit,
        history=put_off.new_history,
        answers=answers,
    )
    _, result = await collect_run(small, again)

    assert put_off.suspended == tuple(permit.wishes)
    assert models.requests[1].last_text.startswith("write: It is there.")
    assert result.text == "Written."


async def test_a_session_of_a_model_that_calls_tools_is_gone_on_with(
    models: ModelEmulator, small: ApiBackend, gpt: ApiBackend
) -> None:
    models.replies(
        ScriptedReply(calls=[ScriptedCall(name="write", arguments=FILE)]),
        ScriptedReply(text="Ready."),
        ScriptedReply(text="Yes."),
    )
    tools = (recording_tool("Wrote a.md", []),)
    _, before = await collect_run(gpt, build_request(ApiProvider.OPENAI, tools=tools))

    await collect_run(
        small, build_request(ApiProvider.OPENAI, "Really?", history=before.new_history, tools=tools)
    )

    said = json.dumps(models.requests[2].body["messages"])
    assert "tool_calls" not in said
    assert "Wrote a.md" in said
