"""Forgetting follows its law: figures by hand, and what holds for all of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import exp
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.memory.decay import (
    MAX_STABILITY_HOURS,
    DecayOutcome,
    ReinforcementKind,
    base_stability_hours,
    current_strength,
    decay_outcome,
    decay_rate,
    reinforce,
    retention,
    target_tier,
)
from storage.records.memory import (
    MemoryCategory,
    MemoryKind,
    MemoryOrigin,
    MemoryState,
    MemoryStrength,
    MemoryTier,
)
from tests.bot.engine.memory.entry_builders import NOW, build_entry

HOURS = st.floats(min_value=0, max_value=20_000)


@pytest.mark.parametrize(
    ("hours", "rest"), [(0, 100), (24, 36.79), (48, 13.53), (56, 9.70), (72, 4.98)]
)
def test_strength_falls_from_a_day_of_stability_as_the_law_says(hours: float, rest: float) -> None:
    assert retention(MemoryStrength(), NOW - timedelta(hours=hours), NOW) == pytest.approx(
        rest, abs=0.005
    )


def test_a_week_of_stability_lasts_seven_times_as_long() -> None:
    week = timedelta(days=7)

    assert retention(MemoryStrength(stability=168), NOW - week, NOW) == pytest.approx(100 * exp(-1))


def test_a_fact_lasts_longer_from_the_start_the_surer_it_is() -> None:
    sure, unsure = build_entry(hours=300, confidence=0.9), build_entry(hours=300, confidence=0.5)

    assert base_stability_hours(0.7, 0) == pytest.approx(139.2)
    assert base_stability_hours(0.7, 50) == pytest.approx(163.2)
    assert current_strength(sure, NOW) == pytest.approx(100 * exp(-300 * 0.7 / 158.4))
    assert current_strength(unsure, NOW) == pytest.approx(100 * exp(-300 / 120))


@pytest.mark.parametrize("kind", [each for each in MemoryKind if each is not MemoryKind.FACT])
def test_only_facts_fade_and_none_that_a_gate_let_into_the_core(kind: MemoryKind) -> None:
    assert current_strength(build_entry(days=4000, kind=kind), NOW) == 100
    assert current_strength(build_entry(days=4000, tier=MemoryTier.CORE), NOW) == 100
    assert current_strength(build_entry(days=4000), NOW) < 1


@pytest.mark.parametrize(
    ("by", "stability"),
    [
        (ReinforcementKind.USED, 28.8),
        (ReinforcementKind.SUCCEEDED, 48),
        (ReinforcementKind.FAILED, 19.2),
    ],
)
def test_reinforcement_starts_the_clock_anew_and_changes_how_long_it_runs(
    by: ReinforcementKind, stability: float
) -> None:
    anew = reinforce(build_entry(hours=40), by, NOW)

    assert anew.value == 100
    assert anew.stability == pytest.approx(stability)
    assert anew.reinforced_at == NOW
    assert anew.reinforced == 1


@pytest.mark.parametrize(
    ("confidence", "times", "category", "rate"),
    [
        (0.7, 0, MemoryCategory.ENTITIES, 1.0),
        (0.8, 0, MemoryCategory.ENTITIES, 0.7),
        (0.7, 5, MemoryCategory.ENTITIES, 0.8),
        (0.7, 0, MemoryCategory.PITFALLS, 0.9),
        (0.8, 5, MemoryCategory.ENTITIES, 0.56),
        (0.8, 5, MemoryCategory.PITFALLS, 0.504),
    ],
)
def test_what_is_sure_often_used_or_a_warning_is_forgotten_more_slowly(
    confidence: float, times: int, category: MemoryCategory, rate: float
) -> None:
    assert decay_rate(confidence, times, category) == pytest.approx(rate)


@given(st.floats(0, 1), st.integers(0, 1000), st.sampled_from(MemoryCategory))
def test_nothing_is_forgotten_at_less_than_half_the_pace(
    confidence: float, times: int, category: MemoryCategory
) -> None:
    assert 0.5 <= decay_rate(confidence, times, category) <= 1


@given(HOURS, HOURS)
def test_strength_never_grows_by_waiting(one: float, more: float) -> None:
    earlier, later = build_entry(hours=one), build_entry(hours=one + more)

    assert 0 <= current_strength(later, NOW) <= current_strength(earlier, NOW) <= 100


@given(st.lists(st.sampled_from(ReinforcementKind), max_size=60))
def test_no_reinforcement_lasts_beyond_a_year(several: list[ReinforcementKind]) -> None:
    kept = build_entry()
    for each in several:
        kept = replace(kept, strength=reinforce(kept, each, NOW))

    assert kept.strength.stability <= MAX_STABILITY_HOURS


def test_what_fades_is_archived_first_and_deleted_only_from_there() -> None:
    weak, gone = build_entry(hours=330), build_entry(hours=430)

    assert decay_outcome(build_entry(hours=310), NOW) is DecayOutcome.ACTIVE
    assert decay_outcome(weak, NOW) is DecayOutcome.ARCHIVED
    assert decay_outcome(gone, NOW) is DecayOutcome.ARCHIVED
    assert decay_outcome(replace(weak, state=MemoryState.ARCHIVED), NOW) is DecayOutcome.ACTIVE
    assert decay_outcome(replace(gone, state=MemoryState.ARCHIVED), NOW) is DecayOutcome.DELETED


@given(HOURS, st.sampled_from([MemoryState.ACTIVE, MemoryState.ARCHIVED]))
def test_what_a_person_wrote_or_pinned_never_goes(hours: float, state: MemoryState) -> None:
    assert (
        decay_outcome(build_entry(hours=hours, state=state, pinned=True), NOW)
        is DecayOutcome.ACTIVE
    )
    assert (
        decay_outcome(build_entry(hours=hours, state=state, origin=MemoryOrigin.MANUAL), NOW)
        is DecayOutcome.ACTIVE
    )


@pytest.mark.parametrize(
    ("tier", "days", "changes", "becomes"),
    [
        (MemoryTier.PERIPHERAL, 10, {"used": 3}, MemoryTier.WORKING),
        (MemoryTier.PERIPHERAL, 10, {"used": 2}, MemoryTier.PERIPHERAL),
        (MemoryTier.WORKING, 61, {"used": 2}, MemoryTier.PERIPHERAL),
        (MemoryTier.WORKING, 61, {"used": 3}, MemoryTier.WORKING),
        (MemoryTier.WORKING, 300, {"used": 3, "importance": 0.1}, MemoryTier.WORKING),
        (
            MemoryTier.WORKING,
            10,
            {"used": 99, "importance": 0.9, "confidence": 1.0},
            MemoryTier.WORKING,
        ),
        (MemoryTier.CORE, 5000, {"importance": 0.1}, MemoryTier.WORKING),
        (MemoryTier.CORE, 5000, {"importance": 0.9}, MemoryTier.CORE),
    ],
)
def test_use_and_age_move_an_entry_between_tiers_but_never_into_the_core(
    tier: MemoryTier, days: float, changes: dict[str, Any], becomes: MemoryTier
) -> None:
    if changes.get("used"):
        changes = changes | {"last_used_at": NOW - timedelta(days=1)}

    assert target_tier(build_entry(days=days, tier=tier, **changes), NOW) is becomes


def test_a_clock_that_was_set_back_makes_nothing_stronger() -> None:
    assert current_strength(build_entry(), NOW - timedelta(days=3)) == 100
