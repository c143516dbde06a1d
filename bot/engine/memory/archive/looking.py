"""Looks back into conversations: what was said, what it was summarised to, and the way down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from bot.engine.memory.archive.finding.sorting import POOL, Candidate, Order, ranked
from bot.engine.memory.archive.patterns import Pattern, pieces_of
from bot.engine.memory.archive.words import Reading, parts_of
from storage.memory.archive.hearing import Hearing, Spell
from storage.memory.archive.said import ArchiveRepo
from storage.memory.archive.summaries import SummaryRepo
from storage.records.memory.archive import Line, Part, Speaker, Summary

MOST_SCANNED = 10_000
_CHUNK = 200
_LEAST_PIECES = 2
_NEAR_POOL = 100
_NEAREST = 5
SNIPPET = 200
_BEFORE = 60
SPOKEN = (Speaker.USER, Speaker.ASSISTANT)

_T = TypeVar("_T")
_Said = TypeVar("_Said", Line, Summary, Line | Summary)


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`line` or `summary`, and the stretch of it that fits."""

    at: datetime
    snippet: str
    line: Line | None = None
    summary: Summary | None = None
    near: bool = False
    """Only some of the words are in it, because nothing has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A summary in the tree below another."""

    summary: Summary
    level: int


class Looking:
    """For one listener at a time: see `Hearing`."""

    def __init__(
        self,
        said: ArchiveRepo,
        summaries: SummaryRepo,
        reading: Reading,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._said = said
        self._summaries = summaries
        self._reading = reading
        self._now = now

    async def words(
        self,
        hearing: Hearing,
        words: Sequence[str],
        limit: int,
        spell: Spell = Spell(),  # noqa: B008 - frozen
        *,
        messages: bool = True,
        summaries: bool = False,
        roles: Sequence[Speaker] = tuple(Speaker),
        order: Order = Order.RECENCY,
    ) -> Sequence[Found]:
        """What has all of these words, the newest first if nothing else is asked for."""
        await self._reading.catch_up_for(hearing)
        pool = limit if order is Order.RECENCY else max(limit, POOL)
        found: list[Line | Summary] = []
        if messages:
            found += await self._said.search(hearing, words, spell, pool, roles=roles)
        if summaries:
            found += await self._summaries.search(hearing, words, spell, pool)
        best = await self._sorted([_candidate(each) for each in found], words, order)
        return [_found(each, words) for each in best[:limit]]

    async def _sorted(
        self, candidates: Sequence[Candidate[_T]], words: Sequence[str], order: Order
    ) -> Sequence[_T]:
        return await asyncio.to_thread(ranked, candidates, words, order, self._now())

    async def near(
        self,
        hearing: Hearing,
        words: Sequence[str],
        limit: int,
        spell: Spell = Spell(),  # noqa: B008 - frozen
        *,
        roles: Sequence[Speaker] = tuple(Speaker),
        order: Order = Order.HYBRID,
    ) -> Sequence[Found]:
        """Where nothing has all words: what has most of their pieces."""
        pieces = pieces_of(words)
        if len(pieces) < _LEAST_PIECES:
            return ()
        found = await self._said.search_most(
            hearing, pieces, spell, max(limit, _NEAR_POOL), least=_LEAST_PIECES, roles=roles
        )
        least = max((n for n, _ in found), default=0) / 2
        near = [_candidate(line) for n, line in found if n >= least]
        best = await self._sorted(near, pieces, order)
        return [replace(_found(each, pieces), near=True) for each in best[:limit]]

    async def about(self, hearing: Hearing, words: Sequence[str], limit: int) -> Sequence[Summary]:
        """Summaries with all of these words, the newest first; where none has, those that fit a
        question in words of its own best."""
        found = await self._summaries.search(hearing, words, Spell(), limit)
        pieces = () if found else pieces_of(words)
        if not pieces:
            return found
        some = await self._summaries.search_most(hearing, pieces, _NEAR_POOL, least=1)
        best = await self._sorted([_candidate(each) for each in some], words, Order.RELEVANCE)
        return best[:_NEAREST]

    async def regex(
        self,
        hearing: Hearing,
        pattern: Pattern,
        limit: int,
        spell: Spell = Spell(),  # noqa: B008 - frozen
        *,
        messages: bool = True,
        summaries: bool = False,
    ) -> Sequence[Found]:
        """The same by a pattern, among the newest and as long as the pattern may take."""
        await self._reading.catch_up_for(hearing)
        found: list[Found] = []
        if summaries:
            all_of_them = await self._summaries.search(hearing, (), spell, MOST_SCANNED)
            for some in _chunks(all_of_them):
                found += await asyncio.to_thread(_matching_summaries, pattern, some)
        if messages:
            found += await self._scan(hearing, pattern, limit, spell)
        return _newest(found, limit)

    async def _scan(
        self, hearing: Hearing, pattern: Pattern, limit: int, spell: Spell
    ) -> list[Found]:
        found: list[Found] = []
        waiting: list[Line] = []
        async for line in self._said.newest(hearing, spell, MOST_SCANNED):
            waiting.append(line)
            if len(waiting) < _CHUNK:
                continue
            found += await asyncio.to_thread(_matching, pattern, waiting)
            waiting = []
            if len(found) >= limit or pattern.is_late:
                return found
        return found + await asyncio.to_thread(_matching, pattern, waiting)

    async def summary(self, hearing: Hearing, summary_id: str) -> Summary | None:
        return await self._summaries.get(summary_id, hearing)

    async def tree(self, summary: Summary, most: int) -> Sequence[Node]:
        """All summaries below it, each before what it was made of."""
        found: list[Node] = []
        waiting = [Node(summary=summary, level=0)]
        while waiting and len(found) < most:
            node = waiting.pop()
            found.append(node)
            parts = await self._summaries.parts(node.summary.id) if node.summary.depth else ()
            waiting += [Node(summary=part, level=node.level + 1) for part in reversed(parts)]
        return found[1:]

    async def parts(self, summary: Summary) -> Sequence[Summary]:
        return await self._summaries.parts(summary.id)

    async def wholes(self, summary: Summary) -> Sequence[Summary]:
        return await self._summaries.wholes(summary.id)

    async def numbers(self, summary: Summary) -> Sequence[int]:
        return await self._summaries.messages(summary.id)

    async def messages(self, summary: Summary) -> Sequence[Part]:
        """What a leaf was made of, in order."""
        numbers = await self._summaries.messages(summary.id)
        if not numbers:
            return ()
        return await self._said.parts(summary.session_id, numbers[0], numbers[-1])

    async def message(self, hearing: Hearing, session_id: str, number: int) -> Sequence[Part]:
        """All of it, word for word; nothing where there is none, or this listener may not hear
        it."""
        if not await self._said.may_hear(hearing, session_id):
            return ()
        found = await self._said.message(session_id, number)
        return () if found is None else await asyncio.to_thread(parts_of, found, whole=True)


def snippet(text: str, start: int, end: int) -> str:
    """At most so many characters around a hit, on one line."""
    first = max(0, min(start - _BEFORE, len(text) - SNIPPET))
    last = min(len(text), max(first + SNIPPET, min(end, first + SNIPPET)))
    cut = " ".join(text[first:last].split())
    return ("…" if first else "") + cut + ("…" if last < len(text) else "")


def _first(text: str, words: Sequence[str]) -> str:
    at = [text.casefold().find(word.casefold()) for word in words]
    start = min((each for each in at if each >= 0), default=0)
    return snippet(text, start, start)


def _matching(pattern: Pattern, lines: Sequence[Line]) -> list[Found]:
    return [
        _of_line(each, snippet(each.text, *span))
        for each in lines
        if (span := pattern.find(each.text))
    ]


def _matching_summaries(pattern: Pattern, summaries: Sequence[Summary]) -> list[Found]:
    return [
        _of_summary(each, snippet(each.content, *span))
        for each in summaries
        if (span := pattern.find(each.content))
    ]


def _candidate(found: _Said) -> Candidate[_Said]:
    if isinstance(found, Line):
        return Candidate(text=found.text, at=found.at, of=found)
    return Candidate(text=found.content, at=found.latest_at, of=found)


def _found(said: Line | Summary, words: Sequence[str]) -> Found:
    if isinstance(said, Line):
        return _of_line(said, _first(said.text, words))
    return _of_summary(said, _first(said.content, words))


def _of_line(line: Line, text: str) -> Found:
    return Found(at=line.at, snippet=text, line=line)


def _of_summary(summary: Summary, text: str) -> Found:
    return Found(at=summary.latest_at, snippet=text, summary=summary)


def _newest(found: list[Found], limit: int) -> Sequence[Found]:
    return sorted(found, key=lambda each: each.at, reverse=True)[:limit]


def _chunks(summaries: Sequence[Summary]) -> Iterator[Sequence[Summary]]:
    return (summaries[at : at + _CHUNK] for at in range(0, len(summaries), _CHUNK))
