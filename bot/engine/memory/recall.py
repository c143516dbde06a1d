"""Finds what is remembered: words first, meanings where there is an embedder, then age and links.
Works fully without any model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Literal, Protocol

from bot.engine.memory.ranking import (
    ALIKE,
    boost,
    deferred,
    jaccard,
    normalised,
    reranked,
    rrf,
    wear,
    weighted,
)
from bot.engine.memory.scopes import Reader
from storage.memory.entries import EntryRepo
from storage.memory.index import Hit, Index
from storage.memory.words import asked, terms
from storage.records.memory.entries import Entry, EntryState, MemoryKind, Scope
from storage.records.memory.shown import FoundEntry

log = logging.getLogger(__name__)

ALL = tuple(MemoryKind)
AGEING = frozenset({MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM})
"""What was said stays said; only what was made of it grows old."""

_POOL = 40
_JUDGED = 2
"""Times the limit: so many are put before a judge."""
_SEEDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """`weights` is the older one: 0.7 to 0.3 on scores instead of ranks. `vectors` is the weight
    of meanings next to 1 for words; `cut` drops what has less than this share of the best."""

    kind: Literal["ranks", "weights"] = "ranks"
    vectors: float = 0.4
    cut: float = 0.0


class Neighbours(Protocol):
    async def near(
        self, scopes: Sequence[Scope], query: str, limit: int, kinds: Sequence[MemoryKind]
    ) -> Sequence[Hit]:
        """Active entries whose meaning is nearest, by cosine, best first; none where nobody can
        tell in time. Never raises for a service that fails."""
        ...


class Judge(Protocol):
    async def judge(self, query: str, texts: Sequence[str]) -> Mapping[int, float]:
        """How well each fits, from 0 to 1, by its place; empty where nobody can tell in time."""
        ...


class Associations(Protocol):
    async def spread(self, seeds: Mapping[int, float]) -> Mapping[int, float]:
        """Entries that these lead to, by number, and how strongly."""
        ...


Words = Callable[[str, datetime], Mapping[str, float]]
"""What a query looks for, each word with its weight."""


class Recall:
    """The one way to look something up. Who reads decides what there is."""

    def __init__(
        self,
        *,
        entries: EntryRepo,
        index: Index,
        words: Words,
        now: Callable[[], datetime],
        fusion: Fusion | None = None,
        neighbours: Neighbours | None = None,
        judge: Judge | None = None,
        associations: Associations | None = None,
    ) -> None:
        self._entries = entries
        self._index = index
        self._words = words
        self._now = now
        self._fusion = fusion or Fusion()
        self._neighbours = neighbours
        self._judge = judge
        self._associations = associations

    async def search(
        self,
        reader: Reader,
        query: str,
        limit: int,
        *,
        kinds: Sequence[MemoryKind] = ALL,
        cut: float | None = None,
    ) -> Sequence[FoundEntry]:
        """What fits best, best first. Nothing for nobody, and never what this reader may not see.
        `cut` is another than the usual one."""
        return await self.within(reader.scopes, query, limit, kinds=kinds, cut=cut)

    async def within(
        self,
        scopes: Sequence[Scope],
        query: str,
        limit: int,
        *,
        kinds: Sequence[MemoryKind] = ALL,
        cut: float | None = None,
    ) -> Sequence[FoundEntry]:
        """The same for a list of scopes that somebody has been allowed to read."""
        if not scopes or limit <= 0:
            return ()
        pool, now = max(_POOL, 2 * limit), self._now()
        by_words, by_meaning = await asyncio.gather(
            self._index.search(scopes, self._words(query, now), pool, kinds=kinds),
            self._near(scopes, query, pool, kinds),
        )
        least = self._fusion.cut if cut is None else cut
        fused = self._fused(_above(by_words, least), by_meaning)
        found = await self._alive(
            scopes, kinds, sorted(fused, key=fused.__getitem__, reverse=True), now
        )
        ranked = [_recalled(each, fused, by_words, by_meaning) for each in found]
        ranked = await self._judged(query, ranked, limit)
        ranked = sorted((_aged(each, now) for each in ranked), key=_score, reverse=True)
        best = _without_repeats(ranked)[:limit]
        return [*best, *await self._associated(scopes, kinds, best, limit - len(best), now)]

    async def _near(
        self, scopes: Sequence[Scope], query: str, pool: int, kinds: Sequence[MemoryKind]
    ) -> Sequence[Hit]:
        if self._neighbours is None:
            return ()
        return await self._neighbours.near(scopes, query, pool, kinds)

    def _fused(self, by_words: Sequence[Hit], by_meaning: Sequence[Hit]) -> dict[int, float]:
        if self._fusion.kind == "weights":
            return weighted(_by_number(by_meaning), _by_number(by_words))
        lists = [(1.0, by_words), (self._fusion.vectors, by_meaning)]
        return rrf([(weight, [hit.number for hit in hits]) for weight, hits in lists])

    async def _alive(
        self,
        scopes: Sequence[Scope],
        kinds: Sequence[MemoryKind],
        numbers: Sequence[int],
        now: datetime,
    ) -> Sequence[Entry]:
        """Checked once more, whoever has found them."""
        found = await self._entries.numbered(numbers, scopes)
        return [each for each in found if is_recalled(each, now) and each.kind in kinds]

    async def _judged(self, query: str, ranked: list[FoundEntry], limit: int) -> list[FoundEntry]:
        if self._judge is None or len(ranked) < _JUDGED:
            return ranked
        first = ranked[: _JUDGED * limit]
        given = await self._judge.judge(query, [each.entry.text for each in first])
        if not given:
            return ranked
        before = normalised({at: each.score for at, each in enumerate(first)})
        after = reranked(before, given)
        judged = [
            replace(
                each,
                score=after[at],
                parts={**each.parts, **({"judge": given[at]} if at in given else {})},
            )
            for at, each in enumerate(first)
        ]
        # What was not put before it stays behind what was.
        least = min(after.values())
        rest = ranked[len(first) :]
        return [*judged, *(replace(each, score=least * each.score) for each in rest)]

    async def _associated(
        self,
        scopes: Sequence[Scope],
        kinds: Sequence[MemoryKind],
        best: Sequence[FoundEntry],
        room: int,
        now: datetime,
    ) -> Sequence[FoundEntry]:
        """Where there is room: what the best lead to, behind all that was found."""
        if self._associations is None or room <= 0 or not best:
            return ()
        active = await self._associations.spread(
            {each.entry.number: each.score for each in best[:_SEEDS]}
        )
        known = {each.entry.number for each in best}
        numbers = sorted(set(active) - known, key=active.__getitem__, reverse=True)
        least = best[-1].score
        return [
            FoundEntry(
                entry=each,
                score=least * min(1.0, active[each.number]),
                parts={"link": active[each.number]},
            )
            for each in (await self._alive(scopes, kinds, numbers, now))[:room]
        ]


def is_recalled(entry: Entry, now: datetime) -> bool:
    """Only what is true now, as far as anybody knows."""
    ended = entry.invalidated_at is not None and entry.invalidated_at <= now
    over = entry.valid_until is not None and entry.valid_until <= now
    return entry.state is EntryState.ACTIVE and not ended and not over


def dated_words(zone: tzinfo) -> Words:
    """Words as the index is asked for them, with days such as yesterday as the Boss's clock has
    it."""

    def words(query: str, now: datetime) -> Mapping[str, float]:
        return asked(query, now=now, zone=zone)

    return words


def _above(hits: Sequence[Hit], share: float) -> Sequence[Hit]:
    best = max((hit.score for hit in hits), default=0.0)
    return [hit for hit in hits if hit.score >= share * best]


def _recalled(
    entry: Entry, fused: Mapping[int, float], by_words: Sequence[Hit], by_meaning: Sequence[Hit]
) -> FoundEntry:
    number = entry.number
    found = {"words": _by_number(by_words), "meaning": _by_number(by_meaning), "fused": fused}
    parts = {name: scores[number] for name, scores in found.items() if number in scores}
    return FoundEntry(entry=entry, score=fused[number], parts=parts)


def _aged(each: FoundEntry, now: datetime) -> FoundEntry:
    if each.entry.kind not in AGEING:
        return each
    age = boost(wear(each.entry, now), each.entry.tier)
    return replace(each, score=each.score * age, parts={**each.parts, "age": age})


def _without_repeats(ranked: Sequence[FoundEntry]) -> list[FoundEntry]:
    words = {each.entry.number: frozenset(terms(each.entry.text)) for each in ranked}

    def is_near(one: FoundEntry, other: FoundEntry) -> bool:
        return jaccard(words[one.entry.number], words[other.entry.number]) > ALIKE

    return deferred(ranked, is_near)


def _by_number(hits: Sequence[Hit]) -> dict[int, float]:
    return {hit.number: hit.score for hit in hits}


def _score(each: FoundEntry) -> float:
    return each.score
