"""A model that asks before every call whether the call may be paid. Heavy to import."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.usage import RequestUsage

from bot.engine.llm import api_history
from bot.engine.llm.base import MAX_ANSWER, BudgetReached, CutShort, Gate, Usage

CUT = "length"
"""Why an answer ended that reached the most tokens it was allowed."""
PICTURE_TOKENS = 6_000
"""More than any service makes of one picture."""
_BYTES_PER_TOKEN = 2
"""Prose is about four in English and three in Chinese, dense code about two and a half."""
_PER_MESSAGE = 10
_PER_CALL = 1_000
"""What services add themselves, where there are tools above all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Allowed:
    """What a call may do; `spent` is what the run had used before it."""

    settings: ModelSettings
    spent: Usage
    lowered: bool


class MeteredModel(WrapperModel):
    """Asks `gate` before each call and lets it write no more than the answer allows. `spent` is
    what the run has used so far, `prompt` and the results of the calls `answered` what it began
    with. `whole` says that half an answer is
    none: where the gate's answer is what cut it off, that is CutShort."""

    def __init__(
        self,
        wrapped: Model,
        gate: Gate,
        *,
        spent: Callable[[], Usage],
        prompt: Sequence[UserContent],
        whole: bool,
        answered: Collection[str] = (),
    ) -> None:
        super().__init__(wrapped)
        self._gate = gate
        self._spent = spent
        self._prompt = prompt
        self._answered = answered
        self._whole = whole

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        allowed = await self._allowed(messages, model_settings, model_request_parameters, "")
        response = await self.wrapped.request(messages, allowed.settings, model_request_parameters)
        self._check(response, allowed, messages, "")
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        run_id = (run_context.run_id if run_context else None) or ""
        allowed = await self._allowed(messages, model_settings, model_request_parameters, run_id)
        async with self.wrapped.request_stream(
            messages, allowed.settings, model_request_parameters, run_context
        ) as stream:
            yield stream
            self._check(stream.get(), allowed, messages, run_id)

    async def _allowed(
        self,
        messages: Sequence[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        run_id: str,
    ) -> _Allowed:
        """The settings with the tokens that may be written lowered to what is allowed."""
        spent = self._spent()
        reads = input_tokens(messages, parameters, self.model_name)
        try:
            most = await self._gate(self.model_name, reads, spent)
        except BudgetReached as reached:
            added = self._added(messages, run_id)
            raise BudgetReached(reached.hit, usage=spent, new_history=added) from None
        lowered = ModelSettings(**settings) if settings else ModelSettings()
        wanted = lowered.get("max_tokens") or MAX_ANSWER
        lowered["max_tokens"] = min(most, wanted)
        return _Allowed(settings=lowered, spent=spent, lowered=most < wanted)

    def _check(
        self,
        response: ModelResponse,
        allowed: _Allowed,
        messages: Sequence[ModelMessage],
        run_id: str,
    ) -> None:
        """Half a text can be gone on with; half a form or half a call of a tool is nothing."""
        if response.finish_reason != CUT or not allowed.lowered:
            return
        if self._whole or response.tool_calls:
            raise CutShort(
                "the answer was cut off at what a cap still allows",
                usage=_with(allowed.spent, response.usage),
                new_history=self._added(messages, run_id),
            )

    def _added(self, messages: Sequence[ModelMessage], run_id: str) -> tuple[Any, ...]:
        """What the run has added to its session: nothing before the first answer. On the wire
        what was asked may have grown together with what the history ended in, so it is told
        anew."""
        for at, message in enumerate(messages):
            if isinstance(message, ModelResponse) and run_id and message.run_id == run_id:
                asked = ModelRequest(parts=self._asked(messages[:at]))
                return api_history.dump([asked, *messages[at:]])
        return ()

    def _asked(self, before: Sequence[ModelMessage]) -> list[ModelRequestPart]:
        """What the run began with."""
        last = before[-1] if before else None
        parts: list[ModelRequestPart] = [
            part
            for part in (last.parts if isinstance(last, ModelRequest) else ())
            if isinstance(part, ToolReturnPart | RetryPromptPart)
            and part.tool_call_id in self._answered
        ]
        if self._prompt:
            parts.append(UserPromptPart(content=list(self._prompt)))
        return parts


def input_tokens(
    messages: Sequence[ModelMessage], parameters: ModelRequestParameters, model: str
) -> int:
    """How much a call will read, from above. Up to the last answer of the same model its own
    count is known; only what came after is guessed from its length."""
    known, rest = _counted(messages, model)
    tools = (*parameters.function_tools, *parameters.output_tools)
    size = sum(map(_size_of_tool, tools)) + _size(_instructions(messages))
    guessed = sum(_PER_MESSAGE + _size_of_message(message) for message in rest)
    return known + size + guessed + _PER_CALL


def _counted(messages: Sequence[ModelMessage], model: str) -> tuple[int, Sequence[ModelMessage]]:
    """What the service itself has counted of the beginning, and what comes after that."""
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if not isinstance(message, ModelResponse) or not message.usage.input_tokens:
            continue
        if not (message.model_name or "").startswith(model):
            break  # another model counts otherwise
        return message.usage.input_tokens + message.usage.output_tokens, messages[at + 1 :]
    return 0, messages


def _instructions(messages: Sequence[ModelMessage]) -> str:
    last = messages[-1] if messages else None
    return (last.instructions or "") if isinstance(last, ModelRequest) else ""


def _size_of_tool(tool: ToolDefinition) -> int:
    schema = json.dumps(tool.parameters_json_schema)
    return _size(tool.name) + _size(tool.description or "") + _size(schema)


def _size_of_message(message: ModelMessage) -> int:
    return sum(
        PICTURE_TOKENS if isinstance(piece, BinaryContent) else _PER_MESSAGE + _size(piece)
        for part in message.parts
        for piece in _pieces(part)
    )


def _pieces(part: object) -> Iterator[str | BinaryContent]:
    match part:
        case UserPromptPart(content=str(text)) | TextPart(content=text):
            yield text
        case ThinkingPart(content=text, signature=signature):
            yield text
            yield signature or ""
        case UserPromptPart(content=content):
            for piece in content:
                yield piece if isinstance(piece, str | BinaryContent) else str(piece)
        case ToolCallPart(tool_name=name):
            yield name
            yield part.args_as_json_str()
        case ToolReturnPart():
            yield part.model_response_str()
        case RetryPromptPart():
            yield part.model_response()
        case _:
            yield str(part)


def _size(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)


def _with(spent: Usage, call: RequestUsage) -> Usage:
    return replace(
        spent,
        requests=spent.requests + 1,
        input_tokens=spent.input_tokens + call.input_tokens,
        output_tokens=spent.output_tokens + call.output_tokens,
        cache_read_tokens=spent.cache_read_tokens + call.cache_read_tokens,
        cache_write_tokens=spent.cache_write_tokens + call.cache_write_tokens,
    )
