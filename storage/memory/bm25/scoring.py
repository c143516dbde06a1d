"""BM25 over packed postings: rare words first, frequent ones only where they can still matter."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import log
from typing import TypeAlias

from storage.memory.bm25.blocks import K1, OFFSET_BITS, TF_MASK, ratios, unpacked

_BUDGET = 16_000
"""Postings that are read one by one for a search, of each scope."""
_WORTH_A_LOOK = 2_000
"""Fewer postings than these are read without asking whether they can matter."""
_CANDIDATES = 500
ADDRESSED = 0.3
"""What a sender's name counts where it is only said: mostly by somebody else."""
_TF_BITS = TF_MASK.bit_length()

Packed: TypeAlias = Sequence[tuple[int, bytes]]
"""Of one word: each block that has it, and its postings there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """A scope as a search sees it: how many entries it has, how long they are together, the
    lengths of each block, and where the words are that are asked for."""

    entries: int
    length: float
    lengths: Mapping[int, bytes]
    postings: Mapping[str, Packed]


@dataclass(frozen=True, slots=True)
class _Word:
    value: float
    packed: Packed
    df: int


def best(shelf: Shelf, words: Mapping[str, float], most: int) -> Mapping[int, float]:
    """At least the `most` best entries (fewer if there are fewer), by their numbers."""
    return _Scoring(shelf, most).of(_by_value(shelf, words))


def _by_value(shelf: Shelf, words: Mapping[str, float]) -> Sequence[_Word]:
    found = []
    for term, weight in words.items():
        packed = shelf.postings.get(term, ())
        if df := sum(len(data) for _, data in packed) // 2:
            # No more entries can have it than there are, whatever the counters say.
            idf = log(1 + (max(shelf.entries - df, 0) + 0.5) / (df + 0.5))
            said = ADDRESSED if f"@{term}" in shelf.postings else 1.0
            found.append(_Word(weight * said * idf, packed, df))
    return sorted(found, key=lambda word: word.value, reverse=True)


class _Scoring:
    def __init__(self, shelf: Shelf, most: int) -> None:
        self._lengths = shelf.lengths
        self._ratios = ratios(shelf.length / max(shelf.entries, 1))
        self._most = most
        self._scores: defaultdict[int, float] = defaultdict(float)
        self._budget = _BUDGET

    def of(self, words: Sequence[_Word]) -> Mapping[int, float]:
        bound = sum(word.value for word in words) * (K1 + 1)
        for at, word in enumerate(words):
            if self._is_settled(words[at:], bound):
                return self._refined(words[at:], bound)
            self._add(word)
            bound -= word.value * (K1 + 1)
        return self._scores

    def _is_settled(self, rest: Sequence[_Word], bound: float) -> bool:
        """Whether nobody who has none of the words so far can come among the best any more; or
        whether looking for such would take too long."""
        postings = sum(word.df for word in rest)
        if postings < _WORTH_A_LOOK or len(self._scores) < self._most:
            return self._budget <= 0
        if rest[0].df > self._budget:
            return True
        if rest[0].df < len(self._scores):
            # Quicker read than asked about.
            return False
        return nlargest(self._most, self._scores.values())[-1] > bound

    def _add(self, word: _Word) -> None:
        """The newest blocks first, as far as the budget goes."""
        scores, value, of = self._scores, word.value, self._ratios
        for block, data in reversed(word.packed):
            if self._budget <= 0:
                return
            base, lengths = block << OFFSET_BITS, self._lengths[block]
            packed = unpacked(data)
            self._budget -= len(packed)
            for each in packed:
                offset = each >> _TF_BITS
                scores[base + offset] += value * of[each & TF_MASK][lengths[offset]]

    def _refined(self, rest: Sequence[_Word], bound: float) -> Mapping[int, float]:
        """The rest of the words, for those only that can still come among the best by them."""
        scores = self._scores
        good = nlargest(_CANDIDATES, zip(scores.values(), scores, strict=True))
        least = good[min(self._most, len(good)) - 1][0] - bound
        places: defaultdict[int, list[int]] = defaultdict(list)
        for score, number in good:
            if score >= least:
                places[number >> OFFSET_BITS].append(number)
        for word in rest:
            for block, data in word.packed:
                if block in places:
                    self._look_up(places[block], block, data, word.value)
        return {n: scores[n] for numbers in places.values() for n in numbers}

    def _look_up(self, numbers: Sequence[int], block: int, data: bytes, value: float) -> None:
        packed, base, lengths = unpacked(data), block << OFFSET_BITS, self._lengths[block]
        end = len(packed)
        for number in numbers:
            offset = number - base
            at = bisect_left(packed, offset << _TF_BITS)
            if at < end and packed[at] >> _TF_BITS == offset:
                self._scores[number] += value * self._ratios[packed[at] & TF_MASK][lengths[offset]]
