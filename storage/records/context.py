"""What a worker is told first, as people are shown it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PartState(StrEnum):
    """LOADED whole; CUT to its head and tail; MISSING; KEPT_BACK from this chat; CROWDED out by
    what stands before it; UNUSABLE: no readable text."""

    LOADED = "loaded"
    CUT = "cut"
    MISSING = "missing"
    KEPT_BACK = "kept_back"
    CROWDED = "crowded"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPart:
    """One file or block. `size` is its characters, or bytes where it was not read whole; `used`
    those that a worker is told."""

    name: str
    state: PartState
    size: int = 0
    used: int = 0
