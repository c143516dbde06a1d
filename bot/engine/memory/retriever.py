"""Memory search: words first, then optional embeddings, decay, associations and reranking. Works
without any model."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from typing import Literal, Protocol, TypeVar

from bot.engine.memory.access import MemoryReader
from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.decay import decay_boost, decay_components
from bot.engine.memory.similarity import jaccard
from storage.db import Database
from storage.errors import StoreUnavailable
from storage.key_value import KeyValueStore
from storage.memory.entries import MemoryEntryRepo, MemoryLink, MemoryLinkRepo
from storage.records.memory import MemoryEntry, MemoryKind, MemoryMatch, MemoryScope, MemoryState
from storage.search.inverted_index import InvertedIndex, SearchHit
from storage.search.terms import query_terms, tokenize, without_work_words

RRF_K = 20.0
NEAR_DUPLICATE_JACCARD = 0.8
"""Minimum Jaccard overlap of near duplicates."""

_EXACT_MATCH_SCORE = 0.75
_EXACT_FACTOR = 0.92
_RERANK_WEIGHT = 0.6

_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)
log = logging.getLogger(__name__)

_MIN_KEYWORD_OVERLAP = 0.3
_SAME_TASK_WEIGHT = 0.5
_SAME_DAY_WEIGHT = 0.3
_SAME_NAME_WEIGHT = 0.6
_DIFFERENT = 2
_DAY = timedelta(hours=24)
_MIN_DAY_WEIGHT = 0.05
_HOP_DAMPING = 0.5
_MAX_HOPS = 2
_MIN_ACTIVATION = 0.01
_MAX_LINKS = 8
_MAX_COMPARED = 300
_BATCH = 50
_STORE_RETRY_SECONDS = 60.0
_PROGRESS_MARK = "memory:linked"


def reciprocal_rank_fusion(lists: Sequence[tuple[float, Sequence[_K]]]) -> dict[_K, float]:
    """Merge weighted rankings by rank. The best is about 1 for a single list with weight 1."""
    total = sum(weight for weight, ranked in lists if ranked) or 1.0
    scores: dict[_K, float] = {}
    for weight, ranked in lists:
        for rank, key in enumerate(dict.fromkeys(ranked), start=1):
            part = weight / total * (RRF_K + 1) / (RRF_K + rank)
            scores[key] = scores.get(key, 0.0) + part
    return scores


def vector_score(cosine: float) -> float:
    """Cosine mapped to the score of the weighted fusion, at least one third."""
    return 1 / (2 - cosine)


def lexical_score(raw: float) -> float:
    """BM25 mapped to [0.5, 1)."""
    return 1 / (1 + math.exp(-raw / 5)) if raw > 0 else 0.5


def weighted_score_fusion(
    vectors: Mapping[_K, float], lexical: Mapping[_K, float]
) -> dict[_K, float]:
    """Weighted score fusion (a setting): 0.7 cosine, 0.3 BM25, with a floor for strong word
    matches. Entries found by words alone keep their score."""
    scores: dict[_K, float] = {}
    for key in {**vectors, **lexical}:
        b = lexical_score(lexical[key]) if key in lexical else 0.0
        if key not in vectors:
            fused = b
        else:
            fused = 0.7 * vector_score(vectors[key]) + 0.3 * b
            fused = max(fused, _EXACT_FACTOR * b if b >= _EXACT_MATCH_SCORE else 0.0)
        scores[key] = min(1.0, max(0.0, fused))
    return scores


def blend_rerank_scores(
    fused: Mapping[_K, float], rerank_scores: Mapping[_K, float]
) -> dict[_K, float]:
    """Blend reranker scores with fused ones. Unranked items lose a little; a reranker lowers a
    score by half at most."""
    return {
        key: max(0.5 * score, _RERANK_WEIGHT * rerank_scores[key] + (1 - _RERANK_WEIGHT) * score)
        if key in rerank_scores
        else 0.8 * score
        for key, score in fused.items()
    }


def min_max_normalise(scores: Mapping[_K, float]) -> dict[_K, float]:
    """Scale to [0, 1]; all 1 if equal."""
    if not scores:
        return {}
    low, high = min(scores.values()), max(scores.values())
    span = high - low
    return {key: (score - low) / span if span else 1.0 for key, score in scores.items()}


def defer_near_duplicates(ranked: Iterable[_T], is_near: Callable[[_T, _T], bool]) -> list[_T]:
    """Stable reordering that moves near duplicates of better items to the end."""
    first: list[_T] = []
    later: list[_T] = []
    for each in ranked:
        near = any(is_near(kept, each) for kept in first)
        (later if near else first).append(each)
    return [*first, *later]


ALL_KINDS = tuple(MemoryKind)
DECAYING_KINDS = frozenset({MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM})
"""Kinds that age; records of what was said do not."""

_CANDIDATE_POOL = 40
_TELLING_RELEVANCE = 1.25
"""A little more than that of one word of the query that no other entry has."""
_DATED_VECTOR_WEIGHT = 0.05
"""For a query that names a day: the day tells, and vectors know no days."""
_RERANK_FACTOR = 2
"""Candidates for the reranker, as a multiple of the limit."""
_ASSOCIATION_SEEDS = 3
_PRESENT_STATES = (MemoryState.ACTIVE,)
_PAST_STATES = (MemoryState.ACTIVE, MemoryState.SUPERSEDED)
_ENDED_FACTOR = 0.3
"""Of the score of a turn that states what is no longer so."""
_MAX_PAST = 500
_MAX_PAST_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionSettings:
    """`weights` is score fusion (0.7 to 0.3) instead of rank fusion. `vector_weight` is relative to
    1 for words, and `vague_vector_weight` where the words of the best match tell little;
    matches below `min_share` of the best are dropped."""

    kind: Literal["ranks", "weights"] = "ranks"
    vector_weight: float = 0.4
    vague_vector_weight: float | None = None
    min_share: float = 0.0


class VectorRetriever(Protocol):
    async def find_nearest(
        self, scopes: Sequence[MemoryScope], query: str, limit: int, kinds: Sequence[MemoryKind]
    ) -> Sequence[SearchHit]:
        """Active entries by cosine, best first; empty if not available in time. Must not raise if
        the service fails."""
        ...


class Reranker(Protocol):
    async def score(self, query: str, texts: Sequence[str]) -> Mapping[int, float]:
        """Scores from 0 to 1 by index; empty if not available in time."""
        ...


class AssociationSource(Protocol):
    async def spread(self, seeds: Mapping[int, float]) -> Mapping[int, float]:
        """Activation of associated entries, by entry number."""
        ...


_DEFAULT_FUSION = FusionSettings()
QueryTermExtractor = Callable[[str, datetime], Mapping[str, float]]
"""Extracts weighted search terms from a query."""


@dataclass(slots=True, kw_only=True)
class MemoryRetriever:
    """The only way to search memories; the reader determines the visible scopes."""

    entries: MemoryEntryRepo
    index: InvertedIndex
    extract_terms: QueryTermExtractor
    now: Callable[[], datetime]
    fusion: FusionSettings = _DEFAULT_FUSION
    vector_retriever: VectorRetriever | None = None
    reranker: Reranker | None = None
    associations: AssociationSource | None = None

    async def search(
        self,
        reader: MemoryReader,
        query: str,
        limit: int,
        *,
        kinds: Sequence[MemoryKind] = ALL_KINDS,
        min_share: float | None = None,
        min_relevance: float = 0.0,
    ) -> Sequence[MemoryMatch]:
        """Best matches first. Empty without a reader; never returns entries invisible to the
        reader. `min_share` overrides the setting. Entries that only their words have found need
        `min_relevance` (see `SearchHit`)."""
        return await self.search_scopes(
            reader.scopes,
            query,
            limit,
            kinds=kinds,
            min_share=min_share,
            min_relevance=min_relevance,
        )

    async def search_scopes(
        self,
        scopes: Sequence[MemoryScope],
        query: str,
        limit: int,
        *,
        kinds: Sequence[MemoryKind] = ALL_KINDS,
        min_share: float | None = None,
        min_relevance: float = 0.0,
    ) -> Sequence[MemoryMatch]:
        """As `search`, for scopes already authorised."""
        if not scopes or limit <= 0:
            return ()
        pool, now = max(_CANDIDATE_POOL, 2 * limit), self.now()
        terms, wants_past = self.extract_terms(query, now), _asks_about_past(query)
        states = _PAST_STATES if wants_past else _PRESENT_STATES
        if min_relevance:
            terms = without_work_words(terms)
        by_words, by_meaning = await asyncio.gather(
            self.index.search(scopes, terms, pool, kinds=kinds, states=states),
            self._search_vectors(scopes, query, pool, kinds),
        )
        least = self.fusion.min_share if min_share is None else min_share
        by_words = [hit for hit in by_words if hit.relevance >= min_relevance]
        names_day = any(each[:1] == "=" and each[1:2].isdigit() for each in terms)
        fused = self._fuse(_above_share(by_words, least), by_meaning, names_day=names_day)
        found = await self._load_retrievable(
            scopes,
            kinds,
            sorted(fused, key=fused.__getitem__, reverse=True),
            now,
            with_past=wants_past,
        )
        ranked = [_to_found_entry(each, fused, by_words, by_meaning) for each in found]
        ranked = await self._rerank(query, ranked, limit)
        ranked = [_apply_decay(each, now) for each in await self._mark_ended(ranked, wants_past)]
        ranked = sorted(ranked, key=_score_of, reverse=True)
        if wants_past:
            ranked = await self._put_past_first(scopes, kinds, query, ranked)
        best = _defer_repeats(ranked)[:limit]
        return [*best, *await self._add_associations(scopes, kinds, best, limit - len(best), now)]

    async def _search_vectors(
        self, scopes: Sequence[MemoryScope], query: str, pool: int, kinds: Sequence[MemoryKind]
    ) -> Sequence[SearchHit]:
        if self.vector_retriever is None:
            return ()
        return await self.vector_retriever.find_nearest(scopes, query, pool, kinds)

    def _fuse(
        self, by_words: Sequence[SearchHit], by_meaning: Sequence[SearchHit], *, names_day: bool
    ) -> dict[int, float]:
        if self.fusion.kind == "weights":
            return weighted_score_fusion(_by_number(by_meaning), _by_number(by_words))
        lists = [(1.0, by_words), (self._vector_weight(by_words, names_day=names_day), by_meaning)]
        return reciprocal_rank_fusion(
            [(weight, [hit.number for hit in hits]) for weight, hits in lists]
        )

    def _vector_weight(self, by_words: Sequence[SearchHit], *, names_day: bool) -> float:
        weight, vague_weight = self.fusion.vector_weight, self.fusion.vague_vector_weight
        is_vague = max((hit.relevance for hit in by_words), default=0.0) < _TELLING_RELEVANCE
        if is_vague and vague_weight is not None:
            return vague_weight
        return min(weight, _DATED_VECTOR_WEIGHT) if names_day else weight

    async def _load_retrievable(
        self,
        scopes: Sequence[MemoryScope],
        kinds: Sequence[MemoryKind],
        numbers: Sequence[int],
        now: datetime,
        *,
        with_past: bool = False,
    ) -> Sequence[MemoryEntry]:
        """Load entries and check that they are retrievable, whichever source found them."""
        found = await self.entries.list_by_numbers(numbers, scopes)
        return [
            each
            for each in found
            if each.kind in kinds and (is_retrievable(each, now) or (with_past and _was_true(each)))
        ]

    async def _mark_ended(
        self, ranked: Sequence[MemoryMatch], wants_past: bool
    ) -> Sequence[MemoryMatch]:
        """Turns that state what is no longer so are marked, and stand back unless the past is
        asked for."""
        cells = [each.entry.number for each in ranked if each.entry.kind is MemoryKind.CELL]
        ended = await self.entries.list_ended_sources(cells)
        factor = 1.0 if wants_past else _ENDED_FACTOR
        return [
            replace(each, score=each.score * factor, ended_at=ended[each.entry.number])
            if each.entry.number in ended
            else each
            for each in ranked
        ]

    async def _put_past_first(
        self,
        scopes: Sequence[MemoryScope],
        kinds: Sequence[MemoryKind],
        query: str,
        ranked: Sequence[MemoryMatch],
    ) -> list[MemoryMatch]:
        """Facts that were true once and are about what is asked come first, the latest before the
        others, whether or not they share a word with the question."""
        from bot.engine.memory.past_facts import PAST_KINDS, answers_about_past

        now = self.now()
        wanted = [each for each in PAST_KINDS if each in kinds]
        if not wanted:
            return list(ranked)
        old = await self.entries.list(
            scopes, kinds=wanted, states=(MemoryState.SUPERSEDED,), limit=_MAX_PAST
        )
        meant = sorted(
            (each for each in old if answers_about_past(query, each, now)),
            key=lambda each: each.valid_until or each.updated_at,
            reverse=True,
        )[:_MAX_PAST_SHOWN]
        best = max((each.score for each in ranked), default=1.0)
        first = [MemoryMatch(entry=each, score=best, parts={"past": 1.0}) for each in meant]
        known = {each.id for each in meant}
        return [*first, *(each for each in ranked if each.entry.id not in known)]

    async def _rerank(self, query: str, ranked: list[MemoryMatch], limit: int) -> list[MemoryMatch]:
        if self.reranker is None or len(ranked) < _RERANK_FACTOR:
            return ranked
        first = ranked[: _RERANK_FACTOR * limit]
        given = await self.reranker.score(query, [each.entry.text for each in first])
        if not given:
            return ranked
        before = min_max_normalise({at: each.score for at, each in enumerate(first)})
        after = blend_rerank_scores(before, given)
        judged = [
            replace(
                each,
                score=after[at],
                parts={**each.parts, **({"judge": given[at]} if at in given else {})},
            )
            for at, each in enumerate(first)
        ]
        # Items not reranked stay behind those that were.
        least = min(after.values())
        rest = ranked[len(first) :]
        return [*judged, *(replace(each, score=least * each.score) for each in rest)]

    async def _add_associations(
        self,
        scopes: Sequence[MemoryScope],
        kinds: Sequence[MemoryKind],
        best: Sequence[MemoryMatch],
        room: int,
        now: datetime,
    ) -> Sequence[MemoryMatch]:
        """Fill free places with associations of the best matches, behind all direct matches."""
        if self.associations is None or room <= 0 or not best:
            return ()
        active = await self.associations.spread(
            {each.entry.number: each.score for each in best[:_ASSOCIATION_SEEDS]}
        )
        known = {each.entry.number for each in best}
        numbers = sorted(set(active) - known, key=active.__getitem__, reverse=True)
        least = best[-1].score
        return [
            MemoryMatch(
                entry=each,
                score=least * min(1.0, active[each.number]),
                parts={"link": active[each.number]},
            )
            for each in (await self._load_retrievable(scopes, kinds, numbers, now))[:room]
        ]


def is_retrievable(entry: MemoryEntry, now: datetime) -> bool:
    """Whether the entry is active and currently valid."""
    ended = entry.invalidated_at is not None and entry.invalidated_at <= now
    over = entry.valid_until is not None and entry.valid_until <= now
    return entry.state is MemoryState.ACTIVE and not ended and not over


def is_planned(entry: MemoryEntry, now: datetime) -> bool:
    """Whether it becomes true only later than it was said."""
    return entry.valid_from > max(now, entry.said_at)


def _was_true(entry: MemoryEntry) -> bool:
    return entry.state is MemoryState.SUPERSEDED and entry.kind in DECAYING_KINDS


def _asks_about_past(query: str) -> bool:
    # Imported on first use: its many patterns cost the start.
    from bot.engine.memory.past_facts import asks_about_past

    return asks_about_past(query)


def make_term_extractor(zone: tzinfo) -> QueryTermExtractor:
    """Query terms as indexed; relative days such as "yesterday" refer to `zone`."""

    def words(query: str, now: datetime) -> Mapping[str, float]:
        return query_terms(query, now=now, zone=zone)

    return words


def _above_share(hits: Sequence[SearchHit], share: float) -> Sequence[SearchHit]:
    best = max((hit.score for hit in hits), default=0.0)
    return [hit for hit in hits if hit.score >= share * best]


def _to_found_entry(
    entry: MemoryEntry,
    fused: Mapping[int, float],
    by_words: Sequence[SearchHit],
    by_meaning: Sequence[SearchHit],
) -> MemoryMatch:
    number = entry.number
    found = {"words": _by_number(by_words), "meaning": _by_number(by_meaning), "fused": fused}
    parts = {name: scores[number] for name, scores in found.items() if number in scores}
    return MemoryMatch(entry=entry, score=fused[number], parts=parts)


def _apply_decay(each: MemoryMatch, now: datetime) -> MemoryMatch:
    if each.entry.kind not in DECAYING_KINDS:
        return each
    age = decay_boost(decay_components(each.entry, now), each.entry.tier)
    return replace(each, score=each.score * age, parts={**each.parts, "age": age})


def _defer_repeats(ranked: Sequence[MemoryMatch]) -> list[MemoryMatch]:
    words = {each.entry.number: frozenset(tokenize(each.entry.text)) for each in ranked}

    def is_near(one: MemoryMatch, other: MemoryMatch) -> bool:
        return jaccard(words[one.entry.number], words[other.entry.number]) > NEAR_DUPLICATE_JACCARD

    return defer_near_duplicates(ranked, is_near)


def _by_number(hits: Sequence[SearchHit]) -> dict[int, float]:
    return {hit.number: hit.score for hit in hits}


def _score_of(each: MemoryMatch) -> float:
    return each.score


def find_link(one: MemoryEntry, other: MemoryEntry) -> MemoryLink | None:
    """The strongest link between two entries; None if they are unrelated."""
    bonds = list(_candidate_links(one, other))
    if not bonds or one.number == other.number:
        return None
    weight, kind = max(bonds)
    return MemoryLink(one=one.number, other=other.number, kind=kind, weight=weight)


def find_strongest_links(entry: MemoryEntry, others: Sequence[MemoryEntry]) -> Sequence[MemoryLink]:
    found = [link for each in others if (link := find_link(entry, each)) is not None]
    return sorted(found, key=lambda link: link.weight, reverse=True)[:_MAX_LINKS]


def _candidate_links(one: MemoryEntry, other: MemoryEntry) -> Iterator[tuple[float, str]]:
    # Imported on first use: its many patterns cost the start.
    from bot.engine.memory.entities import describe, names_in

    for name in names_in(one.text) & names_in(other.text):
        said = {describe(name, one.text), describe(name, other.text)} - {""}
        # Two of one name are kept apart.
        if len(said) < _DIFFERENT:
            yield _SAME_NAME_WEIGHT, "entity"
    alike = jaccard(_keywords(one), _keywords(other))
    if alike >= _MIN_KEYWORD_OVERLAP:
        yield alike, "keywords"
    if one.task is not None and one.task == other.task:
        yield _SAME_TASK_WEIGHT, "task"
    apart = abs(one.said_at - other.said_at)
    near = _SAME_DAY_WEIGHT * (1 - apart / _DAY)
    if near > _MIN_DAY_WEIGHT:
        yield near, "day"


def _keywords(entry: MemoryEntry) -> frozenset[str]:
    return frozenset(each.casefold().strip() for each in entry.keywords) - {""}


class SpreadingActivation:
    """Implements `retriever.AssociationSource`: activation spreads from entries to their links,
    halved at each step, two steps deep."""

    def __init__(self, repo: MemoryLinkRepo) -> None:
        self._repo = repo

    async def spread(self, seeds: Mapping[int, float]) -> Mapping[int, float]:
        seen = set(seeds)
        found: dict[int, float] = {}
        level = dict(seeds)
        for _ in range(_MAX_HOPS):
            reached: defaultdict[int, float] = defaultdict(float)
            for link in await self._repo.list_touching(level):
                for here, there in ((link.one, link.other), (link.other, link.one)):
                    if here in level and there not in seen:
                        woken = level[here] * link.weight * _HOP_DAMPING
                        reached[there] = max(reached[there], woken)
            level = {number: woken for number, woken in reached.items() if woken >= _MIN_ACTIVATION}
            found |= level
            seen |= set(level)
        return found


@dataclass(slots=True, kw_only=True)
class AssociationLinker:
    """A service that links new entries to existing ones."""

    db: Database
    repo: MemoryLinkRepo
    key_values: KeyValueStore
    feed: MemoryChangeFeed
    sleep: Callable[[float], Awaitable[None]]
    name: str = "memory links"

    async def start(self, stack: AsyncExitStack) -> None: ...

    async def run(self) -> None:
        listener = self.feed.subscribe()
        while True:
            try:
                while await self.link_next_batch():
                    pass
                await listener.wait()
            except StoreUnavailable as error:
                log.warning("memories cannot be linked now: %s", error)
                await self.sleep(_STORE_RETRY_SECONDS)

    async def link_next_batch(self) -> int:
        """Link the next entries and return their number. A repeat after a crash creates the same
        links."""
        after = int(await self.key_values.get(_PROGRESS_MARK) or 0)
        entries = await self.repo.list_linkable_after(after, _BATCH)
        if not entries:
            return 0
        links = [
            link
            for entry in entries
            for link in find_strongest_links(
                entry, await self.repo.list_link_targets(entry, _MAX_COMPARED)
            )
        ]
        async with self.db.write() as tx:
            await self.repo.add(tx, links)
            await self.key_values.write(tx, _PROGRESS_MARK, entries[-1].number)
        return len(entries)
