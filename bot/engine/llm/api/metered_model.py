"""Wraps a model to check the budget before each call and report each reply, and converts its
messages to and from JSON values that all model APIs can read; slow to import."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
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
from pydantic_ai.usage import RequestUsage, RunUsage

from bot.engine.llm.backend import (
    MAX_ANSWER_TOKENS,
    AnswerCutByBudget,
    BudgetExceeded,
    BudgetGate,
    PartialTurn,
    TokenUsage,
)

IMAGE_TOKENS = 6_000
"""Upper bound for a picture on any service."""
SEEN_PARTS_KEY = "shiftboss_heard"
"""Key in a response's metadata for the tools and instructions included in its token count."""
_HASH_LENGTH = 8
_PER_MESSAGE = 12
_PER_PART = 24
"""Overhead for role, kind and call ID."""
_PER_TOOL = 24
_PER_CALL = 1_000
"""Overhead that services add, mainly with tools."""

_BLOB = re.compile(r"[A-Za-z0-9+=]{32,}")
_WORD = re.compile(r"[A-Za-z]+")
_DIGIT = re.compile(r"[0-9]")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_LINE = re.compile(r"[\n\r\t]")
_BLANKS = re.compile(r" {2,}|(?<=[^\x00-\x7f]) ")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NON_ASCII = re.compile(r"[^\x00-\x7f]")
_ASTRAL = re.compile(r"[^\x00-\uffff]")
_LETTERS_PER_TOKEN = 3
"""Conservative; English averages about four. Shorter words count as one token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountedPrefix:
    """The part of a history that a service has counted.

    `seen` holds the hashes of included tools and instructions, `uncounted` the messages after
    it."""

    tokens: int
    seen: frozenset[str]
    uncounted: Sequence[ModelMessage]


def estimate_input_tokens(
    messages: Sequence[ModelMessage], parameters: ModelRequestParameters, model: str
) -> int:
    """Return an upper bound for the input tokens of a call.

    Up to the model's last response its own count is used; the rest is estimated."""
    known = _counted_prefix(messages, model)
    new = [
        text for name, text in _fixed_parts(messages, parameters).items() if name not in known.seen
    ]
    new_tokens = sum(_PER_TOOL + estimate_text_tokens(text) for text in new)
    guessed = sum(_PER_MESSAGE + _estimate_message(message) for message in known.uncounted)
    # A response without metadata may have been made without tools.
    own = _PER_CALL if not known.seen or _all_tools_new(new, parameters) else 0
    return known.tokens + new_tokens + guessed + own


def fixed_part_hashes(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> str:
    """Return the hashes of tools and instructions for a response's metadata."""
    return "".join(_fixed_parts(messages, parameters))


def estimate_parts_tokens(parts: Sequence[ModelResponsePart]) -> int:
    """Return an upper bound for the tokens of response parts."""
    return sum(estimate_text_tokens(piece) for part in parts for piece in _text_pieces(part))


def estimate_text_tokens(text: str) -> int:
    """Return an upper bound for the tokens of any human or program text."""
    blobs = "".join(_BLOB.findall(text))
    if blobs:
        text = _BLOB.sub(" ", text)
    words = (
        sum(max(_LETTERS_PER_TOKEN, len(word)) for word in _WORD.findall(text)) / _LETTERS_PER_TOKEN
    )
    blanks = sum(len(run) for run in _BLANKS.findall(text)) / 4
    others = (
        len(_PUNCTUATION.findall(text))
        + len(_DIGIT.findall(text))
        + len(_LINE.findall(text))
        + 1.5 * (len(_NON_ASCII.findall(text)) + len(_ASTRAL.findall(text)))
        + 1.5 * len(_CONTROL.findall(text))
    )
    return 1 + int(words + blanks + others + 0.8 * len(blobs))


def _counted_prefix(messages: Sequence[ModelMessage], model: str) -> _CountedPrefix:
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if not isinstance(message, ModelResponse) or not message.usage.input_tokens:
            continue
        if not (message.model_name or "").startswith(model):
            break  # another model's count doesn't apply
        # Output is re-read with overhead, and some services count it differently then.
        frame = _PER_MESSAGE + _PER_PART * len(message.parts)
        written = max(message.usage.output_tokens, estimate_parts_tokens(message.parts))
        return _CountedPrefix(
            tokens=message.usage.input_tokens + written + frame,
            seen=_seen_hashes(message.metadata or {}),
            uncounted=messages[at + 1 :],
        )
    return _CountedPrefix(tokens=0, seen=frozenset(), uncounted=messages)


def _seen_hashes(metadata: Mapping[str, Any]) -> frozenset[str]:
    names = str(metadata.get(SEEN_PARTS_KEY, ""))
    return frozenset(names[at : at + _HASH_LENGTH] for at in range(0, len(names), _HASH_LENGTH))


def _fixed_parts(
    messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> Mapping[str, str]:
    """Return tool definitions and instruction paragraphs by hash."""
    last = messages[-1] if messages else None
    instructions = (last.instructions or "") if isinstance(last, ModelRequest) else ""
    texts = [*map(_tool_text, _tools(parameters)), *filter(None, instructions.split("\n\n"))]
    return {
        sha256(text.encode("utf-8", "replace")).hexdigest()[:_HASH_LENGTH]: text for text in texts
    }


def _tools(parameters: ModelRequestParameters) -> Sequence[ToolDefinition]:
    return (*parameters.function_tools, *parameters.output_tools)


def _all_tools_new(new: Sequence[str], parameters: ModelRequestParameters) -> bool:
    """Return True if no tool was in the counted prefix, which then lacks the overhead for tools."""
    tools = {_tool_text(tool) for tool in _tools(parameters)}
    return bool(tools) and tools <= set(new)


def _tool_text(tool: ToolDefinition) -> str:
    schema = json.dumps(tool.parameters_json_schema)
    return f"{tool.name} {tool.description or ''} {schema}"


def _estimate_message(message: ModelMessage) -> int:
    return sum(
        IMAGE_TOKENS
        if isinstance(piece, BinaryContent)
        else _PER_PART + estimate_text_tokens(piece)
        for part in message.parts
        for piece in _content_pieces(part)
    )


def _text_pieces(part: object) -> Iterator[str]:
    return (piece for piece in _content_pieces(part) if isinstance(piece, str))


def _content_pieces(part: object) -> Iterator[str | BinaryContent]:
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


log = logging.getLogger(__name__)

FINISH_LENGTH = "length"
"""Finish reason of an answer that reached its token limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CallAllowance:
    """The settings of one call; `input_tokens` is an upper bound, `lowered` means that the gate
    reduced the answer's limit."""

    settings: ModelSettings
    spent_before: TokenUsage
    input_tokens: int
    lowered: bool


class MeteredModel(WrapperModel):
    """Calls `gate` before each request and limits the answer to the tokens it allows.

    `on_reply` is awaited with each complete reply. `prompt` and the results of `answered_calls`
    are what the run started with; if it `is_resumed`, only the results of the calls at the end of
    its history. If `requires_complete`, an answer truncated by the gate raises
    AnswerCutByBudget."""

    def __init__(
        self,
        wrapped: Model,
        gate: BudgetGate,
        *,
        usage_so_far: Callable[[], TokenUsage],
        prompt: Sequence[UserContent],
        requires_complete: bool,
        answered_calls: Collection[str] = (),
        on_reply: Callable[[PartialTurn], Awaitable[None]] | None = None,
        is_resumed: bool = False,
    ) -> None:
        super().__init__(wrapped)
        self._gate = gate
        self._usage_so_far = usage_so_far
        self._prompt = prompt
        self._answered_calls = answered_calls
        self._requires_complete = requires_complete
        self._on_reply = on_reply
        self._is_resumed = is_resumed
        self._reported_replies: int | None = None
        self._interrupted: tuple[_CallAllowance, int] | None = None
        self._last_call: tuple[Sequence[ModelMessage], str] = ((), "")

    @property
    def added_messages(self) -> tuple[Any, ...]:
        """Messages that the run added before its last call."""
        return self._messages_added_since(*self._last_call)

    def with_interrupted(self, reported: TokenUsage) -> TokenUsage:
        """Add an estimate for an interrupted answer to the reported usage.

        The service bills all input and the output sent so far, even if it could not report them."""
        if self._interrupted is None:
            return reported
        allowed, written = self._interrupted
        before = allowed.spent_before
        read = max(0, before.input_tokens + allowed.input_tokens - reported.input_tokens)
        wrote = max(0, before.output_tokens + written - reported.output_tokens)
        if reported.input_tokens > before.input_tokens:
            read = 0  # the service reported its input
        return replace(
            reported,
            requests=max(reported.requests, before.requests + 1),
            input_tokens=reported.input_tokens + read,
            output_tokens=reported.output_tokens + wrote,
            estimated_input=read,
            estimated_output=wrote,
        )

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        allowed = await self._request_allowance(
            messages, model_settings, model_request_parameters, ""
        )
        response = await self.wrapped.request(messages, allowed.settings, model_request_parameters)
        hashes = fixed_part_hashes(messages, model_request_parameters)
        response = replace(response, metadata={**(response.metadata or {}), SEEN_PARTS_KEY: hashes})
        self._check_truncation(response, allowed, messages, "")
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
        if self._is_resumed and self._reported_replies is None:
            self._reported_replies = _count_replies(messages)
        allowed = await self._request_allowance(
            messages, model_settings, model_request_parameters, run_id
        )
        async with self.wrapped.request_stream(
            messages, allowed.settings, model_request_parameters, run_context
        ) as stream:
            stream.metadata = {
                **(stream.metadata or {}),
                SEEN_PARTS_KEY: fixed_part_hashes(messages, model_request_parameters),
            }
            try:
                yield stream
            finally:
                self._note_interruption(stream.get(), allowed)
            self._check_truncation(stream.get(), allowed, messages, run_id)
            await self._report_reply(messages, stream.get(), run_id)

    async def _report_reply(
        self, messages: Sequence[ModelMessage], reply: ModelResponse, run_id: str
    ) -> None:
        if self._on_reply is None or reply.state != "complete":
            return
        added: list[ModelMessage] = []
        if not self._is_useless(reply):
            added = [*self._unreported_requests(messages, run_id), reply]
            self._reported_replies = 1 + _count_replies(messages)
        turn = PartialTurn(
            messages=dump_history(added),
            usage=_usage_of_reply(reply),
            model=reply.model_name or self.model_name,
            context_tokens=reply.usage.input_tokens + reply.usage.output_tokens,
        )
        await self._on_reply(turn)

    def _is_useless(self, reply: ModelResponse) -> bool:
        """Return True for a reply from which nothing follows: refused, truncated, or empty where no
        call has said anything before."""
        if reply.finish_reason == FINISH_LENGTH:
            return self._requires_complete and not reply.tool_calls
        has_begun = self._reported_replies is not None
        says_nothing = not (reply.tool_calls or reply.text or has_begun)
        return reply.finish_reason == "content_filter" or says_nothing

    def _unreported_requests(
        self, messages: Sequence[ModelMessage], run_id: str
    ) -> Sequence[ModelMessage]:
        """Return what was sent since the last reported reply."""
        replies = [at for at, each in enumerate(messages) if isinstance(each, ModelResponse)]
        if self._reported_replies is None:
            own = (at for at in replies if run_id and messages[at].run_id == run_id)
            before = messages[: next(own, len(messages))]
            return [ModelRequest(parts=self._initial_parts(before))]
        reported = replies[: self._reported_replies]
        new = messages[reported[-1] + 1 if reported else 0 :]
        return [each for each in new if isinstance(each, ModelRequest) and each.parts]

    async def _request_allowance(
        self,
        messages: Sequence[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        run_id: str,
    ) -> _CallAllowance:
        """Ask the gate and lower the token limit in the settings."""
        spent = self._usage_so_far()
        self._last_call = (messages, run_id)
        reads = estimate_input_tokens(messages, parameters, self.model_name)
        try:
            most = await self._gate(self.model_name, reads, spent)
        except BudgetExceeded as reached:
            added = self._messages_added_since(messages, run_id)
            raise BudgetExceeded(reached.cap, usage=spent, new_history=added) from None
        lowered = ModelSettings(**settings) if settings else ModelSettings()
        wanted = lowered.get("max_tokens") or MAX_ANSWER_TOKENS
        lowered["max_tokens"] = min(most, wanted)
        return _CallAllowance(
            settings=lowered, spent_before=spent, input_tokens=reads, lowered=most < wanted
        )

    def _note_interruption(self, response: ModelResponse, allowed: _CallAllowance) -> None:
        if response.state == "complete":
            return
        self._interrupted = (allowed, estimate_parts_tokens(response.parts))
        log.warning("an answer of %s was interrupted; its cost is an estimate", self.model_name)

    def _check_truncation(
        self,
        response: ModelResponse,
        allowed: _CallAllowance,
        messages: Sequence[ModelMessage],
        run_id: str,
    ) -> None:
        """A truncated text can be continued; a truncated form or tool call is useless."""
        if response.finish_reason != FINISH_LENGTH or not allowed.lowered:
            return
        if self._requires_complete or response.tool_calls:
            raise AnswerCutByBudget(
                "the answer was cut off at what a cap still allows",
                usage=allowed.spent_before + _usage_of_reply(response),
                new_history=self._messages_added_since(messages, run_id),
            )

    def _messages_added_since(
        self, messages: Sequence[ModelMessage], run_id: str
    ) -> tuple[Any, ...]:
        """Return the messages the run has added, none before its first response.

        The initial request is rebuilt, because the library may have merged it with the end of the
        history."""
        for at, message in enumerate(messages):
            if isinstance(message, ModelResponse) and run_id and message.run_id == run_id:
                asked = ModelRequest(parts=self._initial_parts(messages[:at]))
                return dump_history([asked, *messages[at:]])
        return ()

    def _initial_parts(self, before: Sequence[ModelMessage]) -> list[ModelRequestPart]:
        last = before[-1] if before else None
        parts: list[ModelRequestPart] = [
            part
            for part in (last.parts if isinstance(last, ModelRequest) else ())
            if isinstance(part, ToolReturnPart | RetryPromptPart)
            and part.tool_call_id in self._answered_calls
        ]
        if self._prompt:
            parts.append(UserPromptPart(content=list(self._prompt)))
        return parts


def _count_replies(messages: Sequence[ModelMessage]) -> int:
    return sum(isinstance(each, ModelResponse) for each in messages)


def _usage_of_reply(reply: ModelResponse) -> TokenUsage:
    """Return a reply's usage with its published price, which the library adds only afterwards."""
    used = usage_of(reply.usage)
    if used.cost is not None:
        return used
    try:
        return replace(used, cost=reply.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return used


def usage_of(usage: RunUsage | RequestUsage) -> TokenUsage:
    return TokenUsage(
        requests=usage.requests,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost=usage.cost,
    )


def load_history(history: Sequence[Any]) -> list[ModelMessage]:
    """Parse messages; an unreadable history is logged and dropped, because an answer without it is
    better than none."""
    try:
        return ModelMessagesTypeAdapter.validate_json(json.dumps(list(history)))
    except (ValidationError, TypeError, ValueError):
        log.warning("a session's history of %d messages cannot be read; skipped", len(history))
        return []


def dump_history(messages: Sequence[ModelMessage]) -> tuple[Any, ...]:
    """Convert messages to JSON values without instructions, which every run sets itself."""
    values = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return tuple(
        {**value, "instructions": None} if "instructions" in value else value for value in values
    )
