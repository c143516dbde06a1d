"""Defines what a memory rests on, and whom or what memories are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from storage.records.memory import MemoryEntry


class GroundingDoubt(StrEnum):
    """Why a fact is not believed. UNSAID facts share nothing with what was said."""

    UNSAID = "unsaid"
    WORDS = "words"
    NUMBERS = "numbers"
    NAMES = "names"
    OPPOSITE = "opposite"
    UNREAL = "unreal"
    OF_ANOTHER = "of_another"


QUOTE_KEY, DOUBT_KEY = "quote", "doubt"
"""Keys in a fact's `extra`: the sentence that it rests on, and why it is not believed."""


ENDING_PREFIX = "ended "
"""Begins the source of an entry that says only that something is no longer so."""


def is_ending(entry: MemoryEntry) -> bool:
    return (entry.source or "").startswith(ENDING_PREFIX)


def doubt_of(entry: MemoryEntry) -> GroundingDoubt | None:
    named = entry.extra.get(DOUBT_KEY)
    known = {each.value: each for each in GroundingDoubt}
    return known.get(named) if isinstance(named, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityEntries:
    """Facts about one of those with a name; `description` tells them apart, and is empty
    for the only one and for what does not say whom it is about."""

    description: str
    entries: Sequence[MemoryEntry]
