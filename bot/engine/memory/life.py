"""How long an entry lives: Ebbinghaus' law of forgetting, and what slows it down."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from math import exp

from bot.engine.memory.ranking import wear
from storage.records.memory.entries import (
    Category,
    Entry,
    EntryState,
    MemoryKind,
    Origin,
    Strength,
    Tier,
)

FULL = 100.0
ARCHIVE_BELOW = 10.0
DELETE_BELOW = 5.0
MOST_STABLE = 8760.0
"""Hours: a year."""
LEAST_DECAY = 0.5

_EARNED = 3
"""Uses by which an entry shows that it is of use."""
_OLD = timedelta(days=60)
_RISES_FROM = 0.4
_FALLS_BELOW = 0.15

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


def left(alive: Strength, since: datetime, now: datetime) -> float:
    """The law itself: what is left out of 100 since then."""
    hours = max(0.0, (now - since).total_seconds() / 3600)
    return alive.value * exp(-hours * alive.decay / max(alive.stability, 1e-6))


def strength(entry: Entry, now: datetime) -> float:
    """Out of 100: what is left of an entry since it was last reinforced; of what does not fade,
    all of it."""
    if not fades(entry):
        return FULL
    alive = entry.strength
    kept = replace(
        alive,
        stability=max(alive.stability, lasting(entry.confidence, entry.used)),
        decay=min(alive.decay, decay_rate(entry.confidence, alive.reinforced, entry.category)),
    )
    return left(kept, alive.reinforced_at or entry.created_at, now)


def fades(entry: Entry) -> bool:
    """Only facts do that the program has drawn by itself. What was said stays said; what has
    passed a gate is told every day, and nobody cites it word for word."""
    return entry.kind is MemoryKind.FACT and entry.tier is not Tier.CORE and not is_kept(entry)


def lasting(confidence: float, used: int) -> float:
    """Hours of stability that a fact has from the start: a weekend passes before it is gone."""
    return 72 + 96 * confidence + min(2.0 * used, 24.0)


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
    strong = strength(entry, now)
    if strong >= ARCHIVE_BELOW:
        return Fate.LIVES
    if entry.state is EntryState.ARCHIVED:
        return Fate.DELETED if strong < DELETE_BELOW else Fate.LIVES
    return Fate.ARCHIVED


def tier_now(entry: Entry, now: datetime) -> Tier:
    """Where use and age put an entry. To the core leads no use alone: only a gate does."""
    composite = wear(entry, now).composite
    seldom, is_old = entry.used < _EARNED, now - entry.said_at > _OLD
    match entry.tier:
        case Tier.PERIPHERAL:
            rises = not seldom and composite >= _RISES_FROM
            return Tier.WORKING if rises else Tier.PERIPHERAL
        case Tier.WORKING:
            falls = composite < _FALLS_BELOW or (is_old and seldom)
            return Tier.PERIPHERAL if falls else Tier.WORKING
        case Tier.CORE:
            return Tier.WORKING if composite < _FALLS_BELOW and seldom else Tier.CORE
