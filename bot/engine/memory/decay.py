"""Memory decay by Ebbinghaus' forgetting curve, reinforcement by use, and tiers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from math import exp

from storage.records.memory import (
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryState,
    MemoryStrength,
    MemoryTier,
)

FULL_STRENGTH = 100.0
ARCHIVE_BELOW = 10.0
DELETE_BELOW = 5.0
MAX_STABILITY_HOURS = 8760.0
"""Upper limit of stability: one year."""
MIN_DECAY_RATE = 0.5

_USES_TO_RISE = 3
"""Uses that qualify an entry for a higher tier."""
_DEMOTION_AGE = timedelta(days=60)
_RISES_FROM = 0.4
_FALLS_BELOW = 0.15

_HIGH_CONFIDENCE = 0.8
_FREQUENT_REINFORCEMENT = 5


class ReinforcementKind(StrEnum):
    """Events that reinforce or weaken an entry. Being found does not count, only use."""

    USED = "used"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def stability_factor(self) -> float:
        """Factor applied to the entry's stability."""
        return _STABILITY_FACTORS[self]


_STABILITY_FACTORS = {
    ReinforcementKind.USED: 1.2,
    ReinforcementKind.SUCCEEDED: 2.0,
    ReinforcementKind.FAILED: 0.8,
}


class DecayOutcome(StrEnum):
    """Action due for an unused entry."""

    ACTIVE = "lives"
    ARCHIVED = "archived"
    DELETED = "deleted"


def retention(alive: MemoryStrength, since: datetime, now: datetime) -> float:
    """Ebbinghaus: remaining strength, out of 100."""
    hours = max(0.0, (now - since).total_seconds() / 3600)
    return alive.value * exp(-hours * alive.decay / max(alive.stability, 1e-6))


def current_strength(entry: MemoryEntry, now: datetime) -> float:
    """Remaining strength out of 100; always full for entries that do not decay."""
    if not can_decay(entry):
        return FULL_STRENGTH
    alive = entry.strength
    kept = replace(
        alive,
        stability=max(alive.stability, base_stability_hours(entry.confidence, entry.used)),
        decay=min(alive.decay, decay_rate(entry.confidence, alive.reinforced, entry.category)),
    )
    return retention(kept, alive.reinforced_at or entry.created_at, now)


def can_decay(entry: MemoryEntry) -> bool:
    """True for automatically extracted facts; only these decay."""
    return (
        entry.kind is MemoryKind.FACT
        and entry.tier is not MemoryTier.CORE
        and not entry.is_protected
    )


def base_stability_hours(confidence: float, used: int) -> float:
    """Initial stability of a fact: it outlasts a weekend."""
    return 72 + 96 * confidence + min(2.0 * used, 24.0)


def decay_rate(confidence: float, reinforced: int, category: MemoryCategory) -> float:
    """Relative decay rate: lower for confident, often used and warning entries."""
    rate = 1.0
    if confidence >= _HIGH_CONFIDENCE:
        rate *= 0.7
    if reinforced >= _FREQUENT_REINFORCEMENT:
        rate *= 0.8
    if category is MemoryCategory.PITFALLS:
        rate *= 0.9
    return max(MIN_DECAY_RATE, rate)


def reinforce(entry: MemoryEntry, kind: ReinforcementKind, now: datetime) -> MemoryStrength:
    """Strength after the event, with decay restarting now."""
    alive = entry.strength
    times = alive.reinforced + 1
    return replace(
        alive,
        value=FULL_STRENGTH,
        stability=min(MAX_STABILITY_HOURS, alive.stability * kind.stability_factor),
        decay=decay_rate(entry.confidence, times, entry.category),
        reinforced=times,
        reinforced_at=now,
    )


def decay_outcome(entry: MemoryEntry, now: datetime) -> DecayOutcome:
    """Entries are archived before they are deleted."""
    strong = current_strength(entry, now)
    if strong >= ARCHIVE_BELOW:
        return DecayOutcome.ACTIVE
    if entry.state is MemoryState.ARCHIVED:
        return DecayOutcome.DELETED if strong < DELETE_BELOW else DecayOutcome.ACTIVE
    return DecayOutcome.ARCHIVED


def target_tier(entry: MemoryEntry, now: datetime) -> MemoryTier:
    """Tier by use and age. Use alone never leads to the core tier; promotion does."""
    composite = decay_components(entry, now).composite
    seldom, is_old = entry.used < _USES_TO_RISE, now - entry.said_at > _DEMOTION_AGE
    match entry.tier:
        case MemoryTier.PERIPHERAL:
            rises = not seldom and composite >= _RISES_FROM
            return MemoryTier.WORKING if rises else MemoryTier.PERIPHERAL
        case MemoryTier.WORKING:
            falls = composite < _FALLS_BELOW or (is_old and seldom)
            return MemoryTier.PERIPHERAL if falls else MemoryTier.WORKING
        case MemoryTier.CORE:
            return MemoryTier.WORKING if composite < _FALLS_BELOW and seldom else MemoryTier.CORE


_DAY_SECONDS = 86_400.0
_BASE_HALF_LIFE = 30.0
_DYNAMIC_HALF_LIFE = 10.0
_MIN_BOOST = 0.3
_WEIBULL_BETAS = {MemoryTier.CORE: 0.8, MemoryTier.WORKING: 1.0, MemoryTier.PERIPHERAL: 1.3}
_TIER_FLOORS = {MemoryTier.CORE: 0.9, MemoryTier.WORKING: 0.7, MemoryTier.PERIPHERAL: 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayComponents:
    """Normalised age and use, each from 0 to 1; `composite` is their weighted sum."""

    recency: float
    frequency: float
    intrinsic: float

    @property
    def composite(self) -> float:
        return 0.4 * self.recency + 0.3 * self.frequency + 0.3 * self.intrinsic


def decay_components(entry: MemoryEntry, now: datetime) -> DecayComponents:
    return DecayComponents(
        recency=recency_score(
            _days_between(
                entry.last_used_at if entry.used and entry.last_used_at else entry.said_at, now
            ),
            importance=entry.importance,
            tier=entry.tier,
            dynamic=entry.dynamic,
        ),
        frequency=frequency_score(
            entry.used, _days_between(entry.said_at, entry.last_used_at or entry.said_at)
        ),
        intrinsic=entry.importance * entry.confidence,
    )


def half_life_days(importance: float, *, dynamic: bool) -> float:
    return (_DYNAMIC_HALF_LIFE if dynamic else _BASE_HALF_LIFE) * math.exp(1.5 * importance)


def recency_score(days: float, *, importance: float, tier: MemoryTier, dynamic: bool) -> float:
    """Weibull decay; the tier sets whether age matters less or more over time."""
    rate = math.log(2) / half_life_days(importance, dynamic=dynamic)
    return math.exp(-rate * max(0.0, days) ** _WEIBULL_BETAS[tier])


def frequency_score(used: int, days: float) -> float:
    """`days` span first to last use: frequent use in a short time scores higher."""
    base = 1 - math.exp(-used / 5)
    if used <= 1:
        return base
    gap = max(1.0, days) / (used - 1)
    return base * (0.5 + 0.5 * math.exp(-gap / 30))


def decay_boost(components: DecayComponents, tier: MemoryTier) -> float:
    """Factor for a search score: reorders close matches, hides none."""
    best = max(_TIER_FLOORS[tier], components.composite, components.recency)
    return min(1.0, max(_MIN_BOOST, _MIN_BOOST + (1 - _MIN_BOOST) * best))


def _days_between(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds() / _DAY_SECONDS)
