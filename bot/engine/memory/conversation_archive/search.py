"""Searches archived conversations: messages, summaries, and the tree from summaries to messages."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from math import ceil
from time import monotonic
from typing import Generic, TypeVar

from bot.engine.memory.conversation_archive.search_text import (
    ArchiveIndexer,
    SafePattern,
    SearchDeadline,
    parse_parts,
    split_pieces,
)
from storage.memory.conversation_archive import ArchiveAccess, ArchiveRepo, SummaryRepo, TimeRange
from storage.records.conversation_archive import (
    ConversationSummary,
    MessagePart,
    TranscriptMatch,
    TranscriptRole,
)
from storage.search.chinese import simplify_han
from storage.search.terms import tokenize

RANK_POOL = 300
"""Number of latest matches that are ranked."""
_K1, _B = 1.2, 0.75
_CONTEXT_BEFORE_HIT, _MAX_RANKED_CHARS = 500, 2_000
"""Only the text around the first hit is ranked; the rest counts as length."""
_DECAY_PER_HOUR = 0.001
"""Decay per hour: after 1,000 hours a match counts half."""

_T = TypeVar("_T")


class SearchOrder(StrEnum):
    RECENCY = "recency"
    RELEVANCE = "relevance"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCandidate(Generic[_T]):
    """Text to rank, and the item it stands for."""

    text: str
    at: datetime
    item: _T


def rank_candidates(
    candidates: Sequence[RankCandidate[_T]], words: Sequence[str], order: SearchOrder, now: datetime
) -> Sequence[_T]:
    """Rank by BM25 among the candidates, with the tokens of memory search; newer first on ties.
    CPU-bound for many candidates."""
    newest = sorted(candidates, key=lambda each: each.at, reverse=True)
    if order is SearchOrder.RECENCY:
        return [each.item for each in newest]
    scores = _bm25_scores([each.text for each in newest], words)
    if order is SearchOrder.HYBRID:
        hours = [max(0.0, (now - each.at).total_seconds() / 3600) for each in newest]
        scores = [
            score / (1 + age * _DECAY_PER_HOUR) for score, age in zip(scores, hours, strict=True)
        ]
    best = sorted(range(len(newest)), key=lambda n: scores[n], reverse=True)
    return [newest[n].item for n in best]


def _bm25_scores(texts: Sequence[str], words: Sequence[str]) -> list[float]:
    wanted = frozenset(tokenize(" ".join(words)))
    parts = [_around_first_hit(text, words) for text in texts]
    counts = [Counter(tokenize(part)) for part in parts]
    lengths = [
        count.total() * len(text) / max(1, len(part))
        for count, part, text in zip(counts, parts, texts, strict=True)
    ]
    usual = max(1.0, sum(lengths) / max(1, len(lengths)))
    rare = {
        term: math.log(1 + len(texts) / found)
        for term in wanted
        if (found := sum(term in each for each in counts))
    }
    return [
        sum(value * _term_weight(count[term], length / usual) for term, value in rare.items())
        for count, length in zip(counts, lengths, strict=True)
    ]


def _around_first_hit(text: str, words: Sequence[str]) -> str:
    if len(text) <= _MAX_RANKED_CHARS:
        return text
    hits = [at for at in _positions(text, words) if at >= 0]
    start = max(0, min(hits, default=0) - _CONTEXT_BEFORE_HIT)
    return text[start : start + _MAX_RANKED_CHARS]


def _positions(text: str, words: Sequence[str]) -> list[int]:
    """Where each word is, in either Chinese script; -1 where it is not."""
    plain = simplify_han(text).casefold()
    return [plain.find(simplify_han(word).casefold()) for word in words]


def _term_weight(times: int, length: float) -> float:
    return times * (_K1 + 1) / (times + _K1 * (1 - _B + _B * length)) if times else 0.0


MAX_SCANNED = 10_000
_SUMMARIES_PER_SPAN = 200
_PARTS_PER_SPAN = 1_000
"""Parts (or five times as many as summaries) searched between two deadline checks."""
_MIN_PIECES = 2
_NEAR_POOL = 100
_MAX_NEAR_SUMMARIES = 5
SNIPPET_CHARS = 200
_SNIPPET_BEFORE = 60
SPOKEN_ROLES = (TranscriptRole.USER, TranscriptRole.ASSISTANT)

_LineOrSummary = TypeVar(
    "_LineOrSummary", TranscriptMatch, ConversationSummary, TranscriptMatch | ConversationSummary
)


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveMatch:
    """A matching line or summary, and the position of the match."""

    at: datetime
    snippet: str
    line: TranscriptMatch | None = None
    summary: ConversationSummary | None = None
    is_partial: bool = False
    """Contains only some of the words, as no match contains all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryNode:
    """A summary and its level below another."""

    summary: ConversationSummary
    level: int


class ArchiveSearch:
    """Searches on behalf of one listener at a time, see `ArchiveAccess`. Every search ends at its
    deadline with the newest matches so far."""

    def __init__(
        self,
        archive: ArchiveRepo,
        summaries: SummaryRepo,
        indexer: ArchiveIndexer,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._archive = archive
        self._summaries = summaries
        self._indexer = indexer
        self._now = now
        self._clock = clock

    def start_deadline(self) -> SearchDeadline:
        """Deadline for one query, starting now."""
        return SearchDeadline(self._clock)

    async def search_words(
        self,
        hearing: ArchiveAccess,
        words: Sequence[str],
        limit: int,
        spell: TimeRange = TimeRange(),  # noqa: B008 - frozen
        *,
        messages: bool = True,
        summaries: bool = False,
        roles: Sequence[TranscriptRole] = tuple(TranscriptRole),
        order: SearchOrder = SearchOrder.RECENCY,
        deadline: SearchDeadline | None = None,
    ) -> Sequence[ArchiveMatch]:
        """Matches with all words, newest first by default."""
        deadline = deadline or self.start_deadline()
        await self._indexer.index_visible(hearing, deadline)
        pool = limit if order is SearchOrder.RECENCY else max(limit, RANK_POOL)
        found: list[TranscriptMatch | ConversationSummary] = []
        if messages:
            found += await self._search_lines(
                hearing, words, spell, pool, roles=roles, deadline=deadline
            )
        if summaries:
            found += await self._search_summaries(hearing, words, spell, pool, deadline)
        best = await self._rank([_to_candidate(each) for each in found], words, order)
        return [_to_match(each, words) for each in best[:limit]]

    async def _search_lines(
        self,
        hearing: ArchiveAccess,
        words: Sequence[str],
        spell: TimeRange,
        limit: int,
        *,
        roles: Sequence[TranscriptRole],
        deadline: SearchDeadline,
    ) -> Sequence[TranscriptMatch]:
        if not words:
            return await self._archive.search_all_words(hearing, words, spell, limit, roles=roles)
        found: list[TranscriptMatch] = []
        stretches = await self._archive.split_time(hearing, spell, _PARTS_PER_SPAN)
        for each in deadline.iterate(stretches):
            left = limit - len(found)
            found += await self._archive.search_all_words(hearing, words, each, left, roles=roles)
            if len(found) >= limit:
                break
        return found

    async def _search_summaries(
        self,
        hearing: ArchiveAccess,
        words: Sequence[str],
        spell: TimeRange,
        limit: int,
        deadline: SearchDeadline,
    ) -> Sequence[ConversationSummary]:
        found: list[ConversationSummary] = []
        stretches = await self._summaries.split_time(hearing, spell, _SUMMARIES_PER_SPAN)
        for each in deadline.iterate(stretches):
            found += await self._summaries.search_all_words(
                hearing, words, each, limit - len(found)
            )
            if len(found) >= limit:
                break
        return found

    async def _rank(
        self, candidates: Sequence[RankCandidate[_T]], words: Sequence[str], order: SearchOrder
    ) -> Sequence[_T]:
        return await asyncio.to_thread(rank_candidates, candidates, words, order, self._now())

    async def search_near(
        self,
        hearing: ArchiveAccess,
        words: Sequence[str],
        limit: int,
        spell: TimeRange = TimeRange(),  # noqa: B008 - frozen
        *,
        roles: Sequence[TranscriptRole] = tuple(TranscriptRole),
        deadline: SearchDeadline,
    ) -> Sequence[ArchiveMatch]:
        """Matches with most of the words' parts, for queries whose words never occur together."""
        pieces = split_pieces(words)
        if len(pieces) < _MIN_PIECES:
            return ()
        pool = max(limit, _NEAR_POOL)
        found: list[tuple[int, TranscriptMatch]] = []
        least = _MIN_PIECES
        stretches = await self._archive.split_time(hearing, spell, _PARTS_PER_SPAN)
        for each in deadline.iterate(stretches):
            found += await self._archive.search_any_word(
                hearing, pieces, each, pool, min_hits=least, roles=roles
            )
            found = sorted(found, key=_hit_count, reverse=True)[:pool]
            # Matches with less than half of the best score are dropped.
            least = max(least, ceil(max(map(_hit_count, found), default=0) / 2))
        near = [_to_candidate(line) for n, line in found if n >= least]
        best = await self._rank(near, pieces, SearchOrder.HYBRID)
        return [replace(_to_match(each, pieces), is_partial=True) for each in best[:limit]]

    async def search_summaries(
        self,
        hearing: ArchiveAccess,
        words: Sequence[str],
        limit: int,
        deadline: SearchDeadline | None = None,
    ) -> Sequence[ConversationSummary]:
        """Summaries with all words, newest first; otherwise the best matches of the question."""
        deadline = deadline or self.start_deadline()
        found = await self._search_summaries(hearing, words, TimeRange(), limit, deadline)
        pieces = () if found else split_pieces(words)
        if not pieces:
            return found
        some: list[tuple[int, ConversationSummary]] = []
        stretches = await self._summaries.split_time(hearing, TimeRange(), _SUMMARIES_PER_SPAN)
        for each in deadline.iterate(stretches):
            some += await self._summaries.search_any_word(
                hearing, pieces, each, _NEAR_POOL, min_hits=1
            )
            some = sorted(some, key=_hit_count, reverse=True)[:_NEAR_POOL]
        fitting = [_to_candidate(summary) for _, summary in some]
        return (await self._rank(fitting, words, SearchOrder.RELEVANCE))[:_MAX_NEAR_SUMMARIES]

    async def search_regex(
        self,
        hearing: ArchiveAccess,
        pattern: SafePattern,
        limit: int,
        spell: TimeRange = TimeRange(),  # noqa: B008 - frozen
        *,
        messages: bool = True,
        summaries: bool = False,
    ) -> Sequence[ArchiveMatch]:
        """As `search_words`, by regular expression, newest first."""
        await self._indexer.index_visible(hearing, pattern.deadline)
        found: list[ArchiveMatch] = []
        if summaries:
            for each in pattern.deadline.iterate(
                await self._summaries.split_time(hearing, spell, _SUMMARIES_PER_SPAN)
            ):
                some = await self._summaries.search_all_words(hearing, (), each, MAX_SCANNED)
                found += await asyncio.to_thread(_match_summaries, pattern, some)
        if messages:
            found += await self._scan_lines(hearing, pattern, limit, spell)
        pattern.deadline.was_cut |= pattern.is_over
        return _newest_first(found, limit)

    async def _scan_lines(
        self, hearing: ArchiveAccess, pattern: SafePattern, limit: int, spell: TimeRange
    ) -> list[ArchiveMatch]:
        found: list[ArchiveMatch] = []
        seen = 0
        stretches = await self._archive.split_time(hearing, spell, _SUMMARIES_PER_SPAN)
        for each in pattern.deadline.iterate(stretches):
            lines = await self._archive.search_all_words(hearing, (), each, MAX_SCANNED)
            found += await asyncio.to_thread(_match_lines, pattern, lines)
            seen += len(lines)
            if len(found) >= limit:
                break
            if seen >= MAX_SCANNED:
                pattern.deadline.was_cut = True
                break
        return found

    async def get_summary(
        self, hearing: ArchiveAccess, summary_id: str
    ) -> ConversationSummary | None:
        return await self._summaries.find(summary_id, hearing)

    async def list_descendants(
        self, summary: ConversationSummary, limit: int
    ) -> Sequence[SummaryNode]:
        """All summaries below this one, each before its own sources."""
        found: list[SummaryNode] = []
        waiting = [SummaryNode(summary=summary, level=0)]
        while waiting and len(found) < limit:
            node = waiting.pop()
            found.append(node)
            parts = await self._summaries.list_parts(node.summary.id) if node.summary.depth else ()
            waiting += [SummaryNode(summary=part, level=node.level + 1) for part in reversed(parts)]
        return found[1:]

    async def list_parts(self, summary: ConversationSummary) -> Sequence[ConversationSummary]:
        return await self._summaries.list_parts(summary.id)

    async def list_parents(self, summary: ConversationSummary) -> Sequence[ConversationSummary]:
        return await self._summaries.list_parents(summary.id)

    async def list_message_numbers(self, summary: ConversationSummary) -> Sequence[int]:
        return await self._summaries.list_message_numbers(summary.id)

    async def list_messages(self, summary: ConversationSummary) -> Sequence[MessagePart]:
        numbers = await self._summaries.list_message_numbers(summary.id)
        if not numbers:
            return ()
        return await self._archive.list_parts(summary.session_id, numbers[0], numbers[-1])

    async def get_message(
        self, hearing: ArchiveAccess, session_id: str, number: int
    ) -> Sequence[MessagePart]:
        """The full message; empty if it does not exist or the listener may not read it."""
        if not await self._archive.can_read(hearing, session_id):
            return ()
        found = await self._archive.find_message(session_id, number)
        return () if found is None else await asyncio.to_thread(parse_parts, found, whole=True)


def cut_snippet(text: str, start: int, end: int) -> str:
    """One line around the match."""
    first = max(0, min(start - _SNIPPET_BEFORE, len(text) - SNIPPET_CHARS))
    last = min(len(text), max(first + SNIPPET_CHARS, min(end, first + SNIPPET_CHARS)))
    cut = " ".join(text[first:last].split())
    return ("…" if first else "") + cut + ("…" if last < len(text) else "")


def _snippet_of_first(text: str, words: Sequence[str]) -> str:
    start = min((each for each in _positions(text, words) if each >= 0), default=0)
    return cut_snippet(text, start, start)


def _match_lines(pattern: SafePattern, lines: Sequence[TranscriptMatch]) -> list[ArchiveMatch]:
    return [
        _line_match(each, cut_snippet(each.text, *span))
        for each in lines
        if (span := pattern.find(each.text))
    ]


def _match_summaries(
    pattern: SafePattern, summaries: Sequence[ConversationSummary]
) -> list[ArchiveMatch]:
    return [
        _summary_match(each, cut_snippet(each.content, *span))
        for each in summaries
        if (span := pattern.find(each.content))
    ]


def _hit_count(found: tuple[int, _LineOrSummary]) -> int:
    return found[0]


def _to_candidate(found: _LineOrSummary) -> RankCandidate[_LineOrSummary]:
    if isinstance(found, TranscriptMatch):
        return RankCandidate(text=found.text, at=found.at, item=found)
    return RankCandidate(text=found.content, at=found.latest_at, item=found)


def _to_match(said: TranscriptMatch | ConversationSummary, words: Sequence[str]) -> ArchiveMatch:
    if isinstance(said, TranscriptMatch):
        return _line_match(said, _snippet_of_first(said.text, words))
    return _summary_match(said, _snippet_of_first(said.content, words))


def _line_match(line: TranscriptMatch, text: str) -> ArchiveMatch:
    return ArchiveMatch(at=line.at, snippet=text, line=line)


def _summary_match(summary: ConversationSummary, text: str) -> ArchiveMatch:
    return ArchiveMatch(at=summary.latest_at, snippet=text, summary=summary)


def _newest_first(found: list[ArchiveMatch], limit: int) -> Sequence[ArchiveMatch]:
    return sorted(found, key=lambda each: each.at, reverse=True)[:limit]
