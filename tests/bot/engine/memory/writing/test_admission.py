"""Admission: its features have the values that they are defined to have."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.memory.writing.drawing.admission import (
    RULES,
    Features,
    Preset,
    features,
    grounded,
    judged,
)
from bot.engine.memory.writing.drawing.extraction import DrawnFact
from bot.engine.memory.writing.drawing.facts import Fact
from bot.engine.memory.writing.drawing.verdicts import Case
from bot.engine.memory.writing.recorder import ENOUGH
from cards.views.memory.data import entry_data
from storage.records.memory.entries import Category, EntryState, MemoryKind
from tests.bot.engine.memory.writing.world import BY_BOSS, MINE, drawn, notes_of, remembering
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
        case = Case(fact=fact(), matches=[cell])
        later = cell.said_at + timedelta(days=14)
        found = features(RULES[Preset.BALANCED], case, TEXT, later)

    assert found.novelty == pytest.approx(0.0)
    assert found.recency == pytest.approx(0.5)


def admits(preset: Preset, of: Fact) -> bool:
    judgement = judged(preset, Case(fact=of, matches=()), TEXT, START)
    return judgement is None or judgement.admitted


def test_what_was_never_said_is_not_admitted_where_it_is_chosen() -> None:
    made_up = fact("rides wild horses in winter")

    assert admits(Preset.OFF, made_up)
    assert not admits(Preset.CONSERVATIVE, made_up)
    assert admits(Preset.CONSERVATIVE, fact(category=Category.PROFILE))


@pytest.mark.parametrize(("utility", "admitted"), [(0.25, False), (0.26, True), (0.5, True)])
def test_of_no_use_outweighs_all_else(utility: float, admitted: bool) -> None:
    useless = replace(fact(category=Category.PROFILE), utility=utility)
    judgement = judged(Preset.BALANCED, Case(fact=useless, matches=()), TEXT, START)

    assert judgement is not None
    assert judgement.admitted is admitted
    assert judgement.why == ("" if admitted else "utility")


@pytest.mark.parametrize("guess", [None, "much", 7, -1, float("nan"), [], {}])
def test_a_use_that_is_no_figure_says_nothing(guess: object) -> None:
    told = {"category": "events", "text": "x", "confidence": 1, "turns": [1], "utility": guess}

    assert DrawnFact.model_validate(told).utility == 0.5


async def test_what_is_refused_is_seen_by_people_and_by_no_model(tmp_path: Path) -> None:
    async with remembering(tmp_path, admission=Preset.BALANCED) as memory:
        for number in range(ENOUGH):
            await memory.say(f"I drink green tea and hum on the stairs, {number}", "Nice.")
        memory.notes.answers = [
            notes_of(
                drawn("Drinks green tea", topic="tea", utility=0.8),
                drawn("Hums hunter2 on the stairs", category="events", utility=0.1),
            )
        ]
        await memory.draw()

        [kept] = await memory.all(MemoryKind.FACT, MemoryKind.PROFILE)
        [refused] = await memory.all(states=(EntryState.REJECTED,))
        told = entry_data(kept)["admission"], entry_data(refused)["admission"]
        assert [(each["admitted"], each["why"]) for each in told] == [
            (True, ""),
            (False, "utility"),
        ]
        assert told[0]["features"]["utility"] == 0.8
        assert refused.text == "Hums •••• on the stairs"
        assert not any("Hums" in text for text in await memory.found("hums stairs"))
        figures = await memory.quality.of(today=memory.world.clock().date())
        assert (figures.facts, figures.filtered, figures.refused, figures.suspicious) == (
            2,
            1,
            1,
            0,
        )


async def test_what_is_refused_again_is_there_once_and_goes_with_its_turn(tmp_path: Path) -> None:
    async with remembering(tmp_path, admission=Preset.BALANCED) as memory:
        for mark in range(2):
            for number in range(ENOUGH):
                await memory.say(f"Hums on the stairs {mark}.{number}", "Nice.")
            humming = drawn("Hums on the stairs", category="events", utility=0.0)
            memory.notes.answers = [notes_of(humming)]
            await memory.draw()
        [refused] = await memory.all(states=(EntryState.REJECTED,))
        [turn, *_] = await memory.all(MemoryKind.CELL)

        await memory.writer.forget(turn, BY_BOSS)

        assert refused.evidence == ("turn:inbox:Hums on the stairs 0.0",)
        assert await memory.all(states=(EntryState.REJECTED,)) == []


async def test_what_was_refused_is_kept_for_two_weeks(tmp_path: Path) -> None:
    async with remembering(tmp_path, admission=Preset.BALANCED) as memory:
        for days, text in ((0, "Hums on the stairs"), (15, "Whistles on the roof")):
            memory.world.clock.pass_by(hours=24 * days)
            for number in range(ENOUGH):
                await memory.say(f"{text} {number}", "Nice.")
            memory.notes.answers = [notes_of(drawn(text, category="events", utility=0.0))]
            await memory.draw()

        [refused] = await memory.all(states=(EntryState.REJECTED,))
        assert refused.text == "Whistles on the roof"


async def test_what_was_refused_counts_once_somebody_writes_it(tmp_path: Path) -> None:
    async with remembering(tmp_path, admission=Preset.BALANCED) as memory:
        for number in range(ENOUGH):
            await memory.say(f"Hums on the stairs {number}", "Nice.")
        humming = drawn("Hums on the stairs", category="events", utility=0.0)
        memory.notes.answers = [notes_of(humming)]
        await memory.draw()
        [refused] = await memory.all(states=(EntryState.REJECTED,))

        await memory.writer.edit(refused, "Hums on all stairs", BY_BOSS)

        [kept] = await memory.all(MemoryKind.FACT)
        assert (kept.text, dict(kept.extra)) == ("Hums on all stairs", {})
        assert await memory.found("hums") != []
