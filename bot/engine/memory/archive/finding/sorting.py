"""What is shown first of what has been found: the newest, what fits best, or a bit of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import log
from typing import Generic, TypeVar

from storage.memory.words import terms

POOL = 300
"""So many of the newest that fit are compared."""
_K1, _B = 1.2, 0.75
_BEFORE, _LOOKED_AT = 500, 2_000
"""Of a long text only what is around its first hit is counted; the rest counts as its length."""
_FADES = 0.001
"""How much an hour takes: after 1,000 of them what is found counts half."""

_T = TypeVar("_T")


class Order(StrEnum):
    RECENCY = "recency"
    RELEVANCE = "relevance"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Generic[_T]):
    """`of` is what it stands for."""

    text: str
    at: datetime
    of: _T


def ranked(
    candidates: Sequence[Candidate[_T]], words: Sequence[str], order: Order, now: datetime
) -> Sequence[_T]:
    """By BM25 among themselves, in words as memory knows them: Chinese by characters and pairs.
    Of two that fit alike the newer one comes first. CPU-bound where they are many."""
    newest = sorted(candidates, key=lambda each: each.at, reverse=True)
    if order is Order.RECENCY:
        return [each.of for each in newest]
    scores = _scores([each.text for each in newest], words)
    if order is Order.HYBRID:
        hours = [max(0.0, (now - each.at).total_seconds() / 3600) for each in newest]
        scores = [score / (1 + age * _FADES) for score, age in zip(scores, hours, strict=True)]
    best = sorted(range(len(newest)), key=lambda n: scores[n], reverse=True)
    return [newest[n].of for n in best]


def _scores(texts: Sequence[str], words: Sequence[str]) -> list[float]:
    wanted = frozenset(terms(" ".join(words)))
    parts = [_around(text, words) for text in texts]
    counts = [Counter(terms(part)) for part in parts]
    lengths = [
        count.total() * len(text) / max(1, len(part))
        for count, part, text in zip(counts, parts, texts, strict=True)
    ]
    usual = max(1.0, sum(lengths) / max(1, len(lengths)))
    rare = {
        term: log(1 + len(texts) / found)
        for term in wanted
        if (found := sum(term in each for each in counts))
    }
    return [
        sum(value * _weight(count[term], length / usual) for term, value in rare.items())
        for count, length in zip(counts, lengths, strict=True)
    ]


def _around(text: str, words: Sequence[str]) -> str:
    if len(text) <= _LOOKED_AT:
        return text
    plain = text.casefold()
    hits = [at for word in words if (at := plain.find(word.casefold())) >= 0]
    start = max(0, min(hits, default=0) - _BEFORE)
    return text[start : start + _LOOKED_AT]


def _weight(times: int, length: float) -> float:
    return times * (_K1 + 1) / (times + _K1 * (1 - _B + _B * length)) if times else 0.0
