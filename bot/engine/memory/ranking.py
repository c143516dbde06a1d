"""Which of the entries found comes first: pure laws, with the figures they are known by."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from math import exp, log
from typing import TypeVar

from storage.records.memory.entries import Entry, Tier

_DAY = 86_400.0
_HALF_LIFE = 30.0
_HALF_LIFE_DYNAMIC = 10.0
_LEAST_BOOST = 0.3
_BETAS = {Tier.CORE: 0.8, Tier.WORKING: 1.0, Tier.PERIPHERAL: 1.3}
_FLOORS = {Tier.CORE: 0.9, Tier.WORKING: 0.7, Tier.PERIPHERAL: 0.5}

RRF_K = 20.0
ALIKE = 0.8
"""Share of words that two texts have in common, of all the words of both: more is the same."""

_EXACT = 0.75
_EXACT_FACTOR = 0.92
_RERANKED = 0.6

_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wear:
    """What is known of an entry's age and use, each from 0 to 1; `composite` weighs them."""

    recency: float
    frequency: float
    intrinsic: float

    @property
    def composite(self) -> float:
        return 0.4 * self.recency + 0.3 * self.frequency + 0.3 * self.intrinsic


def wear(entry: Entry, now: datetime) -> Wear:
    return Wear(
        recency=recency(
            _days(entry.last_used_at if entry.used and entry.last_used_at else entry.said_at, now),
            importance=entry.importance,
            tier=entry.tier,
            dynamic=entry.dynamic,
        ),
        frequency=frequency(entry.used, _days(entry.said_at, entry.last_used_at or entry.said_at)),
        intrinsic=entry.importance * entry.confidence,
    )


def half_life(importance: float, *, dynamic: bool) -> float:
    """In days."""
    return (_HALF_LIFE_DYNAMIC if dynamic else _HALF_LIFE) * exp(1.5 * importance)


def recency(days: float, *, importance: float, tier: Tier, dynamic: bool) -> float:
    """Weibull's law: the tier says whether age counts ever less or ever more."""
    rate = log(2) / half_life(importance, dynamic=dynamic)
    return exp(-rate * max(0.0, days) ** _BETAS[tier])


def frequency(used: int, days: float) -> float:
    """`days` lie between its birth and its last use: what is used often and close together
    counts more."""
    base = 1 - exp(-used / 5)
    if used <= 1:
        return base
    gap = max(1.0, days) / (used - 1)
    return base * (0.5 + 0.5 * exp(-gap / 30))


def boost(worn: Wear, tier: Tier) -> float:
    """What an entry's score is multiplied by: age re-orders what is close, and hides nothing."""
    best = max(_FLOORS[tier], worn.composite, worn.recency)
    return min(1.0, max(_LEAST_BOOST, _LEAST_BOOST + (1 - _LEAST_BOOST) * best))


def rrf(lists: Sequence[tuple[float, Sequence[_K]]], k: float = RRF_K) -> dict[_K, float]:
    """Several rankings made one, each with its weight, by rank alone: the best has about 1 where
    one list stands first with the weight 1."""
    total = sum(weight for weight, ranked in lists if ranked) or 1.0
    scores: dict[_K, float] = {}
    for weight, ranked in lists:
        for rank, key in enumerate(dict.fromkeys(ranked), start=1):
            part = weight / total * (k + 1) / (k + rank)
            scores[key] = scores.get(key, 0.0) + part
    return scores


def vector_score(cosine: float) -> float:
    """A cosine as the older formula wants it: never below a third."""
    return 1 / (2 - cosine)


def lexical_score(raw: float) -> float:
    """BM25's open scale made one from 0 to 1: never below a half."""
    return 1 / (1 + exp(-raw / 5)) if raw > 0 else 0.5


def weighted(vectors: Mapping[_K, float], lexical: Mapping[_K, float]) -> dict[_K, float]:
    """The older fusion, by setting: cosines and raw BM25, 0.7 to 0.3, with a floor for words that
    fit very well; what words alone have found keeps their score."""
    scores: dict[_K, float] = {}
    for key in {**vectors, **lexical}:
        b = lexical_score(lexical[key]) if key in lexical else 0.0
        if key not in vectors:
            fused = b
        else:
            fused = 0.7 * vector_score(vectors[key]) + 0.3 * b
            fused = max(fused, _EXACT_FACTOR * b if b >= _EXACT else 0.0)
        scores[key] = min(1.0, max(0.0, fused))
    return scores


def reranked(fused: Mapping[_K, float], judged: Mapping[_K, float]) -> dict[_K, float]:
    """A judge's scores weighed with those from before. What it did not return falls a little; a
    judge can lower what words and vectors found, by half at most."""
    return {
        key: max(0.5 * score, _RERANKED * judged[key] + (1 - _RERANKED) * score)
        if key in judged
        else 0.8 * score
        for key, score in fused.items()
    }


def normalised(scores: Mapping[_K, float]) -> dict[_K, float]:
    """From 0 to 1; all of them 1 where they are the same."""
    if not scores:
        return {}
    low, high = min(scores.values()), max(scores.values())
    span = high - low
    return {key: (score - low) / span if span else 1.0 for key, score in scores.items()}


def jaccard(one: AbstractSet[str], other: AbstractSet[str]) -> float:
    """Of all the words of both, the share that both have."""
    both = len(one & other)
    return both / (len(one) + len(other) - both) if both else 0.0


def deferred(ranked: Iterable[_T], is_near: Callable[[_T, _T], bool]) -> list[_T]:
    """The same things in the same order, but what is nearly the same as a better one comes last:
    nothing is lost."""
    first: list[_T] = []
    later: list[_T] = []
    for each in ranked:
        near = any(is_near(kept, each) for kept in first)
        (later if near else first).append(each)
    return [*first, *later]


def _days(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds() / _DAY)
