"""How much of a long proof the gate runs: a sample, or all of it with SHIFTBOSS_THOROUGH=1."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import TypeVar

import pytest

First = TypeVar("First")
Second = TypeVar("Second")

THOROUGH = os.environ.get("SHIFTBOSS_THOROUGH") == "1"


def sampled(all_cases: int, sample: int) -> int:
    return all_cases if THOROUGH else sample


def pairs(first: Sequence[First], second: Sequence[Second]) -> list[tuple[First, Second]]:
    """All of them, or of each of the first one, with the second by turns."""
    if THOROUGH:
        return [*product(first, second)]
    return [(each, second[n % len(second)]) for n, each in enumerate(first)]


thorough_only = pytest.mark.skipif(
    not THOROUGH, reason="a long proof: SHIFTBOSS_THOROUGH=1 runs it"
)
"""Of what is proven in the gate as well, in a shorter way."""
