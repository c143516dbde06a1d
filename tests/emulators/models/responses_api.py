"""The OpenAI Responses API: how its answers look on the wire. What it refuses: responses_input."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from tests.emulators.models import openai_api
from tests.emulators.models.responses_input import (
    NAMESPACE,
    check_input,
    check_parameters,
    choice,
    conversation,
    items,
    schema,
    system,
    tools,
)
from tests.emulators.models.script import (
    ReceivedRequest,
    RequestRejected,
    ScriptedCall,
    ScriptedFailure,
    ScriptedReply,
    estimate_tokens,
    stream_pieces,
)

_Told: TypeAlias = Iterator[tuple[str, dict[str, Any]]]

failure = openai_api.failure
refusal = openai_api.refusal
check_headers = openai_api.check_headers


def asked(
    body: Mapping[str, Any], headers: Mapping[str, str], known: frozenset[str]
) -> ReceivedRequest:
    """The request in neutral form, or Refused as the real API would. A tool in a namespace is
    called `namespace::tool`."""
    model = body.get("model")
    if not model:
        raise RequestRejected(
            400,
            "Missing required parameter: 'model'.",
            param="model",
            code="missing_required_parameter",
        )
    if model not in known:
        raise RequestRejected(
            400,
            f"The requested model '{model}' does not exist.",
            param="model",
            code="model_not_found",
        )
    check_parameters(body)
    listed = items(body)
    check_input(listed)
    offered = tools(body, listed)
    said, results = conversation(listed)
    return ReceivedRequest(
        api="responses",
        model=model,
        system=system(body, listed),
        user_texts=said,
        tool_results=results,
        tools=offered,
        must_call=choice(body, offered),
        schema=schema(body),
        stream=bool(body.get("stream")),
        headers=headers,
        body=body,
    )


def whole(
    asked_: ReceivedRequest, reply: ScriptedReply, number: int, usage: Mapping[str, int]
) -> dict[str, Any]:
    output = _output(asked_, reply, number)
    return _response(asked_, number, output, status=_status(reply), usage=_usage(reply, usage))


def events(
    asked_: ReceivedRequest, reply: ScriptedReply, number: int, usage: Mapping[str, int]
) -> Iterator[str]:
    """The answer as server-sent events: each item and part is opened, filled and closed."""
    for at, (kind, told) in enumerate(_events(asked_, reply, number, usage)):
        yield _event(kind, {**told, "sequence_number": at})


def error_event(one: ScriptedFailure) -> str:
    told = failure(one)["error"]
    return _event("error", {"code": told["code"] or told["type"], "message": one.message})


def _events(
    asked_: ReceivedRequest, reply: ScriptedReply, number: int, usage: Mapping[str, int]
) -> _Told:
    begun = _response(asked_, number, [], status="in_progress")
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    output = _output(asked_, reply, number)
    for at, item in enumerate(output):
        opened = {"item_id": item["id"], "output_index": at}
        inner, empty = _inside(item)
        started = {**item, **empty, "status": "in_progress"}
        yield "response.output_item.added", {"output_index": at, "item": started}
        for kind, told in inner:
            yield kind, {**opened, **told}
        yield "response.output_item.done", {"output_index": at, "item": item}
    status = _status(reply)
    ended = _response(asked_, number, output, status=status, usage=_usage(reply, usage))
    yield f"response.{status}", {"response": ended}


def _inside(item: Mapping[str, Any]) -> tuple[_Told, dict[str, Any]]:
    """The events that fill it, and what it is before them."""
    match item["type"]:
        case "function_call":
            return _words(item, "arguments", "function_call_arguments"), {"arguments": ""}
        case "custom_tool_call":
            return _words(item, "input", "custom_tool_call_input"), {"input": ""}
        case _:
            return _part(item), {"content": []}


def _part(message: Mapping[str, Any]) -> _Told:
    """The one part of a message: words, or the words of a refusal."""
    (part,) = message["content"]
    refused = part["type"] == "refusal"
    key, name = ("refusal", "refusal") if refused else ("text", "output_text")
    place = {"content_index": 0}
    more: dict[str, Any] = {} if refused else {"logprobs": []}
    yield "response.content_part.added", {**place, "part": {**part, key: ""}}
    for piece in stream_pieces(part[key]):
        yield f"response.{name}.delta", {**place, "delta": piece, **more}
    yield f"response.{name}.done", {**place, key: part[key], **more}
    yield "response.content_part.done", {**place, "part": part}


def _words(call: Mapping[str, Any], key: str, kind: str) -> _Told:
    for piece in stream_pieces(call[key], 20):
        yield f"response.{kind}.delta", {"delta": piece}
    yield f"response.{kind}.done", {key: call[key], "name": call["name"]}


def _output(asked_: ReceivedRequest, reply: ScriptedReply, number: int) -> list[dict[str, Any]]:
    status = "incomplete" if reply.stop == "cut" else "completed"
    output: list[dict[str, Any]] = []
    if reply.text or reply.stop == "refused":
        part: dict[str, Any] = {"type": "output_text", "text": reply.text}
        part |= {"annotations": [], "logprobs": []}
        if reply.stop == "refused":
            part = {"type": "refusal", "refusal": reply.text or "I can't help with that."}
        message = {"type": "message", "id": f"msg_{number:06}", "role": "assistant"}
        output.append({**message, "status": status, "content": [part]})
    for at, call in enumerate(reply.calls):
        custom = asked_.tools.get(call.name, {}).get("type") == "custom"
        told = {"type": "custom_tool_call", "id": f"ctc_{number:06}_{at}", "input": _text(call)}
        if not custom:
            told = {"type": "function_call", "id": f"fc_{number:06}_{at}", "arguments": _text(call)}
        space, _, name = call.name.rpartition(NAMESPACE)
        told |= {"call_id": f"call_{number:06}_{at}", "name": name, "status": status}
        output.append(told | ({"namespace": space} if space else {}))
    return output


def _text(call: ScriptedCall) -> str:
    return json.dumps(dict(call.arguments)) if call.raw is None else call.raw


def _status(reply: ScriptedReply) -> str:
    return "incomplete" if reply.stop == "cut" else "completed"


def _usage(reply: ScriptedReply, usage: Mapping[str, int]) -> dict[str, Any]:
    written = sum(estimate_tokens(_text(call)) for call in reply.calls) + estimate_tokens(
        reply.text
    )
    read = usage["cache_read_input_tokens"]
    prompt = usage["input_tokens"] + read + usage["cache_creation_input_tokens"]
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + written,
    }


def _response(
    asked_: ReceivedRequest,
    number: int,
    output: list[dict[str, Any]],
    *,
    status: str,
    usage: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """It repeats what it was asked with, as the real one does."""
    body = asked_.body
    cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
    return {
        "id": f"resp_{number:06}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": cut,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": asked_.model,
        "output": output,
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "store": body.get("store", True),
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p", 1.0),
        "truncation": body.get("truncation", "disabled"),
        "usage": usage,
    }


def _event(kind: str, told: Mapping[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **told})}\n\n"
