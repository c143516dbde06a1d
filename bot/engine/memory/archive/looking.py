"""Looks back into conversations: what was said, what it was summarised to, and the way down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from time import monotonic
from typing import TypeVar

from bot.engine.memory.archive.finding.sorting import POOL, Candidate, Order, ranked
from bot.engine.memory.archive.finding.watch import Watch
from bot.engine.memory.archive.patterns import Pattern, pieces_of
from bot.engine.memory.archive.words import Reading, parts_of
from storage.memory.archive.hearing import Hearing, Spell
from storage.memory.archive.said import ArchiveRepo
from storage.memory.archive.summaries import SummaryRepo
from storage.records.memory.archive import Line, Part, Speaker, Summary

MOST_SCANNED = 10_000
_CHUNK = 200
_STRETCH = 1_000
"""Parts, or a fifth of it summaries, that are searched at once: between two of them it is seen how
late it is."""
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
    """For one listener at a time: see `Hearing`. No search takes longer than its `watch` lets it;
    what is found then is of the newest."""

    def __init__(
        self,
        said: ArchiveRepo,
        summaries: SummaryRepo,
        reading: Reading,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._said = said
        self._summaries = summaries
        self._reading = reading
        self._now = now
        self._clock = clock

    def watch(self) -> Watch:
        """For one search, or two for the same question, which begin now."""
        return Watch(self._clock)

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
        watch: Watch | None = None,
    ) -> Sequence[Found]:
        """What has all of these words, the newest first if nothing else is asked for."""
        watch = watch or self.watch()
        await self._reading.catch_up_for(hearing, watch)
        pool = limit if order is Order.RECENCY else max(limit, POOL)
        found: list[Line | Summary] = []
        if messages:
            found += await self._lines(hearing, words, spell, pool, roles=roles, watch=watch)
        if summaries:
            found += await self._summed(hearing, words, spell, pool, watch)
        best = await self._sorted([_candidate(each) for each in found], words, order)
        return [_found(each, words) for each in best[:limit]]

    async def _lines(
        self,
        hearing: Hearing,
        words: Sequence[str],
        spell: Spell,
        limit: int,
        *,
        roles: Sequence[Speaker],
        watch: Watch,
    ) -> Sequence[Line]:
        if not words:
            return await self._said.search(hearing, words, spell, limit, roles=roles)
        found: list[Line] = []
        stretches = await self._said.stretches(hearing, spell, _STRETCH)
        for each in watch.through(stretches):
            left = limit - len(found)
            found += await self._said.search(hearing, words, each, left, roles=roles)
            if len(found) >= limit:
                break
        return found

    async def _summed(
        self, hearing: Hearing, words: Sequence[str], spell: Spell, limit: int, watch: Watch
    ) -> Sequence[Summary]:
        found: list[Summary] = []
        stretches = await self._summaries.stretches(hearing, spell, _CHUNK)
        for each in watch.through(stretches):
            found += await self._summaries.search(hearing, words, each, limit - len(found))
            if len(found) >= limit:
                break
        return found

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
        watch: Watch | None = None,
    ) -> Sequence[Found]:
        """Where nothing has all words: what has most of their pieces."""
        pieces = pieces_of(words)
        if len(pieces) < _LEAST_PIECES:
            return ()
        pool, watch = max(limit, _NEAR_POOL), watch or self.watch()
        found: list[tuple[int, Line]] = []
        least = _LEAST_PIECES
        stretches = await self._said.stretches(hearing, spell, _STRETCH)
        for each in watch.through(stretches):
            found += await self._said.search_most(
                hearing, pieces, each, pool, least=least, roles=roles
            )
            found = sorted(found, key=_hits, reverse=True)[:pool]
            # What has less than half of what the best one has is not near.
            least = max(least, ceil(max(map(_hits, found), default=0) / 2))
        near = [_candidate(line) for n, line in found if n >= least]
        best = await self._sorted(near, pieces, order)
        return [replace(_found(each, pieces), near=True) for each in best[:limit]]

    async def about(
        self, hearing: Hearing, words: Sequence[str], limit: int, watch: Watch | None = None
    ) -> Sequence[Summary]:
        """Summaries with all of these words, the newest first; where none has, those that fit a
        question in words of its own best."""
        watch = watch or self.watch()
        found = await self._summed(hearing, words, Spell(), limit, watch)
        pieces = () if found else pieces_of(words)
        if not pieces:
            return found
        some: list[tuple[int, Summary]] = []
        stretches = await self._summaries.stretches(hearing, Spell(), _CHUNK)
        for each in watch.through(stretches):
            some += await self._summaries.search_most(hearing, pieces, each, _NEAR_POOL, least=1)
            some = sorted(some, key=_hits, reverse=True)[:_NEAR_POOL]
        fitting = [_candidate(summary) for _, summary in some]
        return (await self._sorted(fitting, words, Order.RELEVANCE))[:_NEAREST]

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
        await self._reading.catch_up_for(hearing, pattern.watch)
        found: list[Found] = []
        if summaries:
            for each in pattern.watch.through(
                await self._summaries.stretches(hearing, spell, _CHUNK)
            ):
                some = await self._summaries.search(hearing, (), each, MOST_SCANNED)
                found += await asyncio.to_thread(_matching_summaries, pattern, some)
        if messages:
            found += await self._scan(hearing, pattern, limit, spell)
        pattern.watch.cut |= pattern.is_late
        return _newest(found, limit)

    async def _scan(
        self, hearing: Hearing, pattern: Pattern, limit: int, spell: Spell
    ) -> list[Found]:
        found: list[Found] = []
        seen = 0
        stretches = await self._said.stretches(hearing, spell, _CHUNK)
        for each in pattern.watch.through(stretches):
            lines = await self._said.search(hearing, (), each, MOST_SCANNED)
            found += await asyncio.to_thread(_matching, pattern, lines)
            seen += len(lines)
            if len(found) >= limit:
                break
            if seen >= MOST_SCANNED:
                pattern.watch.cut = True
                break
        return found

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


def _hits(found: tuple[int, _Said]) -> int:
    return found[0]


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
