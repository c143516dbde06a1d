"""The laws of ranking give their reference figures, and keep what they promise for all others."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.memory.decay import (
    decay_boost,
    decay_components,
    frequency_score,
    half_life_days,
    recency_score,
)
from bot.engine.memory.retriever import (
    blend_rerank_scores,
    defer_near_duplicates,
    lexical_score,
    min_max_normalise,
    reciprocal_rank_fusion,
    vector_score,
    weighted_score_fusion,
)
from bot.engine.memory.similarity import jaccard
from storage.records.memory import MemoryTier
from tests.bot.engine.memory.entry_builders import NOW, build_entry

UNIT = st.floats(0, 1)
RANKED = st.lists(st.integers(0, 30), unique=True, max_size=20)


@pytest.mark.parametrize(
    ("cosine", "score"),
    [
        (1, 1.0),
        (0.9, 0.909),
        (0.85, 0.870),
        (0.7, 0.769),
        (0.571, 0.70),
        (0.5, 0.667),
        (0, 0.5),
        (-1, 0.333),
    ],
)
def test_cosines_become_scores(cosine: float, score: float) -> None:
    assert vector_score(cosine) == pytest.approx(score, abs=0.0005)


@pytest.mark.parametrize(("raw", "score"), [(5.493, 0.75), (2.03, 0.6), (0, 0.5), (-3, 0.5)])
def test_raw_bm25_becomes_a_score(raw: float, score: float) -> None:
    assert lexical_score(raw) == pytest.approx(score, abs=0.0005)


@pytest.mark.parametrize(
    ("days", "tier", "dynamic", "recent", "boosted"),
    [
        (0, MemoryTier.WORKING, False, 1.0, 1.0),
        (30, MemoryTier.WORKING, False, 0.7846, 0.8492),
        (85.73, MemoryTier.WORKING, False, 0.5, 0.79),
        (30, MemoryTier.WORKING, True, 0.4830, 0.79),
        (30, MemoryTier.PERIPHERAL, False, 0.5102, 0.6572),
    ],
)
def test_age_counts_as_in_the_reference(
    days: float, tier: MemoryTier, dynamic: bool, recent: float, boosted: float
) -> None:
    worn = decay_components(build_entry(days=days, tier=tier, dynamic=dynamic), NOW)

    assert worn.recency == pytest.approx(recent, abs=0.0005)
    assert decay_boost(worn, tier) == pytest.approx(boosted, abs=0.0005)


@pytest.mark.parametrize(("days", "composite"), [(0, 0.547), (30, 0.4608), (85.73, 0.347)])
def test_the_composite_is_that_of_the_reference(days: float, composite: float) -> None:
    worn = decay_components(build_entry(days=days), NOW)

    assert worn.frequency == 0
    assert worn.intrinsic == pytest.approx(0.49)
    assert worn.composite == pytest.approx(composite, abs=0.0005)


def test_half_lives_grow_with_importance() -> None:
    assert half_life_days(0.7, dynamic=False) == pytest.approx(85.73, abs=0.01)
    assert half_life_days(0.9, dynamic=False) == pytest.approx(115.7, abs=0.05)
    assert half_life_days(0, dynamic=False) == 30
    assert half_life_days(0.7, dynamic=True) == pytest.approx(28.58, abs=0.005)


def test_use_counts_more_when_it_is_close_together() -> None:
    assert frequency_score(5, 8) == pytest.approx(0.6117, abs=0.0001)
    assert frequency_score(5, 300) < frequency_score(5, 8)
    assert frequency_score(1, 8) == pytest.approx(0.1813, abs=0.0001)
    assert frequency_score(0, 0) == 0


def test_use_makes_an_old_entry_young_again() -> None:
    old = build_entry(days=90)
    used = replace(old, used=1, last_used_at=NOW - timedelta(days=1))

    assert decay_components(used, NOW).recency > 0.98
    assert decay_components(used, NOW).recency > decay_components(old, NOW).recency


@given(
    st.floats(0, 5000),
    st.sampled_from(MemoryTier),
    st.builds(dict, importance=UNIT, confidence=UNIT, dynamic=st.booleans(), used=st.integers(0)),
)
def test_age_reorders_what_is_close_and_hides_nothing(
    days: float, tier: MemoryTier, changes: dict[str, Any]
) -> None:
    worn = decay_components(build_entry(days=days, tier=tier, **changes), NOW)
    least = {MemoryTier.CORE: 0.93, MemoryTier.WORKING: 0.79, MemoryTier.PERIPHERAL: 0.65}[tier]

    assert 0 <= worn.composite <= 1
    assert least - 1e-9 <= decay_boost(worn, tier) <= 1


@given(st.floats(0, 3000), st.floats(0, 3000), st.sampled_from(MemoryTier), UNIT, st.booleans())
def test_recency_never_grows_with_age(
    days: float, more: float, tier: MemoryTier, importance: float, dynamic: bool
) -> None:
    young = recency_score(days, importance=importance, tier=tier, dynamic=dynamic)
    old = recency_score(days + more, importance=importance, tier=tier, dynamic=dynamic)

    assert 0 <= old <= young <= 1


def test_rankings_are_fused_by_rank_with_their_weights() -> None:
    fused = reciprocal_rank_fusion([(1.0, ["a", "b", "c"]), (0.4, ["c", "a"])])

    assert sorted(fused, key=fused.__getitem__, reverse=True) == ["a", "c", "b"]
    assert fused["a"] == pytest.approx((1 + 0.4 * 21 / 22) / 1.4)
    assert fused["c"] == pytest.approx((21 / 23 + 0.4) / 1.4)


@given(RANKED, RANKED)
def test_what_leads_every_ranking_leads_their_fusion(one: list[int], other: list[int]) -> None:
    fused = reciprocal_rank_fusion([(1.0, [99, *one]), (0.4, [99, *other])])

    assert max(fused, key=fused.__getitem__) == 99
    assert fused[99] == pytest.approx(1)
    assert set(fused) == {99, *one, *other}


@given(RANKED)
def test_one_ranking_alone_keeps_its_order(ranked: list[int]) -> None:
    fused = reciprocal_rank_fusion([(1.0, ranked), (0.4, [])])

    assert sorted(fused, key=fused.__getitem__, reverse=True) == ranked


def test_the_older_fusion_is_as_it_was() -> None:
    fused = weighted_score_fusion({"both": 0.9, "near": 0.0}, {"both": 8.0, "words": 5.493})

    assert fused["words"] == pytest.approx(0.75, abs=0.0005)
    assert fused["near"] == pytest.approx(0.35)
    strong = lexical_score(8.0)
    assert fused["both"] == pytest.approx(max(0.7 / 1.1 + 0.3 * strong, 0.92 * strong))


@given(
    st.dictionaries(st.integers(0, 9), st.floats(-1, 1)),
    st.dictionaries(st.integers(0, 9), st.floats(-50, 500)),
)
def test_the_older_fusion_stays_between_0_and_1(
    vectors: dict[int, float], lexical: dict[int, float]
) -> None:
    fused = weighted_score_fusion(vectors, lexical)

    assert set(fused) == {*vectors, *lexical}
    assert all(0 <= score <= 1 for score in fused.values())


def test_a_judge_is_weighed_with_what_was_found_before() -> None:
    scores = blend_rerank_scores({"up": 0.5, "down": 1.0, "unseen": 1.0}, {"up": 1.0, "down": 0.0})

    assert scores == pytest.approx({"up": 0.8, "down": 0.5, "unseen": 0.8})


@given(st.dictionaries(st.text(), st.floats(-1e6, 1e6)))
def test_normalised_scores_lie_between_0_and_1_in_the_same_order(scores: dict[str, float]) -> None:
    made = min_max_normalise(scores)

    assert all(0 <= score <= 1 for score in made.values())
    for one, score in scores.items():
        for other, lower in scores.items():
            assert not (score > lower and made[one] < made[other])


def test_words_in_common_are_counted_once() -> None:
    assert jaccard({"a", "b"}, {"b", "c"}) == pytest.approx(1 / 3)
    assert jaccard(set(), set()) == 0
    assert jaccard({"a"}, {"a"}) == 1


@given(st.lists(st.integers(0, 20)))
def test_what_is_nearly_the_same_comes_last_and_nothing_is_lost(ranked: list[int]) -> None:
    ordered = defer_near_duplicates(ranked, lambda one, other: one // 3 == other // 3)
    first = ordered[: len({each // 3 for each in ranked})]

    assert sorted(ordered) == sorted(ranked)
    assert len({each // 3 for each in first}) == len(first)
    assert ordered[:1] == ranked[:1]
