"""Makes tool calls and forms that models write as text into regular ones: those of any model, and
those of models without tool calls, which are asked for one JSON object per answer."""

from __future__ import annotations

import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic import BaseModel
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    RetryPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import (
    CompletedStreamedResponse,
    Model,
    ModelRequestParameters,
    StreamedResponse,
)
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.usage import RequestUsage

from bot.engine.llm.api.access import ToolForm
from bot.engine.llm.api.error_mapping import AnswerRepeatsItself
from bot.engine.llm.api.repetition import RepeatedTextGuard
from bot.engine.llm.written_calls import HeldText, ToolSchemas, is_quoted, read_calls
from bot.engine.llm.written_forms import read_form

TEXT_TOOL = "say"
"""The tool for plain text answers, where allowed."""
_TEXT_TOOL_SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
_TEXT_TOOL_DEFINITION = ToolDefinition(
    name=TEXT_TOOL, description="Answer in words.", parameters_json_schema=_TEXT_TOOL_SCHEMA
)
_INSTRUCTIONS = """\
Answer with one JSON object and nothing else: {"tool": NAME, "arguments": {...}}. One call at a
time; what it gave comes next. The tools (? may be left out):"""
# Grammars don't support these; the answer is validated afterwards.
_UNSUPPORTED_KEYWORDS = frozenset(
    {"maxLength", "maxItems", "pattern", "format", "default", "description"}
)


_REMINDER = "\n\nIf the work is done now, call {form}; else make the next call."

_REFUSED = frozenset({400, 422})
"""Statuses with which services refuse a request whose answer is to follow a schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReader:
    """Reads a model's text. `form` is the answer asked for, None if any text is one; the model
    `is_asked` to write its calls or else is offered tools; `on_call` is awaited with how it has
    called a tool."""

    form: type[BaseModel] | None = None
    is_asked: bool = False
    on_call: Callable[[ToolForm], Awaitable[None]] | None = None

    async def note(self, form: ToolForm | None) -> None:
        """Tell `on_call` how a tool was called, if that is known."""
        if form is not None and self.on_call is not None:
            await self.on_call(form)

    def read(
        self,
        response: ModelResponse,
        parameters: ModelRequestParameters,
        messages: Sequence[ModelMessage],
    ) -> tuple[ModelResponse, ToolForm | None]:
        """Return the response with the tool calls or the structured answer that its text contains.
        The response stays as it is if its text contains neither, or repeats a part of `messages`: a
        quoted file must not give orders. The second value is how the tools were called; None if
        that is not certain."""
        texts = [part.content for part in response.parts if isinstance(part, TextPart)]
        if response.tool_calls:
            return response, ToolForm.CALLED
        text, others = "".join(texts), [p for p in response.parts if not isinstance(p, TextPart)]
        found = read_calls(
            text,
            _schemas(parameters),
            text_is_answer=parameters.allow_text_output,
            is_asked=self.is_asked,
        )
        if found is not None and is_quoted(found, _brought(messages)):
            return response, None
        forms = parameters.output_tools
        if found is not None:
            said = [TextPart(content=found.lead_in)] if found.lead_in else []
            calls = [_call_part(name, arguments) for name, arguments in found.calls]
            names = {name for name, _ in found.calls} - {form.name for form in forms}
            how = ToolForm.WRITTEN if found.is_certain and names else None
            return replace(response, parts=[*others, *said, *calls]), how
        if self.form is None or parameters.allow_text_output or len(forms) != 1:
            return response, None
        value = read_form(text, self.form)
        if value is None:
            # Words, where nothing but a call was asked for.
            return response, ToolForm.WRITTEN if text.strip() else None
        args = value.model_dump(mode="json")
        return replace(response, parts=[*others, ToolCallPart(forms[0].name, args)]), None


class WrittenCallModel(WrapperModel):
    """Calls tools natively, and reads calls that the model writes as text nevertheless. Such text
    is not streamed."""

    def __init__(self, wrapped: Model, reader: TextReader) -> None:
        super().__init__(wrapped)
        self._reader = reader

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        async with self.wrapped.request_stream(
            messages, model_settings, model_request_parameters, run_context
        ) as stream:
            if not _schemas(model_request_parameters):
                yield _GuardedStream(stream)
                return
            read = _ReadStream(stream, self._reader, messages)
            try:
                yield read
            except AnswerRepeatsItself:
                if not model_request_parameters.allow_text_output:
                    await self._reader.note(ToolForm.WRITTEN)
                raise
            read.get()
            await self._reader.note(read.called)


class _GuardedStream(StreamedResponse):
    """A stream that ends with AnswerRepeatsItself where its text does."""

    def __init__(self, stream: StreamedResponse) -> None:
        super().__init__(stream.model_request_parameters)
        self._stream = stream
        self._shown: AsyncIterator[ModelResponseStreamEvent] | None = None

    def __aiter__(self) -> AsyncIterator[ModelResponseStreamEvent]:
        if self._shown is None:
            self._shown = self._get_event_iterator()
        return self._shown

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        guard = RepeatedTextGuard()
        async for event in self._stream:
            yield event
            if guard.feed(_new_text(event)):
                raise AnswerRepeatsItself("the answer repeated itself without end")

    def get(self) -> ModelResponse:
        return self._stream.get()

    async def cancel(self) -> None:
        await self._stream.cancel()

    async def close_stream(self) -> None:
        await self._stream.close_stream()

    def time_to_first_chunk(self, request_start: float) -> float | None:
        return self._stream.time_to_first_chunk(request_start)

    @property
    def cancelled(self) -> bool:
        return self._stream.cancelled

    @property
    def usage(self) -> RequestUsage:
        return self._stream.usage

    @property
    def model_name(self) -> str:
        return self._stream.model_name

    @property
    def provider_name(self) -> str | None:
        return self._stream.provider_name

    @property
    def provider_url(self) -> str | None:
        return self._stream.provider_url

    @property
    def timestamp(self) -> datetime:
        return self._stream.timestamp


class _ReadStream(_GuardedStream):
    """A stream whose complete response is read for written calls."""

    def __init__(
        self, stream: StreamedResponse, reader: TextReader, messages: Sequence[ModelMessage]
    ) -> None:
        super().__init__(stream)
        self._reader = reader
        self._messages = messages
        self._response: ModelResponse | None = None
        self.called: ToolForm | None = None
        """How a tool was called; None until the response is complete."""

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        tools = _schemas(self.model_request_parameters)
        held, index = HeldText(tools), 0
        async for event in super()._get_event_iterator():
            match event:
                case PartStartEvent(part=TextPart(content=text) as part):
                    index = event.index
                    yield replace(event, part=replace(part, content=held.feed(text)))
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text) as delta):
                    if shown := held.feed(text):
                        yield replace(event, delta=replace(delta, content_delta=shown))
                case _:
                    yield event
        if held.rest and self.get().tool_calls == self._stream.get().tool_calls:
            yield PartDeltaEvent(index=index, delta=TextPartDelta(content_delta=held.rest))

    def get(self) -> ModelResponse:
        response = self._stream.get()
        if response.state != "complete":
            return replace(response, metadata=self.metadata)
        if self._response is None:
            # Once, so that the calls keep their IDs.
            self._response, self.called = self._reader.read(
                response, self.model_request_parameters, self._messages
            )
        return replace(
            response, parts=self._response.parts, metadata=self.metadata or response.metadata
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """Names of tools: one of the `needed` has to be called next, if there are any; none of the
    `refused` may be."""

    needed: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()

    def apply(self, tools: Sequence[ToolDefinition]) -> Sequence[ToolDefinition]:
        """Return the tools that may be called; all of them if none would be left."""
        free = [tool for tool in tools if tool.name not in self.refused]
        return [tool for tool in free if tool.name in self.needed] or free or tools


class TextToolCallModel(WrapperModel):
    """Asks for calls as JSON text and presents them as regular tool calls.

    Text is not streamed if the request has tools. A service that refuses the schema is asked
    without it. The schema alone says what may be called by `choose_tools`: with other words in the
    prompt, no cache would hold."""

    def __init__(
        self,
        wrapped: Model,
        reader: TextReader,
        choose_tools: Callable[[], Awaitable[ToolChoice]],
    ) -> None:
        super().__init__(wrapped)
        self._reader = reader
        self._choose_tools = choose_tools

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        given = model_request_parameters
        tools = _offered_tools(given)
        if not tools:
            async with self.wrapped.request_stream(
                messages, model_settings, given, run_context
            ) as stream:
                yield _GuardedStream(stream)
            return
        asked = _as_text_messages(messages, given.output_tools), model_settings
        allowed = (await self._choose_tools()).apply(tools)
        try:
            bound = _request_parameters(tools, given, allowed)
            response = await self._response(*asked, bound, run_context)
        except ModelHTTPError as error:
            if error.status_code not in _REFUSED:
                raise
            plain = _request_parameters(tools, given)
            response = await self._response(*asked, plain, run_context)
        if response.tool_calls:
            await self._reader.note(ToolForm.CALLED)
        parsed = self._parse_call(response, given, messages)
        yield CompletedStreamedResponse(parsed, model_request_parameters=given, replay_events=True)

    async def _response(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None,
    ) -> ModelResponse:
        async with self.wrapped.request_stream(
            messages, settings, parameters, run_context
        ) as stream:
            # Stream anyway, so that a slow model doesn't time out.
            async for _ in _GuardedStream(stream):
                pass
            return stream.get()

    def _parse_call(
        self,
        response: ModelResponse,
        given: ModelRequestParameters,
        messages: Sequence[ModelMessage],
    ) -> ModelResponse:
        """Text that can't be read stays text, and the caller reports the problem."""
        if given.allow_text_output:
            text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
            say = {TEXT_TOOL: _TEXT_TOOL_SCHEMA}
            said = read_calls(text, say, text_is_answer=True, is_asked=True)
            if said is not None and [name for name, _ in said.calls] == [TEXT_TOOL]:
                arguments = said.calls[0][1]
                words = arguments.get("text", "") if isinstance(arguments, Mapping) else text
                return replace(response, parts=[TextPart(content=str(words))])
        return self._reader.read(response, given, messages)[0]


def _new_text(event: ModelResponseStreamEvent) -> str:
    match event:
        case PartStartEvent(part=TextPart(content=text) | ThinkingPart(content=text)):
            return text
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
        case PartDeltaEvent(
            delta=ThinkingPartDelta(content_delta=str(text))
            | ToolCallPartDelta(args_delta=str(text))
        ):
            return text
        case _:
            return ""


def _brought(messages: Sequence[ModelMessage]) -> Iterator[str]:
    """Yield what persons and tools have brought."""
    for message in messages:
        for part in message.parts if isinstance(message, ModelRequest) else ():
            match part:
                case ToolReturnPart():
                    yield part.model_response_str()
                case UserPromptPart(content=str(text)):
                    yield text
                case UserPromptPart(content=content):
                    yield from (piece for piece in content if isinstance(piece, str))


def _schemas(parameters: ModelRequestParameters) -> ToolSchemas:
    return {
        tool.name: tool.parameters_json_schema
        for tool in (*parameters.function_tools, *parameters.output_tools)
    }


def _call_part(name: str, arguments: Mapping[str, Any] | str) -> ToolCallPart:
    return ToolCallPart(name, arguments if isinstance(arguments, str) else dict(arguments))


def _offered_tools(parameters: ModelRequestParameters) -> Sequence[ToolDefinition]:
    tools = [*parameters.function_tools, *parameters.output_tools]
    return [*tools, _TEXT_TOOL_DEFINITION] if tools and parameters.allow_text_output else tools


def _request_parameters(
    tools: Sequence[ToolDefinition],
    given: ModelRequestParameters,
    allowed: Sequence[ToolDefinition] = (),
) -> ModelRequestParameters:
    """Describe the tools. A schema permits the `allowed` ones; without any there is none."""
    how = "\n".join([_INSTRUCTIONS, *(f"- {_tool_line(tool)}" for tool in tools)])
    parts = [*(given.instruction_parts or ()), InstructionPart(content=how)]
    if not allowed:
        return ModelRequestParameters(allow_text_output=True, instruction_parts=parts)
    return ModelRequestParameters(
        output_mode="native",
        output_object=OutputObjectDefinition(name="call", json_schema=_call_schema(allowed)),
        allow_text_output=True,
        instruction_parts=parts,
    )


def _tool_line(tool: ToolDefinition) -> str:
    schema = tool.parameters_json_schema
    return (
        f"{tool.name} {_schema_summary(schema, schema.get('$defs', {}))}: {tool.description or ''}"
    )


def _schema_summary(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    """Summarize arguments briefly, because each token costs a small model time."""
    schema = defs.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    if "properties" in schema:
        required = schema.get("required", ())
        fields = [
            f"{name}{'' if name in required else '?'}{_field_summary(each, defs)}"
            for name, each in schema["properties"].items()
        ]
        return "{" + ", ".join(fields) + "}"
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    return f"[{_schema_summary(schema['items'], defs)}]" if "items" in schema else ""


def _field_summary(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    shape = _schema_summary(schema, defs)
    return f": {shape}" if shape else ""


def _call_schema(tools: Sequence[ToolDefinition]) -> dict[str, Any]:
    defs: dict[str, Any] = {}
    calls = []
    for tool in tools:
        arguments = dict(_grammar_schema(tool.parameters_json_schema))
        defs |= arguments.pop("$defs", {})
        calls.append(
            {
                "type": "object",
                "properties": {"tool": {"const": tool.name}, "arguments": arguments},
                "required": ["tool", "arguments"],
                "additionalProperties": False,
            }
        )
    return {"anyOf": calls, **({"$defs": defs} if defs else {})}


def _grammar_schema(schema: Any, *, keep_keys: bool = False) -> Any:
    """Keep only keywords that shape the answer; `keep_keys` marks mappings whose keys are names."""
    if isinstance(schema, Mapping):
        return {
            key: _grammar_schema(value, keep_keys=key in {"properties", "$defs"} and not keep_keys)
            for key, value in schema.items()
            if keep_keys or key not in _UNSUPPORTED_KEYWORDS
        }
    return [_grammar_schema(each) for each in schema] if isinstance(schema, list) else schema


def _as_text_messages(
    messages: Sequence[ModelMessage], forms: Sequence[ToolDefinition]
) -> list[ModelMessage]:
    """Convert tool calls and results to text, as the model produced them. Each result reminds it of
    the form that ends its work."""
    form = forms[0].name if forms else ""
    return [
        replace(message, parts=list(_text_request_parts(message, form)))
        if isinstance(message, ModelRequest)
        else replace(message, parts=[_text_response_part(part) for part in message.parts])
        for message in messages
    ]


def _text_request_parts(message: ModelRequest, form: str) -> Iterator[ModelRequestPart]:
    for part in message.parts:
        match part:
            case ToolReturnPart():
                reminds = form and part.tool_name != form
                end = _REMINDER.format(form=form) if reminds else ""
                yield UserPromptPart(content=f"{part.tool_name}: {part.model_response_str()}{end}")
            case RetryPromptPart():
                yield UserPromptPart(content=part.model_response())
            case _:
                yield part


def _text_response_part(part: ModelResponsePart) -> ModelResponsePart:
    if not isinstance(part, ToolCallPart):
        return part
    call = {"tool": part.tool_name, "arguments": part.args_as_dict()}
    return TextPart(content=json.dumps(call, ensure_ascii=False))
