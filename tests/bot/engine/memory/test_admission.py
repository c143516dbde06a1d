"""Admission: its features have the values that they are defined to have."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.memory.admission import (
    PRESET_RULES,
    AdmissionFeatures,
    AdmissionPreset,
    compute_features,
    grounding_score,
    judge_admission,
)
from bot.engine.memory.extraction import ExtractedFact, MemoryFact
from bot.engine.memory.fact_matching import FactComparison
from bot.engine.memory.ingestion import TURNS_PER_EXTRACTION
from cards.views.memory import entry_data
from storage.records.memory import MemoryCategory, MemoryKind, MemoryState
from tests.bot.engine.memory.writing_builders import (
    BY_BOSS,
    MY_SCOPE,
    build_writing,
    extracted_fact,
    extraction_of,
)
from tests.engine_harness import BOSS, START

TEXT = "drinks green tea every morning"


def fact(text: str = TEXT, category: MemoryCategory = MemoryCategory.EVENTS) -> MemoryFact:
    return MemoryFact(
        scope=MY_SCOPE,
        category=category,
        key="",
        text=text,
        detail="",
        keywords=(),
        confidence=0.9,
        stated_by_user=True,
        cells=(),
        person=BOSS.id,
        dynamic=False,
        valid_until=None,
    )


def test_what_was_said_word_for_word_is_wholly_grounded() -> None:
    assert grounding_score(TEXT, TEXT) == pytest.approx(1.0)
    assert grounding_score("喝绿茶", "喝绿茶") == pytest.approx(1.0)
    assert grounding_score("", TEXT) == 0.0
    assert grounding_score("rides horses", TEXT) == 0.0


def test_half_of_the_words_count_half() -> None:
    # Two of four words in common, the longest common run is of two: best = .5, coverage = .5.
    assert grounding_score("drinks green x y", "drinks green a b") == pytest.approx(
        0.7 * 0.5 + 0.3 * 0.5 - 0.25 * 0.5
    )


def test_a_first_event_scores_as_it_is_defined_to() -> None:
    scored = AdmissionFeatures(utility=0.5, confidence=0.6, novelty=1.0, recency=1.0, prior=0.45)

    assert scored.score(PRESET_RULES[AdmissionPreset.BALANCED].weights) == pytest.approx(0.58)


@pytest.mark.parametrize("preset", list(PRESET_RULES))
def test_weights_add_up(preset: AdmissionPreset) -> None:
    weights = PRESET_RULES[preset].weights
    total = weights.utility + weights.confidence + weights.novelty + weights.recency + weights.prior

    assert total == pytest.approx(1.0)


async def test_what_was_stored_lately_and_says_the_same_is_less_new(tmp_path: Path) -> None:
    async with build_writing(tmp_path) as memory:
        cell = await memory.record_turn(TEXT, "")
        assert cell is not None
        case = FactComparison(fact=fact(), matches=[cell])
        later = cell.said_at + timedelta(days=14)
        found = compute_features(PRESET_RULES[AdmissionPreset.BALANCED], case, TEXT, later)

    assert found.novelty == pytest.approx(0.0)
    assert found.recency == pytest.approx(0.5)


def admits(preset: AdmissionPreset, of: MemoryFact) -> bool:
    judgement = judge_admission(preset, FactComparison(fact=of, matches=()), TEXT, START)
    return judgement is None or judgement.admitted


def test_what_was_never_said_is_not_admitted_where_it_is_chosen() -> None:
    made_up = fact("rides wild horses in winter")

    assert admits(AdmissionPreset.OFF, made_up)
    assert not admits(AdmissionPreset.CONSERVATIVE, made_up)
    assert admits(AdmissionPreset.CONSERVATIVE, fact(category=MemoryCategory.PROFILE))


@pytest.mark.parametrize(("utility", "admitted"), [(0.25, False), (0.26, True), (0.5, True)])
def test_of_no_use_outweighs_all_else(utility: float, admitted: bool) -> None:
    useless = replace(fact(category=MemoryCategory.PROFILE), utility=utility)
    judgement = judge_admission(
        AdmissionPreset.BALANCED, FactComparison(fact=useless, matches=()), TEXT, START
    )

    assert judgement is not None
    assert judgement.admitted is admitted
    assert judgement.reason == ("" if admitted else "utility")


@pytest.mark.parametrize("guess", [None, "much", 7, -1, float("nan"), [], {}])
def test_a_use_that_is_no_figure_says_nothing(guess: object) -> None:
    told = {"category": "events", "text": "x", "confidence": 1, "turns": [1], "utility": guess}

    assert ExtractedFact.model_validate(told).utility == 0.5


async def test_what_is_refused_is_seen_by_people_and_by_no_model(tmp_path: Path) -> None:
    async with build_writing(tmp_path, admission=AdmissionPreset.BALANCED) as memory:
        for number in range(TURNS_PER_EXTRACTION):
            await memory.record_turn(f"I drink green tea and hum on the stairs, {number}", "Nice.")
        memory.model.answers = [
            extraction_of(
                extracted_fact("Drinks green tea", topic="tea", utility=0.8),
                extracted_fact("Hums hunter2 on the stairs", category="events", utility=0.1),
            )
        ]
        await memory.run_jobs()

        [kept] = await memory.list_entries(MemoryKind.FACT, MemoryKind.PROFILE)
        [refused] = await memory.list_entries(states=(MemoryState.REJECTED,))
        told = entry_data(kept)["admission"], entry_data(refused)["admission"]
        assert [(each["admitted"], each["why"]) for each in told] == [
            (True, ""),
            (False, "utility"),
        ]
        assert told[0]["features"]["utility"] == 0.8
        assert refused.text == "Hums •••• on the stairs"
        assert not any("Hums" in text for text in await memory.search("hums stairs"))
        figures = await memory.quality.totals(today=memory.world.clock().date())
        assert (figures.facts, figures.filtered, figures.refused, figures.suspicious) == (
            2,
            1,
            1,
            0,
        )


async def test_what_is_refused_again_is_there_once_and_goes_with_its_turn(tmp_path: Path) -> None:
    async with build_writing(tmp_path, admission=AdmissionPreset.BALANCED) as memory:
        for mark in range(2):
            for number in range(TURNS_PER_EXTRACTION):
                await memory.record_turn(f"Hums on the stairs {mark}.{number}", "Nice.")
            humming = extracted_fact("Hums on the stairs", category="events", utility=0.0)
            memory.model.answers = [extraction_of(humming)]
            await memory.run_jobs()
        [refused] = await memory.list_entries(states=(MemoryState.REJECTED,))
        [turn, *_] = await memory.list_entries(MemoryKind.CELL)

        await memory.writer.forget(turn, BY_BOSS)

        assert refused.evidence == ("turn:inbox:Hums on the stairs 0.0",)
        assert await memory.list_entries(states=(MemoryState.REJECTED,)) == []


async def test_what_was_refused_is_kept_for_two_weeks(tmp_path: Path) -> None:
    async with build_writing(tmp_path, admission=AdmissionPreset.BALANCED) as memory:
        for days, text in ((0, "Hums on the stairs"), (15, "Whistles on the roof")):
            memory.world.clock.advance(hours=24 * days)
            for number in range(TURNS_PER_EXTRACTION):
                await memory.record_turn(f"{text} {number}", "Nice.")
            memory.model.answers = [
                extraction_of(extracted_fact(text, category="events", utility=0.0))
            ]
            await memory.run_jobs()

        [refused] = await memory.list_entries(states=(MemoryState.REJECTED,))
        assert refused.text == "Whistles on the roof"


async def test_what_was_refused_counts_once_somebody_writes_it(tmp_path: Path) -> None:
    async with build_writing(tmp_path, admission=AdmissionPreset.BALANCED) as memory:
        for number in range(TURNS_PER_EXTRACTION):
            await memory.record_turn(f"Hums on the stairs {number}", "Nice.")
        humming = extracted_fact("Hums on the stairs", category="events", utility=0.0)
        memory.model.answers = [extraction_of(humming)]
        await memory.run_jobs()
        [refused] = await memory.list_entries(states=(MemoryState.REJECTED,))

        await memory.writer.edit(refused, "Hums on all stairs", BY_BOSS)

        [kept] = await memory.list_entries(MemoryKind.FACT)
        assert (kept.text, dict(kept.extra)) == ("Hums on all stairs", {})
        assert await memory.search("hums") != []
