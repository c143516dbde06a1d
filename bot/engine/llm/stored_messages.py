"""Inspects stored session messages without importing the library that wrote them, and keeps date
and time at a prompt's end, where they do not invalidate its cache.

Rows are those of `api.metered_model.dump_history`; only accessed fields are checked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, tzinfo
from typing import Any, TypeAlias

MessageRow: TypeAlias = Mapping[str, Any]
MessagePart: TypeAlias = Mapping[str, Any]

_REQUEST, _RESPONSE = "request", "response"
_CALL, _RETURN, _RETRY, _PROMPT = "tool-call", "tool-return", "retry-prompt", "user-prompt"
_TEXT = "text"
_IMAGE_BYTES = 6_000
"""Weight of a picture, regardless of its size."""

_BINARY = "binary"
_TIMESTAMP = "timestamp"
TimeTeller: TypeAlias = Callable[[str], str]
"""Returns the prompt with the present time at its end."""

_LINE = re.compile(
    r"\n\n\[now: \d{4}-\d\d-\d\d [A-Z][a-z]{2} \d\d:\d\d, [^\]\n]{1,60}, UTC[+-]\d\d:\d\d\]"
)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def is_message(row: object) -> bool:
    """Return True if the row has the structure that the other functions rely on."""
    if not isinstance(row, Mapping) or row.get("kind") not in {_REQUEST, _RESPONSE}:
        return False
    parts = row.get("parts")
    if not isinstance(parts, Sequence) or isinstance(parts, str | bytes):
        return False
    return all(_is_part(part) for part in parts)


def is_response(row: MessageRow) -> bool:
    return bool(row["kind"] == _RESPONSE)


def requested_calls(row: MessageRow) -> list[tuple[str, str]]:
    """Return ID and tool name of the calls in a response."""
    if not is_response(row):
        return []
    found = [part for part in row["parts"] if part["part_kind"] == _CALL]
    return [(part["tool_call_id"], part["tool_name"]) for part in found]


def call_arguments(row: MessageRow) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield tool name and arguments of the calls in a response; arguments that are no JSON object
    are empty."""
    for part in row["parts"] if is_response(row) else ():
        if part["part_kind"] == _CALL:
            arguments = part.get("args")
            if isinstance(arguments, str):
                with suppress(ValueError):
                    arguments = json.loads(arguments)
            yield part["tool_name"], arguments if isinstance(arguments, Mapping) else {}


def response_text(row: MessageRow) -> str:
    """Return the answer's text in a response; empty for a request."""
    if not is_response(row):
        return ""
    texts = [part.get("content") for part in row["parts"] if part["part_kind"] == _TEXT]
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def answered_call_id(part: MessagePart) -> str:
    """Return the ID of the call that this part answers; empty for none."""
    kind = part["part_kind"]
    if kind == _RETURN or (kind == _RETRY and part.get("tool_name")):
        return str(part["tool_call_id"])
    return ""


def has_tool_results(row: MessageRow) -> bool:
    return not is_response(row) and any(answered_call_id(part) for part in row["parts"])


def text_bytes(row: MessageRow) -> int:
    """Return the bytes of text that a model reads; a token has about four."""
    return sum(_part_bytes(part) for part in row["parts"])


def with_parts(row: MessageRow, parts: Sequence[MessagePart]) -> MessageRow:
    return {**row, "parts": list(parts)}


def result_text(part: MessagePart) -> str | None:
    """Return the text of a call's result; None for other parts."""
    if part["part_kind"] != _RETURN:
        return None
    content = part.get("content")
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def with_text(part: MessagePart, text: str) -> MessagePart:
    return {**part, "content": text}


def missing_result_part(call_id: str, tool: str, text: str, response: MessageRow) -> MessagePart:
    """Build a result for an unanswered call in `response`."""
    part = {"tool_name": tool, "content": text, "tool_call_id": call_id, "part_kind": _RETURN}
    return part if response.get(_TIMESTAMP) is None else {**part, _TIMESTAMP: response[_TIMESTAMP]}


def request_message(parts: Sequence[MessagePart]) -> MessageRow:
    return {"parts": list(parts), "kind": _REQUEST}


def prompt_part(text: str, source: MessageRow) -> MessagePart:
    """Build a user prompt with the timestamp of `source`."""
    part = {"content": text, "part_kind": _PROMPT}
    times = [
        row.get(_TIMESTAMP) for row in (source, *source["parts"]) if row.get(_TIMESTAMP) is not None
    ]
    return {**part, _TIMESTAMP: times[0]} if times else part


def _is_part(part: object) -> bool:
    if not isinstance(part, Mapping) or not isinstance(part.get("part_kind"), str):
        return False
    named = part["part_kind"] in {_CALL, _RETURN}
    ids = (part.get("tool_name"), part.get("tool_call_id"))
    if part["part_kind"] == _RETRY and part.get("tool_name"):
        named = True
    return not named or all(isinstance(each, str) and each for each in ids)


def _part_bytes(part: MessagePart) -> int:
    return sum(
        _IMAGE_BYTES if isinstance(each, Mapping) else len(each.encode("utf-8", "replace"))
        for key in ("content", "args")
        for each in _texts(part.get(key))
    )


def _texts(value: Any) -> Iterator[str | Mapping[str, Any]]:
    """Yield the texts in a value; binary contents as they are."""
    match value:
        case None:
            return
        case str():
            yield value
        case Mapping() if value.get("kind") == _BINARY:
            yield value
        case list():
            for each in value:
                yield from _texts(each)
        case _:
            yield json.dumps(value, ensure_ascii=False, default=str)


def with_present_time(prompt: str, now: datetime, zone: tzinfo) -> str:
    """The prompt with the date, weekday, minute and zone behind it; an empty prompt stays empty."""
    if not prompt.strip():
        return prompt
    local = now.astimezone(zone)
    offset = local.strftime("%z")
    return (
        f"{prompt}\n\n[now: {local:%Y-%m-%d} {_DAYS[local.weekday()]} {local:%H:%M}, {zone},"
        f" UTC{offset[:3]}:{offset[3:5]}]"
    )


def without_present_time(text: str) -> str:
    return _LINE.sub("", text) if "[now: " in text else text
