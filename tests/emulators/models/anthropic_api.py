"""The Anthropic Messages API: what it refuses, and how its answers look on the wire."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
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

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
MAX_OUTPUT = 64_000
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_STOPS = {"end": "end_turn", "cut": "max_tokens", "refused": "refusal"}


def failure(one: ScriptedFailure) -> dict[str, Any]:
    kind = one.kind or KINDS.get(one.status, "api_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": one.message},
        "request_id": "req_emulated",
    }


def refusal(one: RequestRejected) -> dict[str, Any]:
    return failure(ScriptedFailure(status=one.status, message=one.message, kind=one.kind))


def check_headers(headers: Mapping[str, str], keys: frozenset[str]) -> None:
    key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
    if not key:
        raise RequestRejected(401, "x-api-key header is required", kind=KINDS[401])
    if key not in keys:
        raise RequestRejected(401, "invalid x-api-key", kind=KINDS[401])
    if "anthropic-version" not in headers:
        raise RequestRejected(400, "anthropic-version: header is required")


def asked(
    body: Mapping[str, Any], headers: Mapping[str, str], known: frozenset[str]
) -> ReceivedRequest:
    """The request in neutral form, or Refused as the real API would."""
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            raise RequestRejected(400, f"{name}: Field required")
    model = body["model"]
    if model not in known:
        raise RequestRejected(404, f"model: {model}", kind=KINDS[404])
    _check_max_tokens(body["max_tokens"], model)
    tools = _tools(body)
    _check_messages(body["messages"])
    _check_cache(body)
    said, results = _conversation(body["messages"])
    choice = body.get("tool_choice") or {}
    return ReceivedRequest(
        api="anthropic",
        model=model,
        system=_text(body.get("system") or ""),
        user_texts=said,
        tool_results=results,
        tools=tools,
        must_call=_choice(choice, tools),
        schema=((body.get("output_config") or {}).get("format") or {}).get("schema"),
        stream=bool(body.get("stream")),
        headers=headers,
        body=body,
    )


def whole(
    asked_: ReceivedRequest, reply: ScriptedReply, number: int, usage: Mapping[str, int]
) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text else []
    blocks += [_block(call, number, at) for at, call in enumerate(reply.calls)]
    return {
        "id": f"msg_{number:06}",
        "type": "message",
        "role": "assistant",
        "model": asked_.model,
        "content": blocks,
        "stop_reason": _stop(reply),
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": _output(reply)},
    }


def events(
    asked_: ReceivedRequest, reply: ScriptedReply, number: int, usage: Mapping[str, int]
) -> Iterator[str]:
    """The answer as server-sent events."""
    start = whole(asked_, reply, number, usage)
    start |= {"content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield _event("message_start", message=start)
    index = 0
    if reply.text:
        yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        yield _event("ping")
        for piece in stream_pieces(reply.text):
            yield _delta(0, {"type": "text_delta", "text": piece})
        yield _event("content_block_stop", index=0)
        index = 1
    for at, call in enumerate(reply.calls):
        block = {**_block(call, number, at), "input": {}}
        yield _event("content_block_start", index=index, content_block=block)
        for piece in ["", *stream_pieces(_arguments(call), 20)]:
            yield _delta(index, {"type": "input_json_delta", "partial_json": piece})
        yield _event("content_block_stop", index=index)
        index += 1
    delta = {"stop_reason": _stop(reply), "stop_sequence": None}
    yield _event("message_delta", delta=delta, usage={"output_tokens": _output(reply)})
    yield _event("message_stop")


def error_event(one: ScriptedFailure) -> str:
    return f"event: error\ndata: {json.dumps(failure(one))}\n\n"


def prompt_blocks(body: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """All of a prompt in the order in which it is cached, each block with its place."""
    return [
        *(("tools", tool) for tool in body.get("tools") or ()),
        *(("system", block) for block in _blocks(body.get("system") or "")),
        *((one["role"], block) for one in body["messages"] for block in _blocks(one["content"])),
    ]


def _check_max_tokens(value: object, model: str) -> None:
    if not isinstance(value, int) or value < 1:
        raise RequestRejected(400, "max_tokens: Input should be greater than or equal to 1")
    if value > MAX_OUTPUT:
        raise RequestRejected(
            400,
            f"max_tokens: {value} > {MAX_OUTPUT}, which is the maximum allowed number of output"
            f" tokens for {model}",
        )


def _tools(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    tools: dict[str, Mapping[str, Any]] = {}
    for at, tool in enumerate(body.get("tools") or ()):
        name = tool.get("name", "")
        if not _NAME.fullmatch(name):
            raise RequestRejected(
                400, f"tools.{at}.custom.name: String should match pattern '{_NAME.pattern}'"
            )
        if name in tools:
            raise RequestRejected(400, "tools: Tool names must be unique.")
        if (tool.get("input_schema") or {}).get("type") != "object":
            raise RequestRejected(
                400, f"tools.{at}.custom.input_schema.type: Input should be 'object'"
            )
        tools[name] = tool["input_schema"]
    return tools


def _choice(choice: Mapping[str, Any], tools: Mapping[str, Any]) -> str:
    """The tool that must be called, `*` for any, empty for none."""
    if choice and not tools:
        raise RequestRejected(400, "tool_choice: may only be specified while providing tools")
    match choice.get("type"):
        case "tool":
            if choice.get("name") not in tools:
                raise RequestRejected(
                    400, f"tool_choice: Tool '{choice.get('name')}' not found in provided tools"
                )
            return str(choice["name"])
        case "any":
            return "*"
        case _:
            return ""


def _check_messages(messages: list[dict[str, Any]]) -> None:
    if not messages:
        raise RequestRejected(400, "messages: at least one message is required")
    if messages[0]["role"] != "user":
        raise RequestRejected(400, 'messages: first message must use the "user" role')
    pending: list[str] = []
    for at, one in enumerate(messages):
        if one["role"] not in {"user", "assistant"}:
            raise RequestRejected(400, f"messages.{at}.role: Input should be 'user' or 'assistant'")
        blocks = _blocks(one["content"])
        if not blocks:
            raise RequestRejected(400, f"messages.{at}: all messages must have non-empty content")
        for block in blocks:
            if block["type"] == "text" and not block["text"].strip():
                raise RequestRejected(400, "messages: text content blocks must be non-empty")
        _check_results(at, blocks, pending)
        pending = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if pending:
        raise _unanswered(len(messages) - 1, pending)


def _check_results(at: int, blocks: list[dict[str, Any]], pending: list[str]) -> None:
    answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    for number, one in enumerate(answered):
        if one not in pending:
            raise RequestRejected(
                400,
                f"messages.{at}.content.{number}: unexpected `tool_use_id` found in `tool_result`"
                f" blocks: {one}. Each `tool_result` block must have a corresponding `tool_use`"
                " block in the previous message.",
            )
    missing = [one for one in pending if one not in answered]
    if missing:
        raise _unanswered(at - 1, missing)


def _unanswered(at: int, ids: list[str]) -> RequestRejected:
    return RequestRejected(
        400,
        f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately"
        f" after: {', '.join(ids)}. Each `tool_use` block must have a corresponding"
        " `tool_result` block in the next message.",
    )


def _check_cache(body: Mapping[str, Any]) -> None:
    marks = [block.get("cache_control") for _, block in prompt_blocks(body)]
    found = sum(map(bool, [*marks, body.get("cache_control")]))
    if found > 4:
        raise RequestRejected(
            400, f"A maximum of 4 blocks with cache_control may be provided. Found {found}."
        )


def _conversation(
    messages: list[dict[str, Any]],
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    said: list[str] = []
    results: list[tuple[str, str]] = []
    names: dict[str, str] = {}
    for one in messages:
        blocks = _blocks(one["content"])
        names |= {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
        if one["role"] != "user":
            continue
        text = _text([block for block in blocks if block["type"] == "text"])
        if text:
            said.append(text)
            results.clear()
        results += [
            (names[block["tool_use_id"]], _text(block.get("content") or ""))
            for block in blocks
            if block["type"] == "tool_result"
        ]
    return tuple(said), tuple(results)


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content)


def _text(content: Any) -> str:
    return "\n".join(block.get("text", "") for block in _blocks(content))


def _block(call: ScriptedCall, number: int, at: int) -> dict[str, Any]:
    ident = f"toolu_{number:06}_{at}"
    return {"type": "tool_use", "id": ident, "name": call.name, "input": dict(call.arguments)}


def _arguments(call: ScriptedCall) -> str:
    return json.dumps(dict(call.arguments)) if call.raw is None else call.raw


def _stop(reply: ScriptedReply) -> str:
    return "tool_use" if reply.calls and reply.stop == "end" else _STOPS[reply.stop]


def _output(reply: ScriptedReply) -> int:
    return estimate_tokens(reply.text) + sum(
        estimate_tokens(_arguments(call)) for call in reply.calls
    )


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def _delta(index: int, delta: Mapping[str, Any]) -> str:
    return _event("content_block_delta", index=index, delta=delta)
