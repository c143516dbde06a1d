"""Admission: its features have the values that they are defined to have."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.memory.writing.drawing.admission import (
    RULES,
    Features,
    Preset,
    admits,
    features,
    grounded,
)
from bot.engine.memory.writing.drawing.facts import Fact
from storage.records.memory.entries import Category
from tests.bot.engine.memory.writing.world import MINE, remembering
from tests.engine_world import BOSS, START

TEXT = "drinks green tea every morning"


def fact(text: str = TEXT, category: Category = Category.EVENTS) -> Fact:
    return Fact(
        scope=MINE,
        category=category,
        key="",
        text=text,
        detail="",
        keywords=(),
        confidence=0.9,
        by_user=True,
        cells=(),
        person=BOSS.id,
        dynamic=False,
        valid_until=None,
    )


def test_what_was_said_word_for_word_is_wholly_grounded() -> None:
    assert grounded(TEXT, TEXT) == pytest.approx(1.0)
    assert grounded("喝绿茶", "喝绿茶") == pytest.approx(1.0)
    assert grounded("", TEXT) == 0.0
    assert grounded("rides horses", TEXT) == 0.0


def test_half_of_the_words_count_half() -> None:
    # Two of four words in common, the longest common run is of two: best = .5, coverage = .5.
    assert grounded("drinks green x y", "drinks green a b") == pytest.approx(
        0.7 * 0.5 + 0.3 * 0.5 - 0.25 * 0.5
    )


def test_a_first_event_scores_as_it_is_defined_to() -> None:
    scored = Features(utility=0.5, confidence=0.6, novelty=1.0, recency=1.0, prior=0.45)

    assert scored.score(RULES[Preset.BALANCED].weights) == pytest.approx(0.58)


@pytest.mark.parametrize("preset", list(RULES))
def test_weights_add_up(preset: Preset) -> None:
    weights = RULES[preset].weights
    total = weights.utility + weights.confidence + weights.novelty + weights.recency + weights.prior

    assert total == pytest.approx(1.0)


async def test_what_was_stored_lately_and_says_the_same_is_less_new(tmp_path: Path) -> None:
    async with remembering(tmp_path) as memory:
        cell = await memory.say(TEXT, "")
        assert cell is not None
        found = features(
            RULES[Preset.BALANCED], fact(), [cell], TEXT, cell.said_at + timedelta(days=14)
        )

    assert found.novelty == pytest.approx(0.0)
    assert found.recency == pytest.approx(0.5)


def test_what_was_never_said_is_not_admitted_where_it_is_chosen() -> None:
    made_up = fact("rides wild horses in winter")

    assert admits(Preset.OFF, made_up, [], TEXT, START)
    assert not admits(Preset.CONSERVATIVE, made_up, [], TEXT, START)
    assert admits(Preset.CONSERVATIVE, fact(category=Category.PROFILE), [], TEXT, START)
