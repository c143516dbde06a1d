"""How much of a long proof the gate runs: a sample, or all of it with SHIFTBOSS_THOROUGH=1."""

from __future__ import annotations

import os

import pytest

THOROUGH = os.environ.get("SHIFTBOSS_THOROUGH") == "1"


def sampled(all_cases: int, sample: int) -> int:
    return all_cases if THOROUGH else sample


thorough_only = pytest.mark.skipif(
    not THOROUGH, reason="a long proof: SHIFTBOSS_THOROUGH=1 runs it"
)
"""Of what is proven in the gate as well, in a shorter way."""
