"""How many tokens a call will read, from above. Heavy to import."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    RetryPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

PICTURE_TOKENS = 6_000
"""More than any service makes of one picture."""
HEARD = "shiftboss_heard"
"""Where an answer's metadata names the tools and instructions that its own count includes."""
_NAME = 8
_PER_MESSAGE = 12
_PER_PART = 24
"""Its role, its kind and the id of its call."""
_PER_TOOL = 24
_PER_CALL = 1_000
"""What services add themselves, where there are tools above all."""

_BLOB = re.compile(r"[A-Za-z0-9+=]{32,}")
_WORD = re.compile(r"[A-Za-z]+")
_DIGIT = re.compile(r"[0-9]")
_MARK = re.compile(r"[!-/:-@\[-`{-~]")
_LINE = re.compile(r"[\n\r\t]")
_BLANKS = re.compile(r" {2,}|(?<=[^\x00-\x7f]) ")
_UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_ASTRAL = re.compile(r"[^\x00-\uffff]")
_LETTERS = 3
"""Of a word make a token; a shorter word is one all the same. English has about four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the service has counted of the beginning, the names of the tools and instructions in
    that, and what comes after it."""

    tokens: int
    heard: frozenset[str]
    rest: Sequence[ModelMessage]


def input_tokens(
    messages: Sequence[ModelMessage], parameters: ModelRequestParameters, model: str
) -> int:
    """How much a call will read, from above. Up to the last answer of the same model its own
    count is known, tools and instructions that it had heard among it; only what came after is
    guessed, from what it says."""
    known = _known(messages, model)
    new = [
        text for name, text in _standing(messages, parameters).items() if name not in known.heard
    ]
    told = sum(_PER_TOOL + text_tokens(text) for text in new)
    guessed = sum(_PER_MESSAGE + _message(message) for message in known.rest)
    # An answer that does not say what it had heard may have had no tools.
    own = _PER_CALL if not known.heard or _calls_new(new, parameters) else 0
    return known.tokens + told + guessed + own


def standing(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> str:
    """The names of what each call of a run hears again, for its answer's metadata."""
    return "".join(_standing(messages, parameters))


def parts_tokens(parts: Sequence[ModelResponsePart]) -> int:
    """How much has been written, from above."""
    return sum(text_tokens(piece) for part in parts for piece in _texts(part))


def text_tokens(text: str) -> int:
    """From above, for any text that people or programs write: a service's own tokenizer makes
    fewer of it."""
    blobs = "".join(_BLOB.findall(text))
    if blobs:
        text = _BLOB.sub(" ", text)
    words = sum(max(_LETTERS, len(word)) for word in _WORD.findall(text)) / _LETTERS
    blanks = sum(len(run) for run in _BLANKS.findall(text)) / 4
    others = (
        len(_MARK.findall(text))
        + len(_DIGIT.findall(text))
        + len(_LINE.findall(text))
        + 1.5 * (len(_FOREIGN.findall(text)) + len(_ASTRAL.findall(text)))
        + 1.5 * len(_UNSEEN.findall(text))
    )
    return 1 + int(words + blanks + others + 0.8 * len(blobs))


def _known(messages: Sequence[ModelMessage], model: str) -> _Known:
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if not isinstance(message, ModelResponse) or not message.usage.input_tokens:
            continue
        if not (message.model_name or "").startswith(model):
            break  # another model counts otherwise
        # What was written is read with its frame, and some services count it otherwise then.
        frame = _PER_MESSAGE + _PER_PART * len(message.parts)
        written = max(message.usage.output_tokens, parts_tokens(message.parts))
        return _Known(
            tokens=message.usage.input_tokens + written + frame,
            heard=_heard(message.metadata or {}),
            rest=messages[at + 1 :],
        )
    return _Known(tokens=0, heard=frozenset(), rest=messages)


def _heard(metadata: Mapping[str, Any]) -> frozenset[str]:
    names = str(metadata.get(HEARD, ""))
    return frozenset(names[at : at + _NAME] for at in range(0, len(names), _NAME))


def _standing(
    messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> Mapping[str, str]:
    """Tools and paragraphs of instructions by a short name of their words."""
    last = messages[-1] if messages else None
    instructions = (last.instructions or "") if isinstance(last, ModelRequest) else ""
    texts = [*map(_tool, _tools(parameters)), *filter(None, instructions.split("\n\n"))]
    return {sha256(text.encode("utf-8", "replace")).hexdigest()[:_NAME]: text for text in texts}


def _tools(parameters: ModelRequestParameters) -> Sequence[ToolDefinition]:
    return (*parameters.function_tools, *parameters.output_tools)


def _calls_new(new: Sequence[str], parameters: ModelRequestParameters) -> bool:
    """All its tools are new: before, the service may have had nothing to say about tools."""
    tools = {_tool(tool) for tool in _tools(parameters)}
    return bool(tools) and tools <= set(new)


def _tool(tool: ToolDefinition) -> str:
    schema = json.dumps(tool.parameters_json_schema)
    return f"{tool.name} {tool.description or ''} {schema}"


def _message(message: ModelMessage) -> int:
    return sum(
        PICTURE_TOKENS if isinstance(piece, BinaryContent) else _PER_PART + text_tokens(piece)
        for part in message.parts
        for piece in _pieces(part)
    )


def _texts(part: object) -> Iterator[str]:
    return (piece for piece in _pieces(part) if isinstance(piece, str))


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
