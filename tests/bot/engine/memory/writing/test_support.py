"""What is said again counts, what is contradicted counts less, each under its circumstances; and
without a verdict of a model the fuller of two texts stands for both."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.llm.base import BadAnswer
from bot.engine.memory.writing.drawing.extraction import DrawnFact
from bot.engine.memory.writing.drawing.verdicts import OneVerdict, Verdicts
from bot.engine.memory.writing.recorder import ENOUGH
from cards.views.memory.data import entry_data
from storage.records.memory.entries import EntryState, MemoryKind
from storage.records.memory.support import MOST_SLICES, Support, support_of
from tests.bot.engine.memory.writing.world import Answer, Memory, drawn, notes_of, remembering
from tests.engine_world import START

DRAWN = (MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncGenerator[Memory, None]:
    async with remembering(tmp_path) as made:
        yield made


async def told(memory: Memory, fact: DrawnFact, verdict: OneVerdict | None = None) -> None:
    """One more conversation, and what a model makes of it; without a verdict rules decide."""
    mark = len(await memory.all(MemoryKind.CELL))
    for number in range(ENOUGH):
        await memory.say(f"{fact.text}, {mark}.{number}", "Ok.")
    decided: Answer = BadAnswer("none") if verdict is None else Verdicts(results=[verdict])
    memory.notes.answers = [notes_of(fact), decided]
    await memory.draw()


def verdict(decision: str, context: str = "general") -> OneVerdict:
    return OneVerdict(index=1, decision=decision, match=1, context=context)


def test_strength_is_the_share_of_what_was_said_again() -> None:
    support = Support()
    assert support.strength == 0.5
    for context, holds in (("morning", True), ("morning", True), ("evening", False)):
        support = support.observed(context, holds=holds, at=START)

    assert support.strength == pytest.approx(2 / 3)
    assert support.slices["morning"].strength == 1.0
    assert support.slices["evening"].strength == 0.0


def test_eight_circumstances_are_kept_and_the_others_counted() -> None:
    support = Support()
    for number in range(MOST_SLICES + 3):
        at = START + timedelta(hours=number)
        support = support.observed(f"c{number}", holds=number % 2 == 0, at=at)

    assert list(support.slices) == [f"c{number}" for number in range(3, MOST_SLICES + 3)]
    assert (support.confirmed, support.contradicted) == (6, 5)


async def test_what_was_counted_is_read_as_it_was_written(memory: Memory) -> None:
    await told(memory, drawn("Drinks green tea", topic="drinks"))
    [held] = await memory.all(*DRAWN)
    seen = support_of(held).observed("work", holds=False, at=START)

    assert support_of(replace(held, extra=seen.written())) == seen
    assert support_of(replace(held, extra={"support": {"x": "y", "z": [-1, "a"]}})).strength == 0.5


@pytest.mark.parametrize("label", ["早上", "上午", " Morning"])
def test_circumstances_have_one_name_in_both_languages(label: str) -> None:
    assert verdict("support", label).context == "morning"
    assert verdict("support", "on the moon").context == "general"


async def test_what_is_said_again_under_circumstances_counts_there(memory: Memory) -> None:
    await told(memory, drawn("Drinks green tea", topic="drinks"))
    again = drawn("Has green tea for breakfast", topic="drinks")
    await told(memory, again, verdict("support", "上午"))

    [held] = await memory.all(*DRAWN)
    assert dict(support_of(held).slices)["morning"].confirmed == 1
    assert entry_data(held)["support"]["strength"] == 1.0
    assert len(held.evidence) == 2


async def test_of_two_tastes_that_exclude_each_other_the_newer_counts(memory: Memory) -> None:
    await told(memory, drawn("Drinks green tea", topic="drinks"))
    await told(memory, drawn("Drinks coffee only", topic="drinks"), verdict("contradict"))

    assert await memory.texts(*DRAWN) == ["Drinks coffee only"]
    [gone] = await memory.all(*DRAWN, states=(EntryState.SUPERSEDED,))
    assert gone.text == "Drinks green tea"


async def test_what_contradicts_at_times_stands_beside_it(memory: Memory) -> None:
    await told(memory, drawn("Drinks green tea", topic="drinks"))
    weekend = drawn("Drinks coffee at weekends", topic="drinks")
    await told(memory, weekend, verdict("contradict", "周末"))

    tea, coffee = await memory.all(*DRAWN)
    assert (tea.text, coffee.text) == ("Drinks green tea", "Drinks coffee at weekends")
    assert support_of(tea).slices["weekend"].contradicted == 1
    assert support_of(coffee).context == "weekend"

    # What is told anew in general takes the place of what held in general, and of nothing else.
    await told(memory, drawn("Drinks black tea", topic="drinks"), verdict("create"))
    assert await memory.texts(*DRAWN) == ["Drinks coffee at weekends", "Drinks black tea"]


async def test_what_is_doubted_once_stays_and_falls_when_doubted_again(memory: Memory) -> None:
    await told(memory, drawn("Writes code in vim", topic="editor", confidence=0.95))
    doubt = drawn("Uses nano", topic="editor", confidence=0.6)
    await told(memory, doubt)
    [held] = await memory.all(*DRAWN)
    assert (held.text, support_of(held).strength) == ("Writes code in vim", 0.0)

    await told(memory, replace_text(doubt, "Edits with nano"))
    assert await memory.texts(*DRAWN) == ["Edits with nano"]


async def test_what_was_contradicted_more_than_confirmed_does_not_rise(memory: Memory) -> None:
    tables = drawn("Prefers tables to prose", topic="reports", confidence=0.95)
    await told(memory, tables)
    [held] = await memory.all(*DRAWN)
    seen = support_of(held)
    for _ in range(5):
        seen = seen.observed("work", holds=False, at=START)
    async with memory.world.db.write() as tx:
        doubted = replace(held, extra={**held.extra, **seen.written()})
        await memory.entries.change(tx, doubted, now=START)
    for _ in range(3):
        await told(memory, tables)

    [held] = await memory.all(*DRAWN)
    assert (held.kind, len(held.evidence)) == (MemoryKind.PROFILE, 4)
    assert await memory.all(states=(EntryState.CANDIDATE,)) == []


async def test_what_says_more_stands_for_both(memory: Memory) -> None:
    await told(memory, drawn("Prefers tables to prose", topic="reports"))
    await told(memory, drawn("Prefers tables to prose in weekly reports", topic="weekly reports"))

    [held] = await memory.all(*DRAWN)
    assert held.text == "Prefers tables to prose in weekly reports"
    assert len(held.evidence) == 2
    assert await memory.found("weekly") != []


async def test_what_says_less_backs_what_says_more(memory: Memory) -> None:
    await told(memory, drawn("Prefers tables to prose in weekly reports", topic="weekly reports"))
    await told(memory, drawn("Prefers tables to prose", topic="tables"))

    [held] = await memory.all(*DRAWN)
    assert held.text == "Prefers tables to prose in weekly reports"
    assert len(held.evidence) == 2


async def test_what_denies_it_is_never_taken_in(memory: Memory) -> None:
    await told(memory, drawn("Deploys the shop on Fridays", category="patterns"))
    await told(memory, drawn("Never deploys the shop on Fridays", category="patterns"))

    assert len(await memory.all(*DRAWN)) == 2


def replace_text(fact: DrawnFact, text: str) -> DrawnFact:
    return fact.model_copy(update={"text": text})
