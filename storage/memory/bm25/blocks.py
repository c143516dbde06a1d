"""Postings packed by the block: which of 2,048 neighbouring entries have a word, and how often."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping
from functools import lru_cache
from math import log2

OFFSET_BITS = 11
SIZE = 1 << OFFSET_BITS
_TF_BITS = 5
TF_MASK = (1 << _TF_BITS) - 1
_STEPS = 4
_LENGTH_STEPS = 16
_MOST_LENGTH = 255
K1 = 1.2
B = 0.4


def place_of(number: int) -> tuple[int, int]:
    """The block of an entry, and where in it."""
    return number >> OFFSET_BITS, number & (SIZE - 1)


def unpacked(data: bytes) -> array[int]:
    """One number for each posting, `offset << 5 | times`, in order; `times` counts quarters."""
    packed = array("H")
    packed.frombytes(data)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed


def posting(offset: int, times: float) -> int:
    """See `unpacked`. Whoever has a word has it a quarter of a time at least."""
    steps = int(times * _STEPS + 0.5)
    # Some hundred for each entry that is stored: quicker asked than calculated.
    if steps < 1:
        steps = 1
    elif steps > TF_MASK:
        steps = TF_MASK
    return offset << _TF_BITS | steps


def merged(data: bytes, new: array[int]) -> bytes:
    """With these postings, which are in order, instead of those at the same offsets."""
    if not data or int.from_bytes(data[-2:], "little") >> _TF_BITS < new[0] >> _TF_BITS:
        return data + _bytes(new)
    counts = {each >> _TF_BITS: each & TF_MASK for each in unpacked(data)}
    return _packed(counts | {each >> _TF_BITS: each & TF_MASK for each in new})


def shifted(data: bytes, offset: int, times: float) -> bytes:
    """With the word so many times more at this offset, or less. Empty when nobody has it."""
    counts = {each >> _TF_BITS: each & TF_MASK for each in unpacked(data)}
    counts[offset] = min(counts.get(offset, 0) + round(times * _STEPS), TF_MASK)
    return _packed(counts)


def without(data: bytes, offsets: frozenset[int]) -> bytes:
    held = unpacked(data)
    kept = array("H", [each for each in held if each >> _TF_BITS not in offsets])
    return data if len(kept) == len(held) else _bytes(kept)


def length_code(length: float) -> int:
    """A length in one byte, some 4 % exact. 0 is for what is not indexed."""
    return max(1, min(_MOST_LENGTH, round(_LENGTH_STEPS * log2(1 + max(0.0, length)))))


def length_of(code: int) -> float:
    return float(2 ** (code / _LENGTH_STEPS) - 1) if code else 0.0


def ratios(average: float) -> list[list[float]]:
    """What a word counts, out of its most: by how often it is there, then by the length code."""
    return _ratios(length_code(average))


@lru_cache(maxsize=64)
def _ratios(average: int) -> list[list[float]]:
    mean = max(length_of(average), 1.0)
    norms = [K1 * (1 - B + B * length_of(code) / mean) for code in range(_MOST_LENGTH + 1)]
    return [
        [(step / _STEPS) * (K1 + 1) / (step / _STEPS + norm) for norm in norms]
        for step in range(TF_MASK + 1)
    ]


def _packed(counts: Mapping[int, int]) -> bytes:
    ordered = sorted(counts.items())
    return _bytes(array("H", [at << _TF_BITS | steps for at, steps in ordered if steps > 0]))


def _bytes(packed: array[int]) -> bytes:
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
