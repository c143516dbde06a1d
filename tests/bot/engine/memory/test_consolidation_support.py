"""Tests how repetitions and contradictions count, by circumstances."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.llm.backend import InvalidAnswer
from bot.engine.memory.extraction import ExtractedFact
from bot.engine.memory.fact_matching import ModelVerdict, ModelVerdicts
from bot.engine.memory.ingestion import TURNS_PER_EXTRACTION
from cards.views.memory import entry_data
from storage.records.memory import (
    MAX_SUPPORT_CONTEXTS,
    FactSupport,
    MemoryKind,
    MemoryState,
    support_from_extra,
)
from tests.bot.engine.memory.writing_builders import (
    Answer,
    WritingSetup,
    build_writing,
    extracted_fact,
    extraction_of,
)
from tests.engine_harness import START

DRAWN = (MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncGenerator[WritingSetup, None]:
    async with build_writing(tmp_path) as made:
        yield made


async def told(
    memory: WritingSetup, fact: ExtractedFact, verdict: ModelVerdict | None = None
) -> None:
    """One more conversation, and what a model makes of it; without a verdict rules decide."""
    mark = len(await memory.list_entries(MemoryKind.CELL))
    for number in range(TURNS_PER_EXTRACTION):
        await memory.record_turn(f"{fact.text}, {mark}.{number}", "Ok.")
    decided: Answer = InvalidAnswer("none") if verdict is None else ModelVerdicts(results=[verdict])
    memory.model.answers = [extraction_of(fact), decided]
    await memory.run_jobs()


def verdict(decision: str, context: str = "general") -> ModelVerdict:
    return ModelVerdict(index=1, decision=decision, match=1, context=context)


def test_strength_is_the_share_of_what_was_said_again() -> None:
    support = FactSupport()
    assert support.strength == 0.5
    for context, holds in (("morning", True), ("morning", True), ("evening", False)):
        support = support.with_observation(context, holds=holds, at=START)

    assert support.strength == pytest.approx(2 / 3)
    assert support.by_context["morning"].strength == 1.0
    assert support.by_context["evening"].strength == 0.0


def test_eight_circumstances_are_kept_and_the_others_counted() -> None:
    support = FactSupport()
    for number in range(MAX_SUPPORT_CONTEXTS + 3):
        at = START + timedelta(hours=number)
        support = support.with_observation(f"c{number}", holds=number % 2 == 0, at=at)

    assert list(support.by_context) == [
        f"c{number}" for number in range(3, MAX_SUPPORT_CONTEXTS + 3)
    ]
    assert (support.confirmed, support.contradicted) == (6, 5)


async def test_what_was_counted_is_read_as_it_was_written(memory: WritingSetup) -> None:
    await told(memory, extracted_fact("Drinks green tea", topic="drinks"))
    [held] = await memory.list_entries(*DRAWN)
    seen = support_from_extra(held).with_observation("work", holds=False, at=START)

    assert support_from_extra(replace(held, extra=seen.to_extra())) == seen
    assert (
        support_from_extra(replace(held, extra={"support": {"x": "y", "z": [-1, "a"]}})).strength
        == 0.5
    )


@pytest.mark.parametrize("label", ["早上", "上午", " Morning"])
def test_circumstances_have_one_name_in_both_languages(label: str) -> None:
    assert verdict("support", label).context == "morning"
    assert verdict("support", "on the moon").context == "general"


async def test_what_is_said_again_under_circumstances_counts_there(memory: WritingSetup) -> None:
    await told(memory, extracted_fact("Drinks green tea", topic="drinks"))
    again = extracted_fact("Has green tea for breakfast", topic="drinks")
    await told(memory, again, verdict("support", "上午"))

    [held] = await memory.list_entries(*DRAWN)
    assert dict(support_from_extra(held).by_context)["morning"].confirmed == 1
    assert entry_data(held)["support"]["strength"] == 1.0
    assert len(held.evidence) == 2


async def test_of_two_tastes_that_exclude_each_other_the_newer_counts(memory: WritingSetup) -> None:
    await told(memory, extracted_fact("Drinks green tea", topic="drinks"))
    await told(memory, extracted_fact("Drinks coffee only", topic="drinks"), verdict("contradict"))

    assert await memory.texts(*DRAWN) == ["Drinks coffee only"]
    [gone] = await memory.list_entries(*DRAWN, states=(MemoryState.SUPERSEDED,))
    assert gone.text == "Drinks green tea"


async def test_what_contradicts_at_times_stands_beside_it(memory: WritingSetup) -> None:
    await told(memory, extracted_fact("Drinks green tea", topic="drinks"))
    weekend = extracted_fact("Drinks coffee at weekends", topic="drinks")
    await told(memory, weekend, verdict("contradict", "周末"))

    tea, coffee = await memory.list_entries(*DRAWN)
    assert (tea.text, coffee.text) == ("Drinks green tea", "Drinks coffee at weekends")
    assert support_from_extra(tea).by_context["weekend"].contradicted == 1
    assert support_from_extra(coffee).context == "weekend"

    # What is told anew in general takes the place of what held in general, and of nothing else.
    await told(memory, extracted_fact("Drinks black tea", topic="drinks"), verdict("create"))
    assert await memory.texts(*DRAWN) == ["Drinks coffee at weekends", "Drinks black tea"]


async def test_what_is_doubted_once_stays_and_falls_when_doubted_again(
    memory: WritingSetup,
) -> None:
    await told(memory, extracted_fact("Writes code in vim", topic="editor", confidence=0.95))
    doubt = extracted_fact("Uses nano", topic="editor", confidence=0.6)
    await told(memory, doubt)
    [held] = await memory.list_entries(*DRAWN)
    assert (held.text, support_from_extra(held).strength) == ("Writes code in vim", 0.0)

    await told(memory, replace_text(doubt, "Edits with nano"))
    assert await memory.texts(*DRAWN) == ["Edits with nano"]


async def test_what_was_contradicted_more_than_confirmed_does_not_rise(
    memory: WritingSetup,
) -> None:
    tables = extracted_fact("Prefers tables to prose", topic="reports", confidence=0.95)
    await told(memory, tables)
    [held] = await memory.list_entries(*DRAWN)
    seen = support_from_extra(held)
    for _ in range(5):
        seen = seen.with_observation("work", holds=False, at=START)
    async with memory.world.db.write() as tx:
        doubted = replace(held, extra={**held.extra, **seen.to_extra()})
        await memory.entries.update(tx, doubted, now=START)
    for _ in range(3):
        await told(memory, tables)

    [held] = await memory.list_entries(*DRAWN)
    assert (held.kind, len(held.evidence)) == (MemoryKind.PROFILE, 4)
    assert await memory.list_entries(states=(MemoryState.CANDIDATE,)) == []


async def test_what_says_more_stands_for_both(memory: WritingSetup) -> None:
    await told(memory, extracted_fact("Prefers tables to prose", topic="reports"))
    await told(
        memory, extracted_fact("Prefers tables to prose in weekly reports", topic="weekly reports")
    )

    [held] = await memory.list_entries(*DRAWN)
    assert held.text == "Prefers tables to prose in weekly reports"
    assert len(held.evidence) == 2
    assert await memory.search("weekly") != []


async def test_what_says_less_backs_what_says_more(memory: WritingSetup) -> None:
    await told(
        memory, extracted_fact("Prefers tables to prose in weekly reports", topic="weekly reports")
    )
    await told(memory, extracted_fact("Prefers tables to prose", topic="tables"))

    [held] = await memory.list_entries(*DRAWN)
    assert held.text == "Prefers tables to prose in weekly reports"
    assert len(held.evidence) == 2


async def test_what_denies_it_is_never_taken_in(memory: WritingSetup) -> None:
    await told(memory, extracted_fact("Deploys the shop on Fridays", category="patterns"))
    await told(memory, extracted_fact("Never deploys the shop on Fridays", category="patterns"))

    # The later words end the earlier fact, and are not counted for it.
    assert await memory.texts(*DRAWN) == ["Never deploys the shop on Fridays"]
    [gone] = await memory.list_entries(*DRAWN, states=(MemoryState.SUPERSEDED,))
    assert (gone.text, len(gone.evidence)) == ("Deploys the shop on Fridays", 1)


def replace_text(fact: ExtractedFact, text: str) -> ExtractedFact:
    return fact.model_copy(update={"text": text})
