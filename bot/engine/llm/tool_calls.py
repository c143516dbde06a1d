"""Defines tools, their calls and authorization, and validates arguments."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Protocol

from pydantic import BaseModel


class CallKind(StrEnum):
    """A call's kind of effect, named as in the Agent Client Protocol."""

    READ = "read"
    EDIT = "edit"
    DELETE = "delete"
    MOVE = "move"
    SEARCH = "search"
    EXECUTE = "execute"
    FETCH = "fetch"
    THINK = "think"
    ASK = "ask"
    OTHER = "other"


READ_ONLY_KINDS = {CallKind.READ, CallKind.SEARCH, CallKind.FETCH, CallKind.THINK, CallKind.ASK}
"""Calls of these kinds change nothing and may run at the same time; all others run in order."""


class NeededCall(Enum):
    """Which calls a run cannot do without now."""

    ANY = "any"
    CHANGING = "changing"
    EXECUTING = "executing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFault:
    """Why a result cannot be accepted yet, for the model. `of_report_only` means that no call can
    mend it."""

    text: str
    of_report_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkChecks:
    """Looks at the work from outside while it is done.

    `find_needed_call` gets the kinds of the calls made so far, and returns what is plainly called
    for next. Models that write their calls are held to it, and to the mere report where only that
    has a fault."""

    find_needed_call: Callable[[Sequence[CallKind]], Awaitable[NeededCall | None]] | None
    find_result_fault: Callable[[BaseModel], Awaitable[ResultFault | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that a model requests.

    `call_id` is unique within its session. `title` is one line for a card. `detail` is what a
    person decides on: the exact command or a unified diff. Neither is masked yet."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    kind: CallKind
    title: str
    detail: str = ""


class CallVerdict(StrEnum):
    """ALLOW executes the call, DENY returns the reason to the model. ANSWER returns
    `CallDecision.text` as the result of a question. PENDING suspends the run until someone
    decides."""

    ALLOW = "allow"
    DENY = "deny"
    ANSWER = "answer"
    PENDING = "later"


def hold_nothing() -> AbstractAsyncContextManager[str]:
    return nullcontext("")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDecision:
    """A decision; `text` is the reason of a denial, a person's answer or what an earlier try has
    brought, for the model. `has_failed` says that the earlier try failed or was cut off.
    `hold_effect`, for calls that a person has allowed, is to be entered around the call: it keeps
    other processes from changing what was approved, and yields why the permission does not cover it
    any more, or nothing."""

    verdict: CallVerdict
    text: str = ""
    has_failed: bool = False
    hold_effect: Callable[[], AbstractAsyncContextManager[str]] = field(
        default=hold_nothing, compare=False, repr=False
    )


class CallAuthorizer(Protocol):
    """Called before every tool call, including those decided after an earlier run, under their old
    IDs.

    Implementers must record an allowed call as started before they return. They may wait up to
    `wait_seconds` for a person before returning PENDING; 0 is for backends whose suspended runs
    survive the process."""

    async def __call__(self, call: ToolCall, *, wait_seconds: float = 0.0) -> CallDecision: ...

    async def record_outcome(
        self, call_id: str, *, succeeded: bool, outcome: str, size: int = 0
    ) -> None:
        """Audit the outcome of an allowed or answered call; `size` is in bytes. The request of a
        call that nobody has decided is withdrawn."""
        ...

    def restart(self) -> CallAuthorizer:
        """Return an authorizer for another run of the same turn, for which calls of earlier runs
        count as made."""
        ...


def call_fingerprint(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a hash of tool and arguments, which binds an approval to exactly this call."""
    exact = json.dumps([name, arguments], ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(exact.encode("utf-8", "surrogatepass")).hexdigest()


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def find_argument_error(schema: Mapping[str, Any], value: object) -> str:
    """Return the first validation error for the model; empty if valid.

    Supports type, enum, properties, required, additionalProperties, items, minimum, maximum and
    maxLength."""
    return next(_argument_errors(schema, value, ""), "")


def _argument_errors(schema: Mapping[str, Any], value: object, path: str) -> Iterator[str]:
    name = path or "the arguments"
    if "type" in schema and not _has_type(value, schema["type"]):
        yield f"{name} must be of type {schema['type']}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{name} must be one of {', '.join(map(str, schema['enum']))}"
    elif isinstance(value, dict):
        yield from _object_errors(schema, value, path)
    elif isinstance(value, list):
        for n, one in enumerate(value):
            yield from _argument_errors(schema.get("items", {}), one, f"{name}[{n}]")
    elif isinstance(value, int | float):
        if value < schema.get("minimum", value):
            yield f"{name} must be at least {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"{name} must be at most {schema['maximum']}"
    elif isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        yield f"{name} must not be longer than {schema['maxLength']} characters"


def _object_errors(schema: Mapping[str, Any], value: Mapping[str, Any], path: str) -> Iterator[str]:
    known: Mapping[str, Any] = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        yield f"missing: {', '.join(missing)}"
    extra = [name for name in value if name not in known]
    if extra and schema.get("additionalProperties") is False:
        yield f"unknown: {', '.join(extra)}; known are {', '.join(known) or 'none'}"
    for name, one in value.items():
        if name in known:
            yield from _argument_errors(known[name], one, f"{path}.{name}" if path else name)


def _has_type(value: object, kind: str | list[str]) -> bool:
    kinds = [kind] if isinstance(kind, str) else kind
    if isinstance(value, bool):
        return "boolean" in kinds
    return any(isinstance(value, _TYPES[one]) for one in kinds)


def object_schema(*required: str, **properties: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments; text describes a string property, "" says that its
    name does."""
    return {
        "type": "object",
        "properties": {
            name: _text_field(each) if isinstance(each, str) else each
            for name, each in properties.items()
        },
        "required": list(required),
        "additionalProperties": False,
    }


def _text_field(description: str) -> dict[str, Any]:
    return {"type": "string"} | ({"description": description} if description else {})


def int_field(description: str, **limits: int) -> dict[str, Any]:
    return {"type": "integer", **limits, "description": description}


ERROR_PREFIX = "Error: "


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTool:
    """A tool for the model.

    `schema` is the JSON schema of its arguments, which are validated before `run`. `run` returns
    text for the model; a text that starts with ERROR_PREFIX reports a failure. Exceptions are for
    bugs only. `detail` returns `ToolCall.detail`. `in_memory` says that a call only changes the
    memory of this process: a turn that is resumed makes its earlier ones again. `lock` is held
    while a call is made: calls that run or change something in a workspace have turns."""

    name: str
    description: str
    schema: Mapping[str, Any]
    run: ToolHandler
    kind: CallKind = CallKind.OTHER
    detail: Callable[[Mapping[str, Any]], Awaitable[str]] | None = None
    in_memory: bool = False
    lock: asyncio.Lock | None = None


class ToolHandler(Protocol):
    async def __call__(self, arguments: Mapping[str, Any]) -> str: ...


def call_title(name: str, arguments: Mapping[str, Any]) -> str:
    """Return one short line for a card."""
    first = next((str(value) for value in arguments.values() if isinstance(value, str)), "")
    return f"{name} {first[:60]}".rstrip()


async def build_tool_call(tool: AgentTool, call_id: str, arguments: Mapping[str, Any]) -> ToolCall:
    """Build the call as shown to approvers."""
    return ToolCall(
        call_id=call_id,
        name=tool.name,
        arguments=arguments,
        kind=tool.kind,
        title=call_title(tool.name, arguments),
        detail="" if tool.detail is None else await tool.detail(arguments),
    )
