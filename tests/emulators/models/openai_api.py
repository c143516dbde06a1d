"""The OpenAI Chat Completions API: what it refuses, and how its answers look on the wire."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.emulators.models.script import (
    ReceivedRequest,
    RequestRejected,
    ScriptedCall,
    ScriptedFailure,
    ScriptedReply,
    estimate_tokens,
    stream_pieces,
)

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ROLES = ("system", "developer", "user", "assistant", "tool")
_NEWER = re.compile(r"^(?:gpt-5|o\d)")
_STOPS = {"end": "stop", "cut": "length", "refused": "stop"}
_KINDS = {429: "rate_limit_exceeded", 500: "server_error", 503: "server_error"}


def failure(one: ScriptedFailure) -> dict[str, Any]:
    kind = one.kind or _KINDS.get(one.status, "invalid_request_error")
    return {"error": {"message": one.message, "type": kind, "param": None, "code": one.code}}


def refusal(one: RequestRejected) -> dict[str, Any]:
    extra = {"param": None, "code": None, **one.extra}
    return {"error": {"message": one.message, "type": one.kind, **extra}}


def check_headers(headers: Mapping[str, str], keys: frozenset[str]) -> None:
    key = headers.get("authorization", "").removeprefix("Bearer ").strip()
    if not key:
        raise RequestRejected(
            401,
            "You didn't provide an API key. You need to provide your API key in an Authorization"
            " header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
        )
    if key not in keys:
        masked = f"{key[:4]}{'*' * 8}{key[-4:]}"
        raise RequestRejected(401, f"Incorrect API key provided: {masked}.", code="invalid_api_key")


def models(known: Sequence[str]) -> dict[str, Any]:
    data = [
        {"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "emulator"}
        for name in known
    ]
    return {"object": "list", "data": data}


def asked(
    body: Mapping[str, Any], headers: Mapping[str, str], known: frozenset[str]
) -> ReceivedRequest:
    """The request in neutral form, or Refused as the real API would."""
    model = body.get("model")
    if not model:
        raise RequestRejected(400, "you must provide a model parameter")
    if model not in known:
        raise RequestRejected(
            404,
            f"The model `{model}` does not exist or you do not have access to it.",
            code="model_not_found",
        )
    _check_limits(body, model)
    tools = _tools(body)
    _check_messages(body.get("messages"))
    said, results = _conversation(body["messages"])
    return ReceivedRequest(
        api="openai",
        model=model,
        system="\n".join(
            _text(one["content"])
            for one in body["messages"]
            if one["role"] in {"system", "developer"}
        ),
        user_texts=said,
        tool_results=results,
        tools=tools,
        must_call=_choice(body, tools),
        schema=_schema(body),
        stream=bool(body.get("stream")),
        headers=headers,
        body=body,
    )


def whole(
    asked_: ReceivedRequest, reply: ScriptedReply, number: int, usage: Mapping[str, int]
) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    message["refusal"] = None
    if reply.stop == "refused":
        message |= {"content": None, "refusal": reply.text or "I can't help with that."}
    if reply.calls:
        message["tool_calls"] = [_call(call, number, at) for at, call in enumerate(reply.calls)]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _stop(reply)}
    return {
        **_envelope(asked_, number, "chat.completion"),
        "choices": [choice],
        "usage": _usage(reply, usage),
    }


def events(
    asked_: ReceivedRequest, reply: ScriptedReply, number: int, usage: Mapping[str, int]
) -> Iterator[str]:
    """The answer as server-sent events, with the usage last if it was asked for."""
    chunk = _envelope(asked_, number, "chat.completion.chunk")
    yield _chunk(chunk, {"role": "assistant", "content": "", "refusal": None})
    if reply.stop == "refused":
        yield _chunk(chunk, {"refusal": reply.text or "I can't help with that."})
    else:
        for piece in stream_pieces(reply.text):
            yield _chunk(chunk, {"content": piece})
    for at, call in enumerate(reply.calls):
        told = _call(call, number, at)
        first = {**told, "function": {"name": call.name, "arguments": ""}}
        yield _chunk(chunk, {"tool_calls": [{"index": at, **first}]})
        for piece in stream_pieces(told["function"]["arguments"], 20):
            part = {"index": at, "function": {"arguments": piece}}
            yield _chunk(chunk, {"tool_calls": [part]})
    yield _chunk(chunk, {}, _stop(reply))
    if (asked_.body.get("stream_options") or {}).get("include_usage"):
        yield _data({**chunk, "choices": [], "usage": _usage(reply, usage)})
    yield "data: [DONE]\n\n"


def error_event(one: ScriptedFailure) -> str:
    return _data(failure(one))


def _check_limits(body: Mapping[str, Any], model: str) -> None:
    if "max_tokens" in body and "max_completion_tokens" in body:
        raise RequestRejected(
            400,
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            code="invalid_parameter_combination",
        )
    if "max_tokens" in body and _NEWER.match(model):
        raise RequestRejected(
            400,
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
            " 'max_completion_tokens' instead.",
            param="max_tokens",
            code="unsupported_parameter",
        )
    if body.get("stream_options") and not body.get("stream"):
        raise RequestRejected(
            400,
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            param="stream_options",
        )


def _tools(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    tools: dict[str, Mapping[str, Any]] = {}
    for at, tool in enumerate(body.get("tools") or ()):
        function = tool.get("function") or {}
        name = function.get("name", "")
        if not _NAME.fullmatch(name):
            raise RequestRejected(
                400,
                f"Invalid 'tools[{at}].function.name': string does not match pattern. Expected a"
                " string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
                param=f"tools[{at}].function.name",
                code="invalid_value",
            )
        schema = function.get("parameters") or {}
        if function.get("strict"):
            check_strict(name, schema)
        tools[name] = schema
    return tools


def check_strict(name: str, schema: Mapping[str, Any]) -> None:
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            problem = "'additionalProperties' is required to be supplied and to be false."
        elif set(schema.get("required") or ()) != set(schema.get("properties") or ()):
            problem = (
                "'required' is required to be supplied and to be an array including every key"
                " in properties."
            )
        else:
            return
        message = f"Invalid schema for function '{name}': In context=(), {problem}"
        raise RequestRejected(400, message, code="invalid_function_parameters")


def _choice(body: Mapping[str, Any], tools: Mapping[str, Any]) -> str:
    choice = body.get("tool_choice")
    if choice is not None and not tools:
        raise RequestRejected(
            400,
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are"
            " specified.",
            param="tool_choice",
        )
    if isinstance(choice, dict):
        if choice.get("type") == "allowed_tools":
            return "*" if choice["allowed_tools"]["mode"] == "required" else ""
        name = choice["function"]["name"]
        if name not in tools:
            raise RequestRejected(
                400, f"Tool choice '{name}' not found in 'tools' parameter.", param="tool_choice"
            )
        return str(name)
    return "*" if choice == "required" else ""


def _schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    form = body.get("response_format") or {}
    if form.get("type") != "json_schema":
        return None
    if not (form.get("json_schema") or {}).get("name"):
        raise RequestRejected(
            400,
            "Missing required parameter: 'response_format.json_schema.name'.",
            param="response_format.json_schema.name",
            code="missing_required_parameter",
        )
    schema: Mapping[str, Any] = form["json_schema"].get("schema") or {}
    return schema


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list):
        raise RequestRejected(400, "Missing required parameter: 'messages'.", param="messages")
    if not messages:
        raise RequestRejected(
            400,
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an"
            " empty array instead.",
            param="messages",
            code="empty_array",
        )
    pending: list[str] = []
    for at, one in enumerate(messages):
        if one.get("role") not in _ROLES:
            raise RequestRejected(
                400,
                f"Invalid value: '{one.get('role')}'. Supported values are: 'system', 'assistant',"
                " 'user', 'function', 'tool', and 'developer'.",
                param=f"messages[{at}].role",
                code="invalid_value",
            )
        if one["role"] == "tool":
            if one.get("tool_call_id") not in pending:
                raise RequestRejected(
                    400,
                    "Invalid parameter: messages with role 'tool' must be a response to a"
                    " preceeding message with 'tool_calls'.",
                    param=f"messages.[{at}].role",
                )
            pending.remove(one["tool_call_id"])
        elif pending:
            raise _unanswered(pending)
        else:
            pending = [call["id"] for call in one.get("tool_calls") or ()]
            _check_content(at, one)
    if pending:
        raise _unanswered(pending)


def _check_content(at: int, message: Mapping[str, Any]) -> None:
    if message.get("content") is None and not message.get("tool_calls"):
        raise RequestRejected(
            400,
            "Invalid value for 'content': expected a string, got null.",
            param=f"messages.[{at}].content",
        )


def _unanswered(pending: list[str]) -> RequestRejected:
    return RequestRejected(
        400,
        "An assistant message with 'tool_calls' must be followed by tool messages responding to"
        " each 'tool_call_id'. The following tool_call_ids did not have response messages:"
        f" {', '.join(pending)}",
        param="messages",
    )


def _conversation(
    messages: list[dict[str, Any]],
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    said: list[str] = []
    results: list[tuple[str, str]] = []
    names: dict[str, str] = {}
    for one in messages:
        for call in one.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
        if one["role"] == "user":
            said.append(_text(one["content"]))
            results.clear()
        elif one["role"] == "tool":
            results.append((names[one["tool_call_id"]], _text(one["content"])))
    return tuple(said), tuple(results)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or ())


def _call(call: ScriptedCall, number: int, at: int) -> dict[str, Any]:
    arguments = json.dumps(dict(call.arguments)) if call.raw is None else call.raw
    return {
        "id": f"call_{number:06}_{at}",
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _stop(reply: ScriptedReply) -> str:
    return "tool_calls" if reply.calls and reply.stop == "end" else _STOPS[reply.stop]


def _envelope(asked_: ReceivedRequest, number: int, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{number:06}",
        "object": kind,
        "created": 1_700_000_000,
        "model": asked_.model,
    }


def _usage(reply: ScriptedReply, usage: Mapping[str, int]) -> dict[str, Any]:
    calls = sum(estimate_tokens(_call(call, 0, 0)) for call in reply.calls)
    written = usage.get("output_tokens", calls + estimate_tokens(reply.text))
    read = usage["cache_read_input_tokens"]
    prompt = usage["input_tokens"] + read + usage["cache_creation_input_tokens"]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": read, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _chunk(envelope: Mapping[str, Any], delta: Mapping[str, Any], stop: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": stop}
    return _data({**envelope, "choices": [choice], "usage": None})


def _data(value: Any) -> str:
    return f"data: {json.dumps(value)}\n\n"
