"""The Gemini API: how its answers look on the wire. What it refuses: gemini_input."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.emulators.models.gemini_input import (
    api_error,
    check_config,
    check_contents,
    conversation,
    must_call,
    needs_signatures,
    signature,
    system,
    tools,
)
from tests.emulators.models.script import (
    ReceivedRequest,
    RequestRejected,
    ScriptedFailure,
    ScriptedReply,
    estimate_tokens,
    stream_pieces,
)

MODELS = (
    "gemini-3.1-pro-preview",
    "gemini-3.5-flash",
    "gemini-3.5-flash-lite",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
)
_PATH = re.compile(r"/v1beta/models/(?P<model>[^/:]+):(?P<method>\w+)")
_METHODS = {"generateContent", "streamGenerateContent", "countTokens"}
_STOPS = {"end": "STOP", "cut": "MAX_TOKENS", "refused": "SAFETY"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiEndpoint:
    """One method of one model: both stand in the path. `sse`: a stream is an array otherwise."""

    model: str
    method: str
    sse: bool

    def check_headers(self, headers: Mapping[str, str], keys: frozenset[str]) -> None:
        key = headers.get("x-goog-api-key", "")
        if not key:
            raise api_error(
                403,
                "Method doesn't allow unregistered callers (callers without established identity)."
                " Please use API Key or other form of API consumer identity to call this API.",
            )
        if key not in keys:
            raise api_error(400, "API key not valid. Please pass a valid API key.")

    def asked(
        self, body: Mapping[str, Any], headers: Mapping[str, str], known: frozenset[str]
    ) -> ReceivedRequest:
        """The request in neutral form, or Refused as the real API would."""
        if self.model not in known:
            raise api_error(
                404,
                f"models/{self.model} is not found for API version v1beta, or is not supported for"
                f" {self.method}. Call ListModels to see the list of available models and their"
                " supported methods.",
            )
        body = body.get("generateContentRequest", body)
        offered = tools(body)
        check_config(body, self.model, offered)
        check_contents(body, self.model)
        said, results = conversation(body)
        config = body.get("generationConfig") or {}
        return ReceivedRequest(
            api="gemini",
            model=self.model,
            system=system(body),
            user_texts=said,
            tool_results=results,
            tools=offered,
            must_call=must_call(body, offered),
            schema=config.get("responseJsonSchema") or config.get("responseSchema"),
            stream=self.method == "streamGenerateContent",
            headers=headers,
            body=body,
        )

    @property
    def counts(self) -> bool:
        """It tells how long a prompt is, and answers nothing."""
        return self.method == "countTokens"

    def counted(self, asked_: ReceivedRequest) -> dict[str, Any]:
        return {"totalTokens": estimate_tokens(asked_.body)}

    def whole(
        self, asked_: ReceivedRequest, reply: ScriptedReply, number: int, usage: Mapping[str, int]
    ) -> dict[str, Any]:
        counted = _usage(reply, usage)
        parts = [{"text": reply.text}] if reply.text else []
        return _chunk(asked_, number, parts + _calls(asked_, reply, number), counted, reply)

    def events(
        self, asked_: ReceivedRequest, reply: ScriptedReply, number: int, usage: Mapping[str, int]
    ) -> Iterator[str]:
        """Each chunk is an answer with a part more; a call comes in one piece."""
        counted = _usage(reply, usage)
        chunks = [
            _chunk(asked_, number, [{"text": piece}], counted)
            for piece in stream_pieces(reply.text)
        ]
        chunks.append(_chunk(asked_, number, _calls(asked_, reply, number), counted, reply))
        for at, chunk in enumerate(chunks):
            yield self._framed(chunk, first=at == 0, last=at == len(chunks) - 1)

    def failure(self, one: ScriptedFailure) -> dict[str, Any]:
        return refusal(api_error(one.status, one.message, one.kind))

    def refusal(self, one: RequestRejected) -> dict[str, Any]:
        return refusal(one)

    def error_event(self, one: ScriptedFailure) -> str:
        return self._framed(self.failure(one), first=False, last=True)

    def _framed(self, chunk: Mapping[str, Any], *, first: bool, last: bool) -> str:
        if self.sse:
            return f"data: {json.dumps(chunk)}\r\n\r\n"
        return f"{'[' if first else ','}{json.dumps(chunk)}{']' if last else ''}"


def endpoint(path: str, query: Mapping[str, str]) -> GeminiEndpoint | None:
    """None where the path is none of this API."""
    found = _PATH.fullmatch(path)
    if found is None or found["method"] not in _METHODS:
        return None
    return GeminiEndpoint(
        model=found["model"], method=found["method"], sse=query.get("alt") == "sse"
    )


def refusal(one: RequestRejected) -> dict[str, Any]:
    told: dict[str, Any] = {"code": one.status, "message": one.message, "status": one.kind}
    if "API key not valid" in one.message:
        domain = {"reason": "API_KEY_INVALID", "domain": "googleapis.com"}
        told["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **domain}]
    return {"error": told}


def _calls(asked_: ReceivedRequest, reply: ScriptedReply, number: int) -> list[dict[str, Any]]:
    """The first of a turn carries the signature of the thoughts that led to it."""
    found: list[dict[str, Any]] = []
    for at, call in enumerate(reply.calls):
        args: Any = dict(call.arguments) if call.raw is None else call.raw
        told = {"name": call.name, "args": args, "id": f"call{number:06}x{at}"}
        signed = {"thoughtSignature": signature(number)} if at == 0 else {}
        found.append({"functionCall": told, **(signed if needs_signatures(asked_.model) else {})})
    return found


def _chunk(
    asked_: ReceivedRequest,
    number: int,
    parts: list[dict[str, Any]],
    usage: Mapping[str, Any],
    ends: ScriptedReply | None = None,
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts or [{"text": ""}], "role": "model"}}
    if ends is not None:
        candidate["finishReason"] = _STOPS[ends.stop]
    return {
        "candidates": [{**candidate, "index": 0}],
        "usageMetadata": usage,
        "modelVersion": asked_.model,
        "responseId": f"resp{number:06}",
    }


def _usage(reply: ScriptedReply, usage: Mapping[str, int]) -> dict[str, Any]:
    written = sum(estimate_tokens(call) for call in reply.calls) + estimate_tokens(reply.text)
    read = usage["cache_read_input_tokens"]
    prompt = usage["input_tokens"] + read + usage["cache_creation_input_tokens"]
    told: dict[str, Any] = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": written,
        "totalTokenCount": prompt + written,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
    }
    return told | ({"cachedContentTokenCount": read} if read else {})
