"""Calls of tools for models that cannot make them: one JSON object per answer, held to a grammar.

Heavy to import.
"""

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
from pydantic_ai.models import (
    CompletedStreamedResponse,
    ModelRequestParameters,
    StreamedResponse,
)
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext, ToolDefinition

SAY = "say"
"""The call that stands for plain text, where that is allowed."""
_SAY = ToolDefinition(
    name=SAY,
    description="Answer in words.",
    parameters_json_schema={
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
)
_HOW = """\
Answer with one JSON object and nothing else: {"tool": NAME, "arguments": {...}}. One call at a
time; what it gave comes next. The tools (? may be left out):"""
# Grammars have no room for these; the answer is checked against them when it is there.
_NOT_IN_GRAMMARS = frozenset(
    {"maxLength", "maxItems", "pattern", "format", "default", "description"}
)


class WrittenCalls(WrapperModel):
    """A model that writes its calls as text: what asks it, and what it is asked by, see calls as
    any model makes them. Text is not streamed where there are tools."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        tools = _tools(model_request_parameters)
        if not tools:
            return await self.wrapped.request(messages, model_settings, model_request_parameters)
        asked = _parameters(tools, model_request_parameters)
        response = await self.wrapped.request(_written(messages), model_settings, asked)
        return _called(response)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        given = model_request_parameters
        tools = _tools(given)
        if not tools:
            async with self.wrapped.request_stream(
                messages, model_settings, given, run_context
            ) as stream:
                yield stream
            return
        async with self.wrapped.request_stream(
            _written(messages), model_settings, _parameters(tools, given), run_context
        ) as stream:
            # Streamed all the same: a slow model is not taken for a silent one.
            async for _ in stream:
                pass
            response = _called(stream.get())
        yield CompletedStreamedResponse(
            response, model_request_parameters=given, replay_events=True
        )


def _tools(parameters: ModelRequestParameters) -> Sequence[ToolDefinition]:
    tools = [*parameters.function_tools, *parameters.output_tools]
    return [*tools, _SAY] if tools and parameters.allow_text_output else tools


def _parameters(
    tools: Sequence[ToolDefinition], given: ModelRequestParameters
) -> ModelRequestParameters:
    how = "\n".join([_HOW, *(f"- {_line(tool)}" for tool in tools)])
    return ModelRequestParameters(
        output_mode="native",
        output_object=OutputObjectDefinition(name="call", json_schema=_schema(tools)),
        allow_text_output=True,
        instruction_parts=[*(given.instruction_parts or ()), InstructionPart(content=how)],
    )


def _line(tool: ToolDefinition) -> str:
    schema = tool.parameters_json_schema
    return f"{tool.name} {_shape(schema, schema.get('$defs', {}))}: {tool.description or ''}"


def _shape(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    """The arguments in as few words as will do: each word costs a small model seconds."""
    schema = defs.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    if "properties" in schema:
        required = schema.get("required", ())
        fields = [
            f"{name}{'' if name in required else '?'}{_value(each, defs)}"
            for name, each in schema["properties"].items()
        ]
        return "{" + ", ".join(fields) + "}"
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    return f"[{_shape(schema['items'], defs)}]" if "items" in schema else ""


def _value(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    shape = _shape(schema, defs)
    return f": {shape}" if shape else ""


def _schema(tools: Sequence[ToolDefinition]) -> dict[str, Any]:
    defs: dict[str, Any] = {}
    calls = []
    for tool in tools:
        arguments = dict(_plain(tool.parameters_json_schema))
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


def _plain(schema: Any, *, names: bool = False) -> Any:
    """Only what shapes an answer. `names`: the keys are names of ours and all stay."""
    if isinstance(schema, Mapping):
        return {
            key: _plain(value, names=key in {"properties", "$defs"} and not names)
            for key, value in schema.items()
            if names or key not in _NOT_IN_GRAMMARS
        }
    return [_plain(each) for each in schema] if isinstance(schema, list) else schema


def _written(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The session as such a model has seen it."""
    return [
        replace(message, parts=list(_asked(message)))
        if isinstance(message, ModelRequest)
        else replace(message, parts=[_text(part) for part in message.parts])
        for message in messages
    ]


def _asked(message: ModelRequest) -> Iterator[ModelRequestPart]:
    for part in message.parts:
        match part:
            case ToolReturnPart():
                yield UserPromptPart(content=f"{part.tool_name}: {part.model_response_str()}")
            case RetryPromptPart():
                yield UserPromptPart(content=part.model_response())
            case _:
                yield part


def _text(part: ModelResponsePart) -> ModelResponsePart:
    if not isinstance(part, ToolCallPart):
        return part
    call = {"tool": part.tool_name, "arguments": part.args_as_dict()}
    return TextPart(content=json.dumps(call, ensure_ascii=False))


def _called(response: ModelResponse) -> ModelResponse:
    """What cannot be read stays text: whoever asked says what is wrong with that."""
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    try:
        call = json.loads(text)
        name, arguments = str(call["tool"]), dict(call["arguments"])
    except (ValueError, TypeError, KeyError):
        return response
    part = TextPart(content=str(arguments.get("text", "")))
    if name == SAY:
        return replace(response, parts=[part])
    return replace(response, parts=[ToolCallPart(tool_name=name, args=arguments)])
