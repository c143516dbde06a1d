"""The requests that the OpenAI Responses API accepts and refuses. Nothing is stored here, so a
reference to a stored item is refused like an expired one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.emulators.models.openai_api import check_strict
from tests.emulators.models.script import RequestRejected

NAMESPACE = "::"
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_LONGEST = 64
_LEAST_OUTPUT = 16
_KNOWN = frozenset(
    [
        "background",
        "client_metadata",
        "context_management",
        "conversation",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    ]
)
_MOVED = {"messages": "input", "response_format": "text.format", "reasoning_effort": "reasoning"}
_TOOLS = frozenset(
    [
        "function",
        "custom",
        "namespace",
        "web_search",
        "web_search_preview",
        "file_search",
        "computer_use_preview",
        "code_interpreter",
        "image_generation",
        "mcp",
        "local_shell",
        "shell",
        "apply_patch",
        "tool_search",
    ]
)
_INCLUDED = frozenset(
    [
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
        "reasoning.encrypted_content",
        "message.output_text.logprobs",
    ]
)
_PARTS = {
    "assistant": ("output_text", "refusal"),
    "user": ("input_text", "input_image", "input_file"),
    "system": ("input_text", "input_image", "input_file"),
    "developer": ("input_text", "input_image", "input_file"),
}
_IDS = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
_CALLS = {"function_call": "function", "custom_tool_call": "custom tool"}
_RESULTS = {"function_call_output": "function", "custom_tool_call_output": "custom tool"}
_OTHERS = frozenset(
    [
        "additional_tools",
        "reasoning",
        "item_reference",
        "web_search_call",
        "file_search_call",
        "compaction",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_call",
    ]
)

Item = Mapping[str, Any]


def check_parameters(body: Mapping[str, Any]) -> None:
    for name in body:
        if name in _MOVED:
            raise _refused(
                f"Unsupported parameter: '{name}'. In the Responses API, this parameter has moved"
                f" to '{_MOVED[name]}'.",
                name,
                "unsupported_parameter",
            )
        if name not in _KNOWN:
            raise _refused(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
    least = body.get("max_output_tokens")
    if least is not None and least < _LEAST_OUTPUT:
        raise _refused(
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >="
            f" {_LEAST_OUTPUT}, but got {least} instead.",
            "max_output_tokens",
            "integer_below_min_value",
        )
    for at, name in enumerate(body.get("include") or ()):
        if name not in _INCLUDED:
            raise _invalid(name, sorted(_INCLUDED), f"include[{at}]")
    if body.get("stream_options") and not body.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise _refused(message, "stream_options", None)
    if previous := body.get("previous_response_id"):
        message = f"Previous response with id '{previous}' not found."
        raise _refused(message, "previous_response_id", "previous_response_not_found")


def items(body: Mapping[str, Any]) -> list[Item]:
    told = body.get("input")
    if told is None:
        raise _refused(
            "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be"
            " provided.",
            "input",
            "missing_required_parameter",
        )
    if isinstance(told, str):
        return [{"type": "message", "role": "user", "content": told}]
    if not isinstance(told, list):
        message = "Invalid type for 'input': expected one of a string or array of input items."
        raise _refused(message, "input", "invalid_type")
    return [{"type": "message", **one} if "role" in one else one for one in told]


def check_input(listed: list[Item]) -> None:
    """Each item by itself, and each call with its result."""
    open_calls: dict[str, str] = {}
    for at, one in enumerate(listed):
        kind = str(one.get("type", ""))
        _check_id(at, one, kind)
        if kind == "message":
            _check_message(at, one)
        elif kind in _CALLS:
            _check_call(at, one, kind)
            open_calls[one["call_id"]] = _CALLS[kind]
        elif kind in _RESULTS:
            _check_result(at, one, open_calls, _RESULTS[kind])
        elif kind not in _OTHERS:
            raise _invalid(kind, sorted({*_CALLS, *_RESULTS, *_OTHERS, "message"}), f"input[{at}]")
        elif kind == "item_reference" or _is_lost(one, kind):
            raise _not_kept(str(one.get("id")))
    if open_calls:
        call_id, what = next(iter(open_calls.items()))
        raise _refused(f"No tool output found for {what} call {call_id}.", "input", None)


def tools(body: Mapping[str, Any], listed: list[Item]) -> dict[str, Mapping[str, Any]]:
    """By name; one that takes words instead of a form is `{"type": "custom"}`."""
    found: dict[str, Mapping[str, Any]] = {}
    for place, tool, space in _tools(body, listed):
        name = tool.get("name")
        if not name:
            message = f"Missing required parameter: '{place}.name'."
            raise _refused(message, f"{place}.name", "missing_required_parameter")
        if not _NAME.fullmatch(name) or len(name) > _LONGEST:
            raise _refused(
                f"Invalid '{place}.name': string does not match pattern. Expected a string that"
                " matches the pattern '^[a-zA-Z0-9_-]+$'.",
                f"{place}.name",
                "invalid_value",
            )
        told: Mapping[str, Any] = tool.get("parameters") or {}
        if tool.get("strict"):
            check_strict(name, told)
        found[f"{space}{name}"] = {"type": "custom"} if tool["type"] == "custom" else told
    return found


def choice(body: Mapping[str, Any], offered: Mapping[str, Any]) -> str:
    told = body.get("tool_choice")
    if isinstance(told, dict):
        name = str(told.get("name", ""))
        if told.get("type") == "function" and name not in offered:
            message = f"Tool choice '{name}' not found in 'tools' parameter."
            raise _refused(message, "tool_choice", None)
        return name or "*"
    return "*" if told == "required" else ""


def schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    form = (body.get("text") or {}).get("format") or {}
    if form.get("type") != "json_schema":
        return None
    for name in ("name", "schema"):
        if not form.get(name):
            message = f"Missing required parameter: 'text.format.{name}'."
            raise _refused(message, f"text.format.{name}", "missing_required_parameter")
    told: Mapping[str, Any] = form["schema"]
    return told


def system(body: Mapping[str, Any], listed: list[Item]) -> str:
    told = [str(body.get("instructions") or "")]
    messages = [one for one in listed if one["type"] == "message"]
    told += [text(one["content"]) for one in messages if one["role"] in {"system", "developer"}]
    return "\n".join(part for part in told if part)


def conversation(
    listed: list[Item],
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The user's text, and the results since, by tool."""
    said: list[str] = []
    results: list[tuple[str, str]] = []
    names: dict[str, str] = {}
    for one in listed:
        if one["type"] in _CALLS:
            space = f"{one['namespace']}{NAMESPACE}" if one.get("namespace") else ""
            names[one["call_id"]] = f"{space}{one['name']}"
        elif one["type"] in _RESULTS:
            results.append((names[one["call_id"]], text(one["output"])))
        elif one["type"] == "message" and one["role"] == "user":
            said.append(text(one["content"]))
            results.clear()
    return tuple(said), tuple(results)


def text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or ())


def _tools(
    body: Mapping[str, Any], listed: list[Item]
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Those with a name of their own: its place, itself, and its namespace. Some come as input."""
    more = [tool for one in listed if one["type"] == "additional_tools" for tool in one["tools"]]
    for at, tool in enumerate([*(body.get("tools") or ()), *more]):
        kind = tool.get("type")
        if kind not in _TOOLS:
            raise _invalid(kind, sorted(_TOOLS), f"tools[{at}].type")
        if kind == "namespace":
            for inner, one in enumerate(tool.get("tools") or ()):
                space = f"{tool.get('name', '')}{NAMESPACE}"
                yield f"tools[{at}].tools[{inner}]", one, space
        elif kind in {"function", "custom"}:
            yield f"tools[{at}]", tool, ""


def _check_id(at: int, one: Item, kind: str) -> None:
    given = one.get("id")
    if given is None or kind not in _IDS:
        return
    if not str(given).startswith(_IDS[kind]):
        raise _refused(
            f"Invalid 'input[{at}].id': '{given}'. Expected an ID that begins with '{_IDS[kind]}'.",
            f"input[{at}].id",
            "invalid_value",
        )
    _check_length(given, f"input[{at}].id")


def _check_message(at: int, one: Item) -> None:
    role, content = one.get("role"), one.get("content")
    if role not in _PARTS:
        raise _invalid(role, ("assistant", "system", "developer", "user"), f"input[{at}].role")
    if content is None:
        place = f"input[{at}].content"
        message = f"Missing required parameter: '{place}'."
        raise _refused(message, place, "missing_required_parameter")
    for inner, part in enumerate(content if isinstance(content, list) else ()):
        if part.get("type") not in _PARTS[role]:
            raise _invalid(part.get("type"), _PARTS[role], f"input[{at}].content[{inner}]")


def _check_call(at: int, one: Item, kind: str) -> None:
    for name in ("call_id", "name", "arguments" if kind == "function_call" else "input"):
        if not isinstance(one.get(name), str):
            message = f"Missing required parameter: 'input[{at}].{name}'."
            raise _refused(message, f"input[{at}].{name}", "missing_required_parameter")
    _check_length(one["call_id"], f"input[{at}].call_id")


def _check_result(at: int, one: Item, open_calls: dict[str, str], what: str) -> None:
    call_id = one.get("call_id")
    if call_id not in open_calls:
        message = f"No tool call found for {what} call output with call_id {call_id}."
        raise _refused(message, "input", None)
    if one.get("output") is None:
        message = f"Missing required parameter: 'input[{at}].output'."
        raise _refused(message, f"input[{at}].output", "missing_required_parameter")
    del open_calls[str(call_id)]


def _is_lost(one: Item, kind: str) -> bool:
    """Thoughts are only known again by what they were sealed as."""
    return kind == "reasoning" and not one.get("encrypted_content")


def _not_kept(id: str) -> RequestRejected:
    return RequestRejected(
        404,
        f"Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try"
        " again with `store` set to true, or remove this item from your input.",
        param="input",
    )


def _check_length(value: str, place: str) -> None:
    if len(value) > _LONGEST:
        raise _refused(
            f"Invalid '{place}': string too long. Expected a string with maximum length"
            f" {_LONGEST}, but got a string with length {len(value)} instead.",
            place,
            "string_above_max_length",
        )


def _invalid(value: object, supported: Any, place: str) -> RequestRejected:
    names = [f"'{name}'" for name in supported]
    listed = f"{', '.join(names[:-1])}, and {names[-1]}"
    message = f"Invalid value: '{value}'. Supported values are: {listed}."
    return _refused(message, place, "invalid_value")


def _refused(message: str, param: str, code: str | None) -> RequestRejected:
    return RequestRejected(400, message, param=param, code=code)
