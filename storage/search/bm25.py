"""Computes BM25 over packed postings: rare words first, frequent words only where they can
matter."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nlargest
from math import log, log2
from typing import TypeAlias

OFFSET_BITS = 11
BLOCK_SIZE = 1 << OFFSET_BITS
_TF_BITS = 5
TF_MASK = (1 << _TF_BITS) - 1
_TF_STEPS = 4
_LENGTH_STEPS = 16
_MAX_LENGTH_CODE = 255
K1 = 1.2
B = 0.4


def block_position(number: int) -> tuple[int, int]:
    """An entry's block and its offset there."""
    return number >> OFFSET_BITS, number & (BLOCK_SIZE - 1)


def unpack_postings(data: bytes) -> array[int]:
    """One number per posting, `offset << 5 | count`, in order; `count` is in quarters."""
    packed = array("H")
    packed.frombytes(data)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed


def pack_posting(offset: int, times: float) -> int:
    """Encodes one posting for `unpack_postings`; the count is at least a quarter."""
    steps = int(times * _TF_STEPS + 0.5)
    # Runs hundreds of times per stored entry: comparing is faster than min and max.
    if steps < 1:
        steps = 1
    elif steps > TF_MASK:
        steps = TF_MASK
    return offset << _TF_BITS | steps


def merge_postings(data: bytes, new: array[int]) -> bytes:
    """Add postings, which must be in order, replacing those at the same offsets."""
    if not data or int.from_bytes(data[-2:], "little") >> _TF_BITS < new[0] >> _TF_BITS:
        return data + _to_bytes(new)
    counts = {each >> _TF_BITS: each & TF_MASK for each in unpack_postings(data)}
    return _pack_counts(counts | {each >> _TF_BITS: each & TF_MASK for each in new})


def adjust_posting(data: bytes, offset: int, times: float) -> bytes:
    """Change the count at this offset by `times`. Empty if no posting remains."""
    counts = {each >> _TF_BITS: each & TF_MASK for each in unpack_postings(data)}
    counts[offset] = min(counts.get(offset, 0) + round(times * _TF_STEPS), TF_MASK)
    return _pack_counts(counts)


def remove_postings(data: bytes, offsets: frozenset[int]) -> bytes:
    held = unpack_postings(data)
    kept = array("H", [each for each in held if each >> _TF_BITS not in offsets])
    return data if len(kept) == len(held) else _to_bytes(kept)


def encode_length(length: float) -> int:
    """Encode a length in one byte with about 4 % error. 0 means not indexed."""
    return max(1, min(_MAX_LENGTH_CODE, round(_LENGTH_STEPS * log2(1 + max(0.0, length)))))


def decode_length(code: int) -> float:
    return float(2 ** (code / _LENGTH_STEPS) - 1) if code else 0.0


def tf_ratios(average: float) -> list[list[float]]:
    """Term weights relative to their maximum, by count and then by length code."""
    return _cached_tf_ratios(encode_length(average))


@lru_cache(maxsize=64)
def _cached_tf_ratios(average: int) -> list[list[float]]:
    mean = max(decode_length(average), 1.0)
    norms = [K1 * (1 - B + B * decode_length(code) / mean) for code in range(_MAX_LENGTH_CODE + 1)]
    return [
        [(step / _TF_STEPS) * (K1 + 1) / (step / _TF_STEPS + norm) for norm in norms]
        for step in range(TF_MASK + 1)
    ]


def _pack_counts(counts: Mapping[int, int]) -> bytes:
    ordered = sorted(counts.items())
    return _to_bytes(array("H", [at << _TF_BITS | steps for at, steps in ordered if steps > 0]))


def _to_bytes(packed: array[int]) -> bytes:
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


_MAX_POSTINGS_READ = 16_000
"""Maximum postings read for a search in each scope."""
_MIN_POSTINGS_TO_SKIP = 2_000
"""Below this number, postings are read without checking whether they can matter."""
_CANDIDATES = 500
ADDRESSEE_WEIGHT = 0.3
"""Weight of a sender's name in a text: usually another sender wrote it."""
_POSTING_TF_BITS = TF_MASK.bit_length()

PackedPostings: TypeAlias = Sequence[tuple[int, bytes]]
"""One word's postings by block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopePostings:
    """A scope's data for a search: number of entries, their total length, the lengths in each
    block, and the postings of the query's words."""

    entries: int
    length: float
    lengths: Mapping[int, bytes]
    postings: Mapping[str, PackedPostings]


@dataclass(frozen=True, slots=True)
class _QueryTerm:
    value: float
    packed: PackedPostings
    df: int


def top_scores(scope: ScopePostings, words: Mapping[str, float], limit: int) -> Mapping[int, float]:
    """At least the `limit` best entries, if there are as many, with their scores by number."""
    return _TopScorer(scope, limit).score(_rank_terms(scope, words))


def inverse_frequency(matching: int, entries: int) -> float:
    """How telling a word is that `matching` of the entries have."""
    # The counters may lag: no more entries can match than exist.
    return log(1 + (max(entries - matching, 0) + 0.5) / (matching + 0.5))


def _rank_terms(shelf: ScopePostings, words: Mapping[str, float]) -> Sequence[_QueryTerm]:
    found = []
    for term, weight in words.items():
        packed = shelf.postings.get(term, ())
        if df := sum(len(data) for _, data in packed) // 2:
            idf = inverse_frequency(df, shelf.entries)
            said = ADDRESSEE_WEIGHT if f"@{term}" in shelf.postings else 1.0
            found.append(_QueryTerm(weight * said * idf, packed, df))
    return sorted(found, key=lambda word: word.value, reverse=True)


class _TopScorer:
    def __init__(self, shelf: ScopePostings, most: int) -> None:
        self._lengths = shelf.lengths
        self._ratios = tf_ratios(shelf.length / max(shelf.entries, 1))
        self._most = most
        self._scores: defaultdict[int, float] = defaultdict(float)
        self._budget = _MAX_POSTINGS_READ

    def score(self, words: Sequence[_QueryTerm]) -> Mapping[int, float]:
        bound = sum(word.value for word in words) * (K1 + 1)
        for at, word in enumerate(words):
            if self._can_stop(words[at:], bound):
                return self._refine(words[at:], bound)
            self._add(word)
            bound -= word.value * (K1 + 1)
        return self._scores

    def _can_stop(self, rest: Sequence[_QueryTerm], bound: float) -> bool:
        """Whether entries without any word so far can no longer be among the best, or reading on
        would exceed the budget."""
        postings = sum(word.df for word in rest)
        if postings < _MIN_POSTINGS_TO_SKIP or len(self._scores) < self._most:
            return self._budget <= 0
        if rest[0].df > self._budget:
            return True
        if rest[0].df < len(self._scores):
            # Reading is faster than checking here.
            return False
        return nlargest(self._most, self._scores.values())[-1] > bound

    def _add(self, word: _QueryTerm) -> None:
        """Reads the newest blocks first, as far as the budget allows."""
        scores, value, of = self._scores, word.value, self._ratios
        for block, data in reversed(word.packed):
            if self._budget <= 0:
                return
            base, lengths = block << OFFSET_BITS, self._lengths[block]
            packed = unpack_postings(data)
            self._budget -= len(packed)
            for each in packed:
                offset = each >> _POSTING_TF_BITS
                scores[base + offset] += value * of[each & TF_MASK][lengths[offset]]

    def _refine(self, rest: Sequence[_QueryTerm], bound: float) -> Mapping[int, float]:
        """Apply the remaining words only to entries that can still be among the best."""
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
        packed, base, lengths = unpack_postings(data), block << OFFSET_BITS, self._lengths[block]
        end = len(packed)
        for number in numbers:
            offset = number - base
            at = bisect_left(packed, offset << _POSTING_TF_BITS)
            if at < end and packed[at] >> _POSTING_TF_BITS == offset:
                self._scores[number] += value * self._ratios[packed[at] & TF_MASK][lengths[offset]]
