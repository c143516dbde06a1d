"""How long an entry lives: Ebbinghaus' law of forgetting, and what slows it down."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from math import exp

from storage.records.memory.entries import Category, Entry, EntryState, Origin, Strength

FULL = 100.0
ARCHIVE_BELOW = 10.0
DELETE_BELOW = 5.0
MOST_STABLE = 8760.0
"""Hours: a year."""
LEAST_DECAY = 0.5

_SURE = 0.8
_OFTEN = 5


class Reinforcement(StrEnum):
    """What happened to an entry. Being found is nothing: only use counts."""

    USED = "used"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    BY_HAND = "by-hand"
    ASSOCIATED = "associated"

    @property
    def factor(self) -> float:
        """By how much it makes the entry more stable."""
        return _FACTORS[self]


_FACTORS = {
    Reinforcement.USED: 1.2,
    Reinforcement.SUCCEEDED: 2.0,
    Reinforcement.FAILED: 0.8,
    Reinforcement.BY_HAND: 1.5,
    Reinforcement.ASSOCIATED: 1.1,
}


class Fate(StrEnum):
    """What is due to an entry that nobody has used for long."""

    LIVES = "lives"
    ARCHIVED = "archived"
    DELETED = "deleted"


def strength(entry: Entry, now: datetime) -> float:
    """Out of 100: what is left of it since it was last reinforced."""
    alive = entry.strength
    since = alive.reinforced_at or entry.created_at
    hours = max(0.0, (now - since).total_seconds() / 3600)
    return alive.value * exp(-hours * alive.decay / max(alive.stability, 1e-6))


def decay_rate(confidence: float, reinforced: int, category: Category) -> float:
    """How fast it is forgotten, next to others: less what is sure, often used, or a warning."""
    rate = 1.0
    if confidence >= _SURE:
        rate *= 0.7
    if reinforced >= _OFTEN:
        rate *= 0.8
    if category is Category.PITFALLS:
        rate *= 0.9
    return max(LEAST_DECAY, rate)


def reinforced(entry: Entry, by: Reinforcement, now: datetime) -> Strength:
    """Its strength from now on: the clock begins anew."""
    alive = entry.strength
    times = alive.reinforced + 1
    return replace(
        alive,
        value=FULL,
        stability=min(MOST_STABLE, alive.stability * by.factor),
        decay=decay_rate(entry.confidence, times, entry.category),
        reinforced=times,
        reinforced_at=now,
    )


def is_kept(entry: Entry) -> bool:
    """What a person wrote or pinned lives for as long as they want."""
    return entry.pinned or entry.origin is Origin.MANUAL


def fate(entry: Entry, now: datetime) -> Fate:
    """An entry is archived before it is deleted."""
    left = strength(entry, now)
    if is_kept(entry) or left >= ARCHIVE_BELOW:
        return Fate.LIVES
    if entry.state is EntryState.ARCHIVED:
        return Fate.DELETED if left < DELETE_BELOW else Fate.LIVES
    return Fate.ARCHIVED
