"""Forgetting follows its law: figures by hand, and what holds for all of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import exp
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.memory.life import (
    MOST_STABLE,
    Fate,
    Reinforcement,
    decay_rate,
    fate,
    lasting,
    left,
    reinforced,
    strength,
    tier_now,
)
from storage.records.memory.entries import (
    Category,
    EntryState,
    MemoryKind,
    Origin,
    Strength,
    Tier,
)
from tests.bot.engine.memory.samples import NOW, entry

HOURS = st.floats(min_value=0, max_value=20_000)


@pytest.mark.parametrize(
    ("hours", "rest"), [(0, 100), (24, 36.79), (48, 13.53), (56, 9.70), (72, 4.98)]
)
def test_strength_falls_from_a_day_of_stability_as_the_law_says(hours: float, rest: float) -> None:
    assert left(Strength(), NOW - timedelta(hours=hours), NOW) == pytest.approx(rest, abs=0.005)


def test_a_week_of_stability_lasts_seven_times_as_long() -> None:
    week = timedelta(days=7)

    assert left(Strength(stability=168), NOW - week, NOW) == pytest.approx(100 * exp(-1))


def test_a_fact_lasts_longer_from_the_start_the_surer_it_is() -> None:
    sure, unsure = entry(hours=300, confidence=0.9), entry(hours=300, confidence=0.5)

    assert lasting(0.7, 0) == pytest.approx(139.2)
    assert lasting(0.7, 50) == pytest.approx(163.2)
    assert strength(sure, NOW) == pytest.approx(100 * exp(-300 * 0.7 / 158.4))
    assert strength(unsure, NOW) == pytest.approx(100 * exp(-300 / 120))


@pytest.mark.parametrize("kind", [each for each in MemoryKind if each is not MemoryKind.FACT])
def test_only_facts_fade_and_none_that_a_gate_let_into_the_core(kind: MemoryKind) -> None:
    assert strength(entry(days=4000, kind=kind), NOW) == 100
    assert strength(entry(days=4000, tier=Tier.CORE), NOW) == 100
    assert strength(entry(days=4000), NOW) < 1


@pytest.mark.parametrize(
    ("by", "stability"),
    [
        (Reinforcement.USED, 28.8),
        (Reinforcement.SUCCEEDED, 48),
        (Reinforcement.FAILED, 19.2),
        (Reinforcement.BY_HAND, 36),
        (Reinforcement.ASSOCIATED, 26.4),
    ],
)
def test_reinforcement_starts_the_clock_anew_and_changes_how_long_it_runs(
    by: Reinforcement, stability: float
) -> None:
    anew = reinforced(entry(hours=40), by, NOW)

    assert anew.value == 100
    assert anew.stability == pytest.approx(stability)
    assert anew.reinforced_at == NOW
    assert anew.reinforced == 1


@pytest.mark.parametrize(
    ("confidence", "times", "category", "rate"),
    [
        (0.7, 0, Category.ENTITIES, 1.0),
        (0.8, 0, Category.ENTITIES, 0.7),
        (0.7, 5, Category.ENTITIES, 0.8),
        (0.7, 0, Category.PITFALLS, 0.9),
        (0.8, 5, Category.ENTITIES, 0.56),
        (0.8, 5, Category.PITFALLS, 0.504),
    ],
)
def test_what_is_sure_often_used_or_a_warning_is_forgotten_more_slowly(
    confidence: float, times: int, category: Category, rate: float
) -> None:
    assert decay_rate(confidence, times, category) == pytest.approx(rate)


@given(st.floats(0, 1), st.integers(0, 1000), st.sampled_from(Category))
def test_nothing_is_forgotten_at_less_than_half_the_pace(
    confidence: float, times: int, category: Category
) -> None:
    assert 0.5 <= decay_rate(confidence, times, category) <= 1


@given(HOURS, HOURS)
def test_strength_never_grows_by_waiting(one: float, more: float) -> None:
    earlier, later = entry(hours=one), entry(hours=one + more)

    assert 0 <= strength(later, NOW) <= strength(earlier, NOW) <= 100


@given(st.lists(st.sampled_from(Reinforcement), max_size=60))
def test_no_reinforcement_lasts_beyond_a_year(several: list[Reinforcement]) -> None:
    kept = entry()
    for each in several:
        kept = replace(kept, strength=reinforced(kept, each, NOW))

    assert kept.strength.stability <= MOST_STABLE


def test_what_fades_is_archived_first_and_deleted_only_from_there() -> None:
    weak, gone = entry(hours=330), entry(hours=430)

    assert fate(entry(hours=310), NOW) is Fate.LIVES
    assert fate(weak, NOW) is Fate.ARCHIVED
    assert fate(gone, NOW) is Fate.ARCHIVED
    assert fate(replace(weak, state=EntryState.ARCHIVED), NOW) is Fate.LIVES
    assert fate(replace(gone, state=EntryState.ARCHIVED), NOW) is Fate.DELETED


@given(HOURS, st.sampled_from([EntryState.ACTIVE, EntryState.ARCHIVED]))
def test_what_a_person_wrote_or_pinned_never_goes(hours: float, state: EntryState) -> None:
    assert fate(entry(hours=hours, state=state, pinned=True), NOW) is Fate.LIVES
    assert fate(entry(hours=hours, state=state, origin=Origin.MANUAL), NOW) is Fate.LIVES


@pytest.mark.parametrize(
    ("tier", "days", "changes", "becomes"),
    [
        (Tier.PERIPHERAL, 10, {"used": 3}, Tier.WORKING),
        (Tier.PERIPHERAL, 10, {"used": 2}, Tier.PERIPHERAL),
        (Tier.WORKING, 61, {"used": 2}, Tier.PERIPHERAL),
        (Tier.WORKING, 61, {"used": 3}, Tier.WORKING),
        (Tier.WORKING, 300, {"used": 3, "importance": 0.1}, Tier.WORKING),
        (Tier.WORKING, 10, {"used": 99, "importance": 0.9, "confidence": 1.0}, Tier.WORKING),
        (Tier.CORE, 5000, {"importance": 0.1}, Tier.WORKING),
        (Tier.CORE, 5000, {"importance": 0.9}, Tier.CORE),
    ],
)
def test_use_and_age_move_an_entry_between_tiers_but_never_into_the_core(
    tier: Tier, days: float, changes: dict[str, Any], becomes: Tier
) -> None:
    if changes.get("used"):
        changes = changes | {"last_used_at": NOW - timedelta(days=1)}

    assert tier_now(entry(days=days, tier=tier, **changes), NOW) is becomes


def test_a_clock_that_was_set_back_makes_nothing_stronger() -> None:
    assert strength(entry(), NOW - timedelta(days=3)) == 100
