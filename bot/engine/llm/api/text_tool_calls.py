"""Emulates tool calls for models without them: one JSON object per answer, constrained by a
schema."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import CompletedStreamedResponse, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext, ToolDefinition

TEXT_TOOL = "say"
"""The tool for plain text answers, where allowed."""
_TEXT_TOOL_DEFINITION = ToolDefinition(
    name=TEXT_TOOL,
    description="Answer in words.",
    parameters_json_schema={
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
)
_INSTRUCTIONS = """\
Answer with one JSON object and nothing else: {"tool": NAME, "arguments": {...}}. One call at a
time; what it gave comes next. The tools (? may be left out):"""
# Grammars don't support these; the answer is validated afterwards.
_UNSUPPORTED_KEYWORDS = frozenset(
    {"maxLength", "maxItems", "pattern", "format", "default", "description"}
)


class TextToolCallModel(WrapperModel):
    """Presents calls that the model writes as JSON text as regular tool calls.

    Text is not streamed if the request has tools."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        tools = _offered_tools(model_request_parameters)
        if not tools:
            return await self.wrapped.request(messages, model_settings, model_request_parameters)
        asked = _request_parameters(tools, model_request_parameters)
        response = await self.wrapped.request(_as_text_messages(messages), model_settings, asked)
        return _parse_call(response)

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
                yield stream
            return
        async with self.wrapped.request_stream(
            _as_text_messages(messages),
            model_settings,
            _request_parameters(tools, given),
            run_context,
        ) as stream:
            # Stream anyway, so that a slow model doesn't time out.
            async for _ in stream:
                pass
            response = _parse_call(stream.get())
        yield CompletedStreamedResponse(
            response, model_request_parameters=given, replay_events=True
        )


def _offered_tools(parameters: ModelRequestParameters) -> Sequence[ToolDefinition]:
    tools = [*parameters.function_tools, *parameters.output_tools]
    return [*tools, _TEXT_TOOL_DEFINITION] if tools and parameters.allow_text_output else tools


def _request_parameters(
    tools: Sequence[ToolDefinition], given: ModelRequestParameters
) -> ModelRequestParameters:
    how = "\n".join([_INSTRUCTIONS, *(f"- {_tool_line(tool)}" for tool in tools)])
    return ModelRequestParameters(
        output_mode="native",
        output_object=OutputObjectDefinition(name="call", json_schema=_call_schema(tools)),
        allow_text_output=True,
        instruction_parts=[*(given.instruction_parts or ()), InstructionPart(content=how)],
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


def _as_text_messages(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Convert tool calls and results to text, as the model produced them."""
    return [
        replace(message, parts=list(_text_request_parts(message)))
        if isinstance(message, ModelRequest)
        else replace(message, parts=[_text_response_part(part) for part in message.parts])
        for message in messages
    ]


def _text_request_parts(message: ModelRequest) -> Iterator[ModelRequestPart]:
    for part in message.parts:
        match part:
            case ToolReturnPart():
                yield UserPromptPart(content=f"{part.tool_name}: {part.model_response_str()}")
            case RetryPromptPart():
                yield UserPromptPart(content=part.model_response())
            case _:
                yield part


def _text_response_part(part: ModelResponsePart) -> ModelResponsePart:
    if not isinstance(part, ToolCallPart):
        return part
    call = {"tool": part.tool_name, "arguments": part.args_as_dict()}
    return TextPart(content=json.dumps(call, ensure_ascii=False))


def _parse_call(response: ModelResponse) -> ModelResponse:
    """Convert the JSON text to a tool call; unparsable text stays text, and the caller reports the
    problem."""
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    try:
        call = json.loads(text)
        name, arguments = str(call["tool"]), dict(call["arguments"])
    except (ValueError, TypeError, KeyError):
        return response
    part = TextPart(content=str(arguments.get("text", "")))
    if name == TEXT_TOOL:
        return replace(response, parts=[part])
    return replace(response, parts=[ToolCallPart(tool_name=name, args=arguments)])
