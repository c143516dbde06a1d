"""A stored history as rows, without the library that wrote it: whose turn, which calls, how long.

Rows are those of `api_history.dump`. Only what is looked at is checked; all else passes through.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]
Part: TypeAlias = Mapping[str, Any]

_REQUEST, _RESPONSE = "request", "response"
_CALL, _RETURN, _RETRY, _PROMPT = "tool-call", "tool-return", "retry-prompt", "user-prompt"
_PICTURE = 6_000
"""What a picture weighs, whatever its bytes."""

_BINARY = "binary"
_WHEN = "timestamp"


def is_message(row: object) -> bool:
    """True if it has the form of a message: who reads it need not look again."""
    if not isinstance(row, Mapping) or row.get("kind") not in {_REQUEST, _RESPONSE}:
        return False
    parts = row.get("parts")
    if not isinstance(parts, Sequence) or isinstance(parts, str | bytes):
        return False
    return all(_is_part(part) for part in parts)


def is_response(row: Row) -> bool:
    return bool(row["kind"] == _RESPONSE)


def calls(row: Row) -> list[tuple[str, str]]:
    """The calls that a response asks for, as id and tool."""
    if not is_response(row):
        return []
    found = [part for part in row["parts"] if part["part_kind"] == _CALL]
    return [(part["tool_call_id"], part["tool_name"]) for part in found]


def answered(part: Part) -> str:
    """The id of the call that this part of a request is the result of; empty for none."""
    kind = part["part_kind"]
    if kind == _RETURN or (kind == _RETRY and part.get("tool_name")):
        return str(part["tool_call_id"])
    return ""


def has_results(row: Row) -> bool:
    return not is_response(row) and any(answered(part) for part in row["parts"])


def weight(row: Row) -> int:
    """Bytes of text that a model reads; about four make a token."""
    return sum(_weight(part) for part in row["parts"])


def with_parts(row: Row, parts: Sequence[Part]) -> Row:
    return {**row, "parts": list(parts)}


def result_text(part: Part) -> str | None:
    """What a call's result says; None for other parts."""
    if part["part_kind"] != _RETURN:
        return None
    content = part.get("content")
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def with_text(part: Part, text: str) -> Part:
    return {**part, "content": text}


def no_result(call_id: str, tool: str, text: str, at: Row) -> Part:
    """A result for a call that has none. `at` is the response that asked for it."""
    made = {"tool_name": tool, "content": text, "tool_call_id": call_id, "part_kind": _RETURN}
    return made if at.get(_WHEN) is None else {**made, _WHEN: at[_WHEN]}


def request_of(parts: Sequence[Part]) -> Row:
    return {"parts": list(parts), "kind": _REQUEST}


def prompt(text: str, at: Row) -> Part:
    """Words of whoever asks. `at` is a row from which it takes its time."""
    made = {"content": text, "part_kind": _PROMPT}
    times = [row.get(_WHEN) for row in (at, *at["parts"]) if row.get(_WHEN) is not None]
    return {**made, _WHEN: times[0]} if times else made


def _is_part(part: object) -> bool:
    if not isinstance(part, Mapping) or not isinstance(part.get("part_kind"), str):
        return False
    named = part["part_kind"] in {_CALL, _RETURN}
    ids = (part.get("tool_name"), part.get("tool_call_id"))
    if part["part_kind"] == _RETRY and part.get("tool_name"):
        named = True
    return not named or all(isinstance(each, str) and each for each in ids)


def _weight(part: Part) -> int:
    return sum(
        _PICTURE if isinstance(each, Mapping) else len(each.encode("utf-8", "replace"))
        for key in ("content", "args")
        for each in _texts(part.get(key))
    )


def _texts(value: Any) -> Iterator[str | Mapping[str, Any]]:
    """The texts in a value; pictures and other binaries as they are."""
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
