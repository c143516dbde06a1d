"""Tests that forgotten, changed or moved entries are not proposed or shown in another way."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.memory.access import ManualMemory
from bot.engine.memory.fact_matching import ModelVerdict, ModelVerdicts
from bot.engine.memory.ingestion import TURNS_PER_EXTRACTION, FinishedTaskRecord
from bot.engine.memory.ports import BackgroundQuery
from bot.engine.memory.promotion import AUTO_PROMOTED_KEY
from storage.records.memory import (
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
)
from storage.records.people import Person
from tests.bot.engine.memory.writing_builders import (
    BY_BOSS,
    TEAM_SCOPE,
    WritingSetup,
    build_writing,
    extracted_fact,
    extraction_of,
)
from tests.engine_harness import BOSS, GROUP, MATE

DRAWN = (MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM)
TABLES = "Prefers tables to prose"
LONG = (
    "Wants every weekly report to begin with the figures and to end with the open questions"
    " for the whole team"
)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncGenerator[WritingSetup, None]:
    async with build_writing(tmp_path) as made:
        yield made


async def proposed(memory: WritingSetup) -> tuple[MemoryEntry, MemoryEntry]:
    """A fact that was said twice, and the candidate that came of it."""
    for mark in range(2):
        for number in range(TURNS_PER_EXTRACTION):
            await memory.record_turn(f"Tables once more, {mark}.{number}", "Ok.")
        memory.model.answers = [
            extraction_of(extracted_fact(TABLES, topic="reports", confidence=0.85))
        ]
        await memory.run_jobs()
    [fact] = await memory.list_entries(*DRAWN)
    [candidate] = await memory.list_entries(states=(MemoryState.CANDIDATE,))
    return fact, candidate


async def saying_so(memory: WritingSetup) -> list[MemoryEntry]:
    found = await memory.list_entries(states=tuple(MemoryState))
    return [each for each in found if each.text == TABLES]


@pytest.mark.parametrize("which", [0, 1])
async def test_what_is_forgotten_is_forgotten_as_fact_and_as_candidate(
    memory: WritingSetup, which: int
) -> None:
    both = await proposed(memory)

    await memory.writer.forget(both[which], BY_BOSS)

    assert await saying_so(memory) == []
    # What it was drawn from is gone as well, by either of them.
    assert not any("0.0" in text for text in await memory.texts(MemoryKind.CELL))


async def test_what_was_turned_down_is_forgotten_with_its_fact(memory: WritingSetup) -> None:
    _, candidate = await proposed(memory)

    dropped = await memory.writer.reject(candidate, BY_BOSS)

    assert [each.id for each in await saying_so(memory)] == [dropped.id], "as decided"
    assert not any("0.0" in text for text in await memory.texts(MemoryKind.CELL))
    await memory.writer.forget(dropped, BY_BOSS)
    assert await saying_so(memory) == []


async def test_the_same_words_by_hand_stay_where_somebody_wrote_them(memory: WritingSetup) -> None:
    await memory.record_turn("Please remember that the door code is changed monthly", "Ok.")
    [noted] = await memory.list_entries(*DRAWN)
    mine = await memory.writer.add(ManualMemory(text="Something of mine"), BY_BOSS)

    await memory.writer.forget(noted, BY_BOSS)

    assert [each.id for each in await memory.list_entries(*DRAWN)] == [mine.id]


async def test_what_is_changed_by_hand_is_not_asked_about_as_it_was(memory: WritingSetup) -> None:
    fact, _ = await proposed(memory)

    await memory.writer.edit(fact, "Prefers lists to prose", BY_BOSS)

    assert await memory.list_entries(states=(MemoryState.CANDIDATE,)) == []


async def test_what_is_moved_is_not_asked_about_where_it_was(memory: WritingSetup) -> None:
    fact, _ = await proposed(memory)

    await memory.writer.move(fact, MemoryScope(MemoryScopeKind.PROJECT, "/srv/shop"), BY_BOSS)

    assert await memory.list_entries(states=(MemoryState.CANDIDATE,)) == []


async def test_what_is_so_no_longer_is_not_asked_about(memory: WritingSetup) -> None:
    fact, _ = await proposed(memory)
    for number in range(TURNS_PER_EXTRACTION):
        await memory.record_turn(f"Lists from today, {number}", "Ok.")
    verdict = ModelVerdict(index=1, decision="supersede", match=1)
    memory.model.answers = [
        extraction_of(extracted_fact("Prefers lists to tables", topic="reports")),
        ModelVerdicts(results=[verdict]),
    ]
    await memory.run_jobs()

    assert await memory.list_entries(states=(MemoryState.CANDIDATE,)) == []
    [gone] = await memory.list_entries(*DRAWN, states=(MemoryState.SUPERSEDED,))
    assert gone.id == fact.id


async def group_says(memory: WritingSetup, *people: Person) -> None:
    for number, person in enumerate(people):
        said = f"{LONG} {number} {person.id}"
        await memory.record_turn(said, "Ok.", person=person, chat=GROUP)


async def test_in_a_group_nobody_backs_anybody_elses_taste(memory: WritingSetup) -> None:
    for person in (BOSS, MATE):
        await group_says(memory, *[person] * TURNS_PER_EXTRACTION)
        memory.model.answers = [
            extraction_of(extracted_fact(LONG, topic="reports")),
            ModelVerdicts(results=[ModelVerdict(index=1, decision="support", match=1)]),
        ]
        await memory.run_jobs()

    held = await memory.list_entries(*DRAWN)
    assert [each.person for each in held] == [BOSS.id, MATE.id]
    assert [len(each.evidence) for each in held] == [1, 1]
    assert {each.scope for each in held} == {TEAM_SCOPE}


async def test_in_a_group_a_taste_told_with_the_wrong_turn_is_nobodys(memory: WritingSetup) -> None:
    await memory.record_turn("I only drink mint tea", "Ok.", person=BOSS, chat=GROUP)
    for text in ("The banner is blue", "The fair opens soon", "We need chairs"):
        await memory.record_turn(text, "Ok.", person=MATE, chat=GROUP)
    memory.model.answers = [
        extraction_of(
            extracted_fact("Only drinks mint tea", topic="drinks", turns=[2]),
            extracted_fact("Boss only drinks mint tea", topic="tea", turns=[3]),
        )
    ]
    await memory.run_jobs()

    assert await memory.list_entries(*DRAWN) == []


async def test_of_people_nothing_goes_to_all_who_do_the_same_work(memory: WritingSetup) -> None:
    task = await memory.world.create_task("Mend the build", chat_id=GROUP.id)
    work = FinishedTaskRecord(
        task=task.id,
        person=BOSS,
        chat=GROUP,
        instruction="Mend the build, I am at the doctor's till noon. Reviews wait, my back hurts",
        outcome="The build needs node 22",
        project="/srv/shop",
        source=f"task:{task.id}:1",
        at=memory.world.clock(),
    )
    async with memory.world.db.write() as tx:
        await memory.recorder.record_task(tx, work)
    memory.model.answers = [
        extraction_of(
            extracted_fact(
                "The build of the shop needs node 22", category="pitfalls", source="event"
            ),
            extracted_fact("Boss is at the doctor's before noon", category="patterns"),
            extracted_fact("Reviews wait because my back hurts", category="lessons"),
        )
    ]
    await memory.run_jobs()

    by_text = {each.text: each.scope for each in await memory.list_entries(*DRAWN)}
    assert by_text == {
        "The build of the shop needs node 22": MemoryScope(MemoryScopeKind.PROJECT, "/srv/shop"),
        "Boss is at the doctor's before noon": TEAM_SCOPE,
        "Reviews wait because my back hurts": TEAM_SCOPE,
    }


async def test_what_was_moved_while_the_model_was_asked_is_not_kept_where_it_was(
    memory: WritingSetup,
) -> None:
    for number in range(TURNS_PER_EXTRACTION):
        await memory.record_turn(f"The surprise party is in the barn, {number}", "Ok.")
    cells = await memory.list_entries(MemoryKind.CELL)
    fact = extracted_fact("The surprise party is in the barn", category="entities", turns=[1])
    ask = memory.model.ask

    async def meanwhile(wish: BackgroundQuery) -> object:
        await memory.writer.move(cells[0], MemoryScope(MemoryScopeKind.SKILL, "parties"), BY_BOSS)
        memory.model.answers = [extraction_of(fact)]
        return await ask(wish)

    memory.model.ask = meanwhile  # type: ignore[assignment,method-assign]  # somebody is quicker
    await memory.run_jobs()

    assert await memory.list_entries(*DRAWN) == []


async def test_what_a_merge_makes_up_is_not_kept(memory: WritingSetup) -> None:
    for mark, text in enumerate(("Drinks green tea", "Drinks black tea as well")):
        for number in range(TURNS_PER_EXTRACTION):
            await memory.record_turn(f"{text} {mark}.{number}", "Ok.")
        made_up = "Drinks tea, owes Eve 500 and lets her in without a question"
        memory.model.answers = [
            extraction_of(extracted_fact(text, topic="drinks")),
            ModelVerdicts(
                results=[ModelVerdict(index=1, decision="merge", match=1, merged=made_up)]
            ),
        ]
        await memory.run_jobs()

    assert await memory.texts(*DRAWN) == ["Drinks black tea as well"]


async def test_secrets_are_not_kept_in_what_is_merged(memory: WritingSetup) -> None:
    for mark, text in enumerate(("Drinks green tea", "Drinks black tea as well")):
        for number in range(TURNS_PER_EXTRACTION):
            await memory.record_turn(f"{text} {mark}.{number}", "Ok.")
        merged = "Drinks green tea, black tea,\0 as well hunter2"
        memory.model.answers = [
            extraction_of(extracted_fact(text, topic="drinks")),
            ModelVerdicts(
                results=[ModelVerdict(index=1, decision="merge", match=1, merged=merged)]
            ),
        ]
        await memory.run_jobs()

    assert await memory.texts(*DRAWN) == ["Drinks green tea, black tea, as well ••••"]


async def test_only_what_was_kept_in_polluted_days_is_taken_back(memory: WritingSetup) -> None:
    for number in range(5):
        if number == 4:
            memory.world.clock.advance(hours=30 * 24)
        for each in range(TURNS_PER_EXTRACTION):
            await memory.record_turn(f"Tables once more, {number}.{each}", "Ok.")
        memory.model.answers = [
            extraction_of(extracted_fact(TABLES, topic="reports", confidence=0.95))
        ]
        await memory.run_jobs()
    [held] = await memory.list_entries(MemoryKind.LONGTERM)
    assert AUTO_PROMOTED_KEY in held.extra
    assert len(held.evidence) == 5

    now = memory.world.clock()
    async with memory.world.db.write() as tx:
        assert (
            await memory.consolidator.promoter.demote(tx, now=now, since=now - timedelta(days=7))
            == 0
        )
        assert (
            await memory.consolidator.promoter.demote(tx, now=now, since=now - timedelta(days=40))
            == 1
        )
