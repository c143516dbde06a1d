"""Searchable text of stored messages, and the queries that search it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.llm import stored_messages
from bot.engine.llm.stored_messages import without_present_time
from bot.engine.memory.noise_filter import strip_memory_blocks
from bot.engine.memory.token_budget import (
    TOKENS_PER_ATTACHMENT,
    estimate_tokens,
    truncate_to_tokens,
)
from cards.failure_texts import without_failure_texts
from storage.db import Database
from storage.memory.conversation_archive import ArchiveAccess, ArchiveRepo, RawMessage, TimeRange
from storage.records.conversation_archive import ConversationSummary, MessagePart, TranscriptRole
from storage.search.chinese import simplify_han
from storage.search.lexicon import ENGLISH_STOP_WORDS, is_chinese_filler

# --- queries: words, safe regular expressions, time limits

SEARCH_SECONDS = 2.0


class SearchDeadline:
    """Time limit of one search, starting now. `was_cut` means that spans were skipped."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._until = clock() + SEARCH_SECONDS
        self.was_cut = False

    @property
    def is_over(self) -> bool:
        return self._clock() > self._until

    def iterate(self, spans: Sequence[TimeRange]) -> Iterator[TimeRange]:
        """Yields the first span always and the others while time remains."""
        for n, each in enumerate(spans):
            if n and self.is_over:
                self.was_cut = True
                return
            yield each


MAX_PATTERN_CHARS = 500
_WINDOW_BY_REPEATS = {1: 2_000, 2: 200, 3: 60}
"""Characters searched at once, by number of unbounded repeats: each multiplies the time of a search
by this length. Longer matches are not found."""
_UNBOUNDED_FROM = 10
_MAX_PARSES = 1_000
"""Ways to match at one position: each `?` doubles them, each small repeat multiplies them."""
_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|「([^」]+)」|(\S+)')
_REGEX_HINT = re.compile(r"\.[*+?]|\\[bdws]|\[[^\]]+\][*+?{]|\(\?|\w\|\w|^\^|\$$")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff]")
_WORD_RUN = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff]+|[^\W_\u3040-\uffff]+"
)
_MAX_PIECES = 16
_COUNTED_REPEAT = re.compile(r"\{(\d*)(,?)(\d*)\}")


class InvalidSearchPattern(Exception):
    """The message explains the error and how to correct it."""


@dataclass
class _PatternGroup:
    repeats: bool = False
    branches: int = 0
    parses: float = 1
    """Ways to match everything read so far, except the group's own branches."""


def split_query(text: str) -> tuple[str, ...]:
    """Split at spaces, except inside quotes."""
    found = [next(filter(None, each.groups())) for each in _QUOTED.finditer(text.strip())]
    return tuple(word.strip() for word in found if word.strip())


def split_pieces(words: Sequence[str]) -> tuple[str, ...]:
    """Words, and character pairs of Chinese, without stop words, for finding paraphrases."""
    found: dict[str, None] = {}
    for run in _WORD_RUN.findall(" ".join(words).casefold()):
        if _CJK.match(run):
            pairs = (run[at : at + 2] for at in range(max(1, len(run) - 1)))
            found |= dict.fromkeys(pair for pair in pairs if not is_chinese_filler(pair))
        elif len(run) > 1 and run not in ENGLISH_STOP_WORDS:
            found[run] = None
    return tuple(found)[:_MAX_PIECES]


def looks_like_regex(text: str) -> bool:
    return bool(_REGEX_HINT.search(text.strip()))


class SafePattern:
    """A case-insensitive regular expression that stops at its deadline. Raises InvalidSearchPattern
    if it could run too long."""

    def __init__(self, text: str, deadline: SearchDeadline | None = None) -> None:
        self._window = _WINDOW_BY_REPEATS.get(_validate(text), 0)
        self.deadline = deadline or SearchDeadline()
        try:
            self._pattern = re.compile(simplify_han(text), re.IGNORECASE)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidSearchPattern(f"this is no regular expression: {error}") from None

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed; nothing is found after it."""
        return self.deadline.is_over

    def find(self, text: str) -> tuple[int, int] | None:
        """Span of the first match, in either Chinese script."""
        for start, piece in self._pieces(simplify_han(text)):
            if self.is_over:
                return None
            if found := self._pattern.search(piece):
                return start + found.start(), start + found.end()
        return None

    def _pieces(self, text: str) -> Iterator[tuple[int, str]]:
        if not self._window:
            yield 0, text
            return
        start = 0
        for line in text.splitlines(keepends=True):
            plain = line.rstrip("\r\n")
            for at in range(0, max(len(plain), 1), self._window * 3 // 4):
                yield start + at, plain[at : at + self._window]
            start += len(line)


def _validate(text: str) -> int:
    """Number of unbounded repeats. Raises InvalidSearchPattern."""
    if len(text) > MAX_PATTERN_CHARS:
        raise InvalidSearchPattern(f"the pattern is longer than {MAX_PATTERN_CHARS} characters")
    groups, last, at, wide = [_PatternGroup()], None, 0, 0
    while at < len(text):
        quantifier = _parse_quantifier(text, at)
        if quantifier is None:
            at, last = _skip_atom(text, at, groups)
            continue
        length, least, most = quantifier
        if most > _UNBOUNDED_FROM:
            _check_nesting(last)
            groups[-1].repeats = True
            wide += 1
        else:
            inner = _total_parses(last) if last is not None else 1
            groups[-1].parses *= inner ** max(0, most - 1) * max(1, most - least + 1)
        at, last = at + length, None
        _check_parses(groups[-1])
    _check_parses(groups[0])
    if wide > max(_WINDOW_BY_REPEATS):
        raise InvalidSearchPattern(
            f"more than {max(_WINDOW_BY_REPEATS)} repeats without an end: look for less at once"
        )
    return wide


def _skip_atom(text: str, at: int, groups: list[_PatternGroup]) -> tuple[int, _PatternGroup | None]:
    """Skip anything but a quantifier; returns its end and the group closed there."""
    match text[at]:
        case "\\":
            return _escape_end(text, at) + 1, None
        case "[":
            return _class_end(text, at) + 1, None
        case "(":
            return _open_group(text, at, groups) + 1, None
        case ")" if len(groups) > 1:
            group = groups.pop()
            groups[-1].repeats |= group.repeats
            groups[-1].parses *= _total_parses(group)
            _check_parses(groups[-1])
            return at + 1, group
        case "|":
            groups[-1].branches += 1
    return at + 1, None


def _escape_end(text: str, at: int) -> int:
    if text[at + 1 : at + 2].isdigit():
        raise InvalidSearchPattern("no references back to groups, please")
    return at + 1


def _class_end(text: str, at: int) -> int:
    at += 2 if text[at + 1 : at + 2] == "^" else 1
    at += text[at : at + 1] == "]"
    while at < len(text) and text[at] != "]":
        at += 2 if text[at] == "\\" else 1
    return at


def _open_group(text: str, at: int, groups: list[_PatternGroup]) -> int:
    groups.append(_PatternGroup())
    if text[at + 1 : at + 2] != "?":
        return at
    if text[at + 2 : at + 3] != ":":
        raise InvalidSearchPattern("of groups that begin with (? only (?:…) is possible")
    return at + 2


def _parse_quantifier(text: str, at: int) -> tuple[int, int, int] | None:
    """Length, minimum and maximum of a quantifier."""
    if text[at] in "*+?":
        length, least, most = 1, 0, 1 if text[at] == "?" else _UNBOUNDED_FROM + 1
    else:
        counted = _COUNTED_REPEAT.match(text, at)
        if counted is None:
            return None
        low, comma, high = counted.groups()
        high = high or ("" if comma else low)
        length = len(counted.group())
        least, most = int(low[:6] or 0), int(high[:6] or _UNBOUNDED_FROM + 1)
    lazy = text[at + length : at + length + 1] in {"?", "+"}
    return length + lazy, least, most


def _total_parses(group: _PatternGroup) -> float:
    return group.parses * (group.branches + 1)


def _check_parses(group: _PatternGroup) -> None:
    if _total_parses(group) > _MAX_PARSES:
        raise InvalidSearchPattern("it can be read in too many ways: look for less at once")


def _check_nesting(last: _PatternGroup | None) -> None:
    if last is not None and (last.repeats or last.branches):
        raise InvalidSearchPattern("a repeated group may hold no other repeats and no alternatives")


# --- texts of stored messages

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
    {
        "memory_search",
        "memory_get",
        "history_grep",
        "history_describe",
        "history_expand",
        "page_read",
    }
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
