"""A session's transcript as lines of JSON: who said what when, in one form for all backends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any, TypeAlias

from bot.engine.llm.loop import turns
from storage.records.sessions import Written

Mask: TypeAlias = Callable[[str], str]
Line: TypeAlias = dict[str, Any]

USER, ASSISTANT, TOOL, OTHER = "user", "assistant", "tool", "other"


def lines_of(row: Written, mask: Mask) -> Iterator[str]:
    """Each a JSON object with `at`, `role` and `parts`, without secrets. One row of the store may
    be several lines, or none."""
    at = row.at.astimezone(UTC).isoformat()
    for role, parts in _told(row.content):
        line = {"at": at, "role": role, "parts": _masked(parts, mask)}
        yield json.dumps(line, ensure_ascii=False)


def _told(content: Any) -> Iterator[tuple[str, list[Line]]]:
    if turns.is_message(content):
        yield from _of_message(content)
    elif isinstance(content, Mapping) and isinstance(cli := content.get("cli"), Mapping):
        yield USER, [_text(cli.get("prompt"))]
        yield ASSISTANT, [_text(cli.get("answer"))]
    else:
        yield OTHER, [{"type": "json", "value": content}]


def _of_message(row: turns.Row) -> Iterator[tuple[str, list[Line]]]:
    if turns.is_response(row):
        yield ASSISTANT, [line for part in row["parts"] for line in _part(part)]
        return
    results = [part for part in row["parts"] if turns.answered(part)]
    others = [part for part in row["parts"] if not turns.answered(part)]
    for role, parts in ((TOOL, results), (USER, others)):
        if lines := [line for part in parts for line in _part(part)]:
            yield role, lines


def _part(part: turns.Part) -> Iterator[Line]:
    kind, content = part["part_kind"], part.get("content")
    match kind:
        case "text":
            yield _text(content)
        case "thinking":
            yield {"type": "thought", "text": content or ""}
        case "tool-call":
            call = {"type": "call", "id": part["tool_call_id"], "tool": part["tool_name"]}
            yield {**call, "arguments": _arguments(part.get("args"))}
        case _ if turns.answered(part):
            result = {"type": "result", "id": part["tool_call_id"], "tool": part["tool_name"]}
            yield {**result, "text": content if isinstance(content, str) else _dumped(content)}
        case "user-prompt":
            several = content if isinstance(content, Sequence) and not _is_text(content) else None
            yield from map(_piece, [content] if several is None else several)
        case _:
            yield {"type": str(kind), "text": _dumped(content)}


def _piece(content: Any) -> Line:
    """Pictures are named, not repeated."""
    if isinstance(content, Mapping) and content.get("kind") == "binary":
        size = len(str(content.get("data", ""))) * 3 // 4
        return {"type": "file", "mime": str(content.get("media_type", "")), "bytes": size}
    return _text(content if isinstance(content, str) else _dumped(content))


def _text(content: Any) -> Line:
    return {"type": "text", "text": content if isinstance(content, str) else _dumped(content)}


def _arguments(args: Any) -> Any:
    if not isinstance(args, str):
        return args
    try:
        return json.loads(args)
    except ValueError:
        return args


def _is_text(content: Any) -> bool:
    return isinstance(content, str | bytes)


def _dumped(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, default=str)


def _masked(value: Any, mask: Mask) -> Any:
    """Every text in it, also those that are keys."""
    match value:
        case str():
            # No file can hold half a character.
            return mask(value).encode("utf-8", "replace").decode()
        case Mapping():
            return {_masked(str(key), mask): _masked(each, mask) for key, each in value.items()}
        case list() | tuple():
            return [_masked(each, mask) for each in value]
        case _:
            return value
