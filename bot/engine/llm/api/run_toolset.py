"""The tools of one run of the agent loop: authorized, in order, and never round in a circle."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
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
    UserPromptPart,
)

from bot.engine.llm.api.repetition import RepeatableCall, RepeatedCallGuard
from bot.engine.llm.api.text_tool_calls import ToolChoice
from bot.engine.llm.backend import (
    AgentEvent,
    RunRequest,
    ToolFinished,
    ToolStarted,
)
from bot.engine.llm.tool_calls import (
    ERROR_PREFIX,
    READ_ONLY_KINDS,
    AgentTool,
    CallKind,
    CallVerdict,
    NeededCall,
    ToolCall,
    build_tool_call,
    call_fingerprint,
    call_title,
    find_argument_error,
    hold_nothing,
)
from cards.formats import drop_surrogates

_MAX_SUMMARY = 200
_MAX_HELD = 3
"""Replies of a run in which a call is demanded: then the model may report that it can't."""
_STEADY_KINDS = frozenset(
    {CallKind.READ, CallKind.SEARCH, CallKind.EDIT, CallKind.MOVE, CallKind.DELETE}
)
"""They find the same until another call changes it; a build or a page changes by itself."""
_OUT_OF_ORDER = (
    f"{ERROR_PREFIX}not made: a call before it waits for a decision. Make it again after that."
)


_NO_CONTENT = (
    f"{ERROR_PREFIX}not made: that text is what a call before has reported, no content of a file."
    " If the work is done, say so."
)
"""Small models that would report write the result of their last call over the file instead."""


def _texts(arguments: Mapping[str, Any]) -> list[str]:
    return [each.strip() for each in arguments.values() if isinstance(each, str)]


def _is_needed(kind: CallKind, call: NeededCall | None) -> bool:
    match call:
        case None:
            return False
        case NeededCall.ANY:
            return True
        case NeededCall.CHANGING:
            return kind not in READ_ONLY_KINDS
        case NeededCall.EXECUTING:
            return kind is CallKind.EXECUTE


class RunToolset:
    """The tools of one run, executed after authorization.

    `running` counts active calls of our tools; it stays above zero if one raises. `is_over` says
    that the work is done and only its report is wanted."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._tools = {tool.name: tool for tool in request.tools}
        self._pending_calls: dict[str, ToolCall] = {}
        continues = request.resumed_text is not None or bool(request.answers)
        waiting = {name for name, tool in self._tools.items() if tool.kind not in _STEADY_KINDS}
        history = request.history if continues else ()
        self._repeats = RepeatedCallGuard(history, frozenset(waiting))
        self._edit_reports: set[str] = set()
        self._called: list[CallKind] = []
        self._held = 0
        self.call_count = 0
        self.running = 0
        self.is_over = False

    async def choose_tools(self) -> ToolChoice:
        """Hold a model that writes its calls to one while its work is plainly undone, and keep it
        from what has only brought the same again and again."""
        request = self._request
        # Of a turn that was cut off it is not known here what was called.
        checks = request.checks if request.resumed_text is None else None
        find = checks.find_needed_call if checks is not None else None
        call = await find(self._called) if find is not None and self._held < _MAX_HELD else None
        self._held += call is not None
        needed = {name for name, tool in self._tools.items() if _is_needed(tool.kind, call)}
        refused = self._tools.keys() if self.is_over else self._repeats.refused_tools
        return ToolChoice(needed=frozenset(needed), refused=frozenset(refused))

    def library_tools(self) -> Sequence[LibraryTool[None]]:
        return [self._library_tool(tool) for tool in self._tools.values()]

    async def take_news(self) -> list[str]:
        """Return what people have said meanwhile: one text or none."""
        if self._request.steering is None:
            return []
        self.running += 1
        news = await self._request.steering.take_new()
        self.running -= 1
        return [drop_surrogates(news)] if news else []

    def deferred_results(self) -> DeferredToolResults | None:
        """Return the decisions on the calls that the session was suspended at."""
        if not self._request.answers:
            return None
        results = DeferredToolResults()
        for call_id, decision in self._request.answers.items():
            match decision.verdict:
                case CallVerdict.ALLOW:
                    results.approvals[call_id] = True
                case CallVerdict.ANSWER:
                    results.calls[call_id] = decision.text
                case CallVerdict.DENY | CallVerdict.PENDING:
                    results.approvals[call_id] = ToolDenied(f"{ERROR_PREFIX}{decision.text}")
        return results

    def suspended_calls(self, output: object) -> tuple[ToolCall, ...]:
        """Return the calls that the run was suspended at."""
        if not isinstance(output, DeferredToolRequests):
            return ()
        return tuple(self._pending_calls[part.tool_call_id] for part in output.approvals)

    def events_of(self, event: FunctionToolCallEvent | FunctionToolResultEvent) -> list[AgentEvent]:
        match event:
            case FunctionToolCallEvent(part=part):
                self.call_count += 1
                return self._started_events(part)
            case FunctionToolResultEvent(part=part):
                return [_finished_event(part)]

    def _started_events(self, part: ToolCallPart) -> list[AgentEvent]:
        """Calls of an earlier run have already been announced."""
        if part.tool_call_id in self._request.answers:
            return []
        return [
            ToolStarted(
                call_id=part.tool_call_id,
                name=part.tool_name,
                title=call_title(part.tool_name, _parse_arguments(part.args)),
            )
        ]

    def _library_tool(self, tool: AgentTool) -> LibraryTool[None]:
        async def call(context: RunContext[None], **arguments: Any) -> str:
            made = RepeatableCall(tool.name, call_fingerprint(tool.name, arguments))
            if refusal := self._repeats.refuse(made):
                return refusal
            answer = await self._checked_call(tool, context.tool_call_id or "", arguments)
            if answer is None:
                raise ApprovalRequired
            self._called.append(tool.kind)
            self._repeats.record(made, answer)
            for news in await self.take_news():
                # In one request with the tool's result, and stored with the reply to it.
                context.enqueue(UserPromptPart(content=news))
            return answer

        return LibraryTool.from_schema(
            call,
            tool.name,
            tool.description,
            dict(tool.schema),
            takes_ctx=True,
            sequential=tool.kind not in READ_ONLY_KINDS,
        )

    async def _checked_call(
        self, tool: AgentTool, call_id: str, arguments: Mapping[str, Any]
    ) -> str | None:
        """Return the call's result; None if it needs an approval first."""
        wrong = find_argument_error(tool.schema, arguments)
        if wrong:
            return f"{ERROR_PREFIX}{wrong}"
        is_edit = tool.kind is CallKind.EDIT
        if is_edit and not self._edit_reports.isdisjoint(_texts(arguments)):
            return _NO_CONTENT
        self.running += 1
        answer = await self._run_call(tool, call_id, arguments)
        self.running -= 1  # not reached if the tool raised
        if is_edit and answer:
            self._edit_reports.add(answer.strip())
        return answer

    async def _run_call(
        self, tool: AgentTool, call_id: str, arguments: Mapping[str, Any]
    ) -> str | None:
        permit = self._request.permit
        if permit is None:
            return await _make_call(tool, arguments)
        requested_call = await build_tool_call(tool, call_id, arguments)
        decision = await permit(requested_call)
        match decision.verdict:
            case CallVerdict.PENDING:
                self._pending_calls[call_id] = requested_call
                return None
            case CallVerdict.DENY:
                return f"{ERROR_PREFIX}{decision.text}"
            case CallVerdict.ANSWER:
                return decision.text
            case CallVerdict.ALLOW:
                is_early = self._pending_calls and tool.kind not in READ_ONLY_KINDS
                answer = (
                    _OUT_OF_ORDER
                    if is_early
                    else await _make_call(tool, arguments, decision.hold_effect)
                )
                good = not answer.startswith(ERROR_PREFIX)
                await permit.record_outcome(call_id, succeeded=good, outcome=answer)
                return answer


async def _make_call(
    tool: AgentTool,
    arguments: Mapping[str, Any],
    hold_effect: Callable[[], AbstractAsyncContextManager[str]] = hold_nothing,
) -> str:
    """Others may have changed what was approved while the call waited for its turn."""
    async with tool.lock or nullcontext(), hold_effect() as refusal:
        return refusal or await tool.run(arguments)


def _finished_event(part: ToolReturnPart | RetryPromptPart) -> ToolFinished:
    text = part.model_response_str() if isinstance(part, ToolReturnPart) else part.model_response()
    good = isinstance(part, ToolReturnPart) and part.outcome == "success"
    return ToolFinished(
        call_id=part.tool_call_id,
        succeeded=good and not text.startswith(ERROR_PREFIX),
        summary=text.split("\n", 1)[0][:_MAX_SUMMARY],
    )


def _parse_arguments(args: object) -> Mapping[str, Any]:
    """Return the arguments; empty if malformed."""
    if isinstance(args, dict):
        return args
    try:
        return parsed if isinstance(parsed := json.loads(str(args)), dict) else {}
    except ValueError:
        return {}
