"""A run's tools as the library calls them: each call with leave, or put off. Heavy to import."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_ai import (
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    ToolDenied,
)
from pydantic_ai import Tool as LibraryTool
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    RetryPromptPart,
    ToolCallPart,
    ToolReturnPart,
)

from bot.engine.llm.arguments import problem
from bot.engine.llm.base import ERROR, RunRequest, Tool, title_of, wish_of
from bot.engine.llm.calls import CallKind, Leave, ToolCall
from bot.engine.llm.events import AgentEvent, ToolFinished, ToolStarted

_SUMMARY = 200


class Toolbox:
    """The tools of one run. `calls` is how many were asked for, `busy` how many of ours are at
    work: one that raises leaves it so."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._tools = {tool.name: tool for tool in request.tools}
        self._open: dict[str, ToolCall] = {}
        self.calls = 0
        self.busy = 0

    def for_library(self) -> Sequence[LibraryTool[None]]:
        return [self._tool(tool) for tool in self._tools.values()]

    def results(self) -> DeferredToolResults | None:
        """What is known now of the calls with which the session ends."""
        if not self._request.answers:
            return None
        results = DeferredToolResults()
        for call_id, given in self._request.answers.items():
            match given.leave:
                case Leave.ALLOW:
                    results.approvals[call_id] = True
                case Leave.ANSWER:
                    results.calls[call_id] = given.text
                case Leave.DENY | Leave.LATER:
                    results.approvals[call_id] = ToolDenied(f"{ERROR}{given.text}")
        return results

    def put_off(self, output: object) -> tuple[ToolCall, ...]:
        """The calls with which the run ends, where that is how it ends."""
        if not isinstance(output, DeferredToolRequests):
            return ()
        return tuple(self._open[part.tool_call_id] for part in output.approvals)

    def events_of(self, event: FunctionToolCallEvent | FunctionToolResultEvent) -> list[AgentEvent]:
        match event:
            case FunctionToolCallEvent(part=part):
                self.calls += 1
                return self._started(part)
            case FunctionToolResultEvent(part=part):
                return [_finished(part)]

    def _started(self, part: ToolCallPart) -> list[AgentEvent]:
        """A call that an earlier run has told of is not told again."""
        if part.tool_call_id in self._request.answers:
            return []
        tool = self._tools.get(part.tool_name)
        return [
            ToolStarted(
                call_id=part.tool_call_id,
                name=part.tool_name,
                title=title_of(part.tool_name, _arguments(part.args)),
                does=CallKind.OTHER if tool is None else tool.kind,
            )
        ]

    def _tool(self, tool: Tool) -> LibraryTool[None]:
        async def call(context: RunContext[None], **arguments: Any) -> str:
            wrong = problem(tool.schema, arguments)
            if wrong:
                return f"{ERROR}{wrong}"
            self.busy += 1
            answer = await self._called(tool, context.tool_call_id or "", arguments)
            self.busy -= 1  # not reached if it raised: then the error is the tool's
            if answer is None:
                raise ApprovalRequired
            return answer

        return LibraryTool.from_schema(
            call, tool.name, tool.description, dict(tool.schema), takes_ctx=True
        )

    async def _called(self, tool: Tool, call_id: str, arguments: Mapping[str, Any]) -> str | None:
        """The call's result; None where somebody has to be asked first."""
        permit = self._request.permit
        if permit is None:
            return await tool.run(arguments)
        wish = await wish_of(tool, call_id, arguments)
        given = await permit(wish)
        match given.leave:
            case Leave.LATER:
                self._open[call_id] = wish
                return None
            case Leave.DENY:
                return f"{ERROR}{given.text}"
            case Leave.ANSWER:
                return given.text
            case Leave.ALLOW:
                answer = await tool.run(arguments)
                good = not answer.startswith(ERROR)
                await permit.ended(call_id, good=good, outcome=answer)
                return answer


def _finished(part: ToolReturnPart | RetryPromptPart) -> ToolFinished:
    text = part.model_response_str() if isinstance(part, ToolReturnPart) else part.model_response()
    good = isinstance(part, ToolReturnPart) and part.outcome == "success"
    return ToolFinished(
        call_id=part.tool_call_id,
        good=good and not text.startswith(ERROR),
        summary=text.split("\n", 1)[0][:_SUMMARY],
    )


def _arguments(args: object) -> Mapping[str, Any]:
    """The call's arguments, if they are such; broken ones have no title."""
    if isinstance(args, dict):
        return args
    try:
        return parsed if isinstance(parsed := json.loads(str(args)), dict) else {}
    except ValueError:
        return {}
