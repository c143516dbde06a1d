"""Extracts searchable text from stored messages of all backends and renders it as input for
summaries."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.llm import stored_messages
from bot.engine.llm.stored_messages import without_present_time
from bot.engine.memory.conversation_archive.search_query import SearchDeadline
from bot.engine.memory.noise_filter import strip_memory_blocks
from bot.engine.memory.token_budget import (
    TOKENS_PER_ATTACHMENT,
    estimate_tokens,
    truncate_to_tokens,
)
from cards.failure_texts import without_failure_texts
from storage.db import Database
from storage.memory.conversation_archive import ArchiveAccess, ArchiveRepo, RawMessage
from storage.records.conversation_archive import ConversationSummary, MessagePart, TranscriptRole

_BLOCK = "[{at:%Y-%m-%d %H:%M %Z} | {role}]\n{text}"
_SUMMARY_BLOCK = "[{since:%Y-%m-%d %H:%M %Z} – {until:%Y-%m-%d %H:%M %Z}]\n{text}"
_BLOB = re.compile(r"[A-Za-z0-9+/=]{200,}")
_LOOKUP_NOTE = "[looked something up in memory]"
_MIDDLE_CUT = "\n[… the middle of this is left out …]\n"


def render_messages(parts: Sequence[MessagePart], zone: ZoneInfo) -> str:
    """Text without injected memory, images and thoughts; empty if nothing was said."""
    blocks = [
        _BLOCK.format(at=part.at.astimezone(zone), role=part.role.value, text=text)
        for part in parts
        if (text := strip_injected(part_text(part)))
    ]
    return "\n\n".join(blocks)


def render_summaries(summaries: Sequence[ConversationSummary], zone: ZoneInfo) -> str:
    blocks = [
        _SUMMARY_BLOCK.format(
            since=each.earliest_at.astimezone(zone),
            until=each.latest_at.astimezone(zone),
            text=each.content,
        )
        for each in summaries
    ]
    return "\n\n".join(blocks)


def part_text(part: MessagePart) -> str:
    """The part's text; a memory lookup, stored without its content, is only mentioned."""
    return part.text or (_LOOKUP_NOTE if part.role is TranscriptRole.CALL else "")


def strip_injected(text: str) -> str:
    """The text that was said, without injected memory, data and our own sentences on failures."""
    return without_failure_texts(_BLOB.sub("[data]", strip_memory_blocks(text)).strip())


def fit_to_tokens(text: str, max_tokens: int) -> str:
    """Beginning and end of the text, about `max_tokens` together."""
    if estimate_tokens(text) <= max_tokens:
        return text
    head = truncate_to_tokens(text, max_tokens * 2 // 3)
    tail = truncate_to_tokens(text[::-1], max_tokens // 3)[::-1]
    return head + _MIDDLE_CUT + tail


_PAGE_SIZE = 200

RESULT_EDGE_CHARS = 1_500
"""Characters shown of a long result's beginning and of its end."""
_MAX_RESULT_CHARS = 4_000
_MAX_CALL_CHARS = 1_000
_CHARS_CUT = "\n[… {n} characters left out …]\n"

_LOOKUP_TOOLS = frozenset(
    {"memory_search", "memory_get", "history_grep", "history_describe", "history_expand"}
)
"""Tools that read memory or history."""
_CLI_CUT = "\n[…]\n"
"""Marks the omitted middle of a long text in coding CLI sessions (`llm.acp`)."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class ArchiveIndexer:
    def __init__(self, db: Database, archive: ArchiveRepo) -> None:
        self._db = db
        self._archive = archive

    async def index_session(self, session_id: str, deadline: SearchDeadline | None = None) -> bool:
        """Index the session's messages until the deadline. False if nothing was left to index."""
        found = False
        while unread := await self._archive.list_unindexed_messages(session_id, _PAGE_SIZE):
            parts = await asyncio.to_thread(
                lambda rows: [part for each in rows for part in parse_parts(each)], unread
            )
            async with self._db.write() as tx:
                await self._archive.save_parts(tx, session_id, parts)
            found = True
            if deadline is not None and deadline.is_over:
                deadline.was_cut = True
                break
        return found

    async def index_visible(self, hearing: ArchiveAccess, deadline: SearchDeadline) -> None:
        """Index all sessions visible to the listener, latest first."""
        for session_id in await self._archive.list_unindexed_sessions(hearing):
            await self.index_session(session_id, deadline)
            if deadline.was_cut:
                return


def parse_parts(message: RawMessage, *, whole: bool = False) -> list[MessagePart]:
    """A message's parts, at least one, possibly empty. Long calls and results are shortened unless
    `whole` is set."""
    said = list(_parse_content(message.content, whole=whole)) or [(TranscriptRole.OTHER, "", 0)]
    return [
        MessagePart(
            message=message.message,
            ordinal=n,
            role=role,
            text=_storable(text),
            tokens=size,
            at=message.at,
        )
        for n, (role, text, size) in enumerate(said)
    ]


def _parse_content(content: Any, *, whole: bool) -> Iterator[tuple[TranscriptRole, str, int]]:
    if stored_messages.is_message(content):
        for part in content["parts"]:
            yield from _parse_part(part, content, whole=whole)
    elif isinstance(content, Mapping) and isinstance(cli := content.get("cli"), Mapping):
        for role, key in ((TranscriptRole.USER, "prompt"), (TranscriptRole.ASSISTANT, "answer")):
            text = str(cli.get(key) or "")
            said = (
                without_present_time(strip_memory_blocks(text, cut_marker=_CLI_CUT))
                if role is TranscriptRole.USER
                else text
            )
            yield role, said, estimate_tokens(text)
    else:
        text = _to_text(content)
        yield TranscriptRole.OTHER, text if whole else _keep_edges(text), estimate_tokens(text)


def _parse_part(
    part: stored_messages.MessagePart, row: stored_messages.MessageRow, *, whole: bool
) -> Iterator[tuple[TranscriptRole, str, int]]:
    kind = part["part_kind"]
    if part.get("tool_name") in _LOOKUP_TOOLS:
        # Lookup results are not part of the conversation and would survive forgetting here.
        role = TranscriptRole.CALL if kind == "tool-call" else TranscriptRole.TOOL
        yield role, "", estimate_tokens(_to_text(part.get("args") or part.get("content")))
    elif kind == "tool-call":
        call = f"{part['tool_name']} {_to_text(part.get('args'))}"
        yield TranscriptRole.CALL, call if whole else _keep_head(call), estimate_tokens(call)
    elif stored_messages.answered_call_id(part):
        result = _to_text(part.get("content"))
        text = _keep_edges(result)
        yield TranscriptRole.TOOL, result if whole else text, estimate_tokens(text)
    elif kind == "thinking":
        yield TranscriptRole.OTHER, "", estimate_tokens(str(part.get("content") or ""))
    elif kind != "system-prompt":
        role = TranscriptRole.ASSISTANT if stored_messages.is_response(row) else TranscriptRole.USER
        texts, pictures = _split_prompt(part.get("content"))
        text = "\n".join(texts)
        yield (
            role,
            without_present_time(strip_memory_blocks(text)),
            estimate_tokens(text) + pictures * TOKENS_PER_ATTACHMENT,
        )


def _split_prompt(content: Any) -> tuple[list[str], int]:
    """Texts of a prompt, and the number of its other items, which are named instead."""
    several = content if isinstance(content, list) else [content]
    texts, others = [], 0
    for each in several:
        if isinstance(each, Mapping) and each.get("kind") == "binary":
            texts.append(f"[{each.get('media_type') or 'file'}]")
            others += 1
        elif each is not None:
            texts.append(_to_text(each))
    return texts, others


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _keep_edges(text: str) -> str:
    if len(text) <= _MAX_RESULT_CHARS:
        return text
    note = _CHARS_CUT.format(n=len(text) - 2 * RESULT_EDGE_CHARS)
    return text[:RESULT_EDGE_CHARS] + note + text[-RESULT_EDGE_CHARS:]


def _keep_head(text: str) -> str:
    if len(text) <= _MAX_CALL_CHARS:
        return text
    return text[:_MAX_CALL_CHARS] + _CHARS_CUT.format(n=len(text) - _MAX_CALL_CHARS)


def _storable(text: str) -> str:
    """Remove characters that a store cannot hold."""
    return _CONTROL.sub("", text).encode("utf-8", "replace").decode()
