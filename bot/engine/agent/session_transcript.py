"""Exports session transcripts as JSON lines, in one format for all backends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any, TypeAlias

from bot.engine.llm import stored_messages
from handlers.ports_workers import TranscriptExport
from storage.data_directory import ExportFile
from storage.records.workers import SessionInfo, TranscriptRow
from storage.sessions import TranscriptRepo

TextMask: TypeAlias = Callable[[str], str]
TranscriptLine: TypeAlias = dict[str, Any]

USER, ASSISTANT, TOOL, OTHER = "user", "assistant", "tool", "other"


def transcript_lines(row: TranscriptRow, mask: TextMask) -> Iterator[str]:
    """Yield JSON objects with `at`, `role` and `parts`, secrets masked; a row yields zero or more
    lines."""
    at = row.at.astimezone(UTC).isoformat()
    for role, parts in _messages(row.content):
        line = {"at": at, "role": role, "parts": _mask_deep(parts, mask)}
        yield json.dumps(line, ensure_ascii=False)


def _messages(content: Any) -> Iterator[tuple[str, list[TranscriptLine]]]:
    if stored_messages.is_message(content):
        yield from _message_lines(content)
    elif isinstance(content, Mapping) and isinstance(cli := content.get("cli"), Mapping):
        yield USER, [_text_part(cli.get("prompt"))]
        yield ASSISTANT, [_text_part(cli.get("answer"))]
    else:
        yield OTHER, [{"type": "json", "value": content}]


def _message_lines(row: stored_messages.MessageRow) -> Iterator[tuple[str, list[TranscriptLine]]]:
    if stored_messages.is_response(row):
        yield ASSISTANT, [line for part in row["parts"] for line in _part_lines(part)]
        return
    results = [part for part in row["parts"] if stored_messages.answered_call_id(part)]
    others = [part for part in row["parts"] if not stored_messages.answered_call_id(part)]
    for role, parts in ((TOOL, results), (USER, others)):
        if lines := [line for part in parts for line in _part_lines(part)]:
            yield role, lines


def _part_lines(part: stored_messages.MessagePart) -> Iterator[TranscriptLine]:
    kind, content = part["part_kind"], part.get("content")
    match kind:
        case "text":
            yield _text_part(content)
        case "thinking":
            yield {"type": "thought", "text": content or ""}
        case "tool-call":
            call = {"type": "call", "id": part["tool_call_id"], "tool": part["tool_name"]}
            yield {**call, "arguments": _parse_arguments(part.get("args"))}
        case _ if stored_messages.answered_call_id(part):
            result = {"type": "result", "id": part["tool_call_id"], "tool": part["tool_name"]}
            yield {**result, "text": content if isinstance(content, str) else _dump(content)}
        case "user-prompt":
            several = content if isinstance(content, Sequence) and not _is_text(content) else None
            yield from map(_prompt_part, [content] if several is None else several)
        case _:
            yield {"type": str(kind), "text": _dump(content)}


def _prompt_part(content: Any) -> TranscriptLine:
    """Pictures are listed without their data."""
    if isinstance(content, Mapping) and content.get("kind") == "binary":
        size = len(str(content.get("data", ""))) * 3 // 4
        return {"type": "file", "mime": str(content.get("media_type", "")), "bytes": size}
    return _text_part(content if isinstance(content, str) else _dump(content))


def _text_part(content: Any) -> TranscriptLine:
    return {"type": "text", "text": content if isinstance(content, str) else _dump(content)}


def _parse_arguments(args: Any) -> Any:
    if not isinstance(args, str):
        return args
    try:
        return json.loads(args)
    except ValueError:
        return args


def _is_text(content: Any) -> bool:
    return isinstance(content, str | bytes)


def _dump(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, default=str)


def _mask_deep(value: Any, mask: TextMask) -> Any:
    """Mask all strings, including keys."""
    match value:
        case str():
            # Lone surrogates can't be encoded.
            return mask(value).encode("utf-8", "replace").decode()
        case Mapping():
            return {
                _mask_deep(str(key), mask): _mask_deep(each, mask) for key, each in value.items()
            }
        case list() | tuple():
            return [_mask_deep(each, mask) for each in value]
        case _:
            return value


_PAGE = 200


class TranscriptService:
    """Satisfies `handlers.ports_workers.TranscriptPort`."""

    def __init__(self, repo: TranscriptRepo, home: Path, mask: TextMask) -> None:
        self._repo = repo
        self._home = home
        self._mask = mask

    async def list_recent(self, limit: int) -> Sequence[SessionInfo]:
        return await self._repo.newest(limit)

    async def export(self, prefix: str) -> TranscriptExport:
        session = await self._repo.find(prefix)
        file = ExportFile(self._home, f"session-{session.id}.jsonl")
        count, last = 0, 0
        try:
            while page := await self._repo.page(session.id, after=last, limit=_PAGE):
                count += await asyncio.to_thread(self._write, file, page)
                last = page[-1].seq
            size = await asyncio.to_thread(file.commit)
        finally:
            await asyncio.to_thread(file.discard)
        return TranscriptExport(
            session=session,
            path=file.relative_path,
            absolute_path=str(file.path),
            size=size,
            lines=count,
        )

    def _write(self, file: ExportFile, page: Sequence[TranscriptRow]) -> int:
        lines = [line for row in page for line in transcript_lines(row, self._mask)]
        file.append_lines(lines)
        return len(lines)
