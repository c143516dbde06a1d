"""What is forgotten, changed or moved is not proposed or told any more by another way, and
nobody's tastes are mixed with anybody else's."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.memory.writing.drawing.silent import Wish
from bot.engine.memory.writing.drawing.verdicts import OneVerdict, Verdicts
from bot.engine.memory.writing.quality import AUTO
from bot.engine.memory.writing.recorder import ENOUGH, Work
from bot.engine.memory.writing.service import ByHand
from storage.records.memory.entries import Entry, EntryState, MemoryKind, Scope, ScopeKind
from storage.records.people import Person
from tests.bot.engine.memory.writing.world import (
    BY_BOSS,
    TEAM,
    Memory,
    drawn,
    notes_of,
    remembering,
)
from tests.engine_world import BOSS, GROUP, MATE

DRAWN = (MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM)
TABLES = "Prefers tables to prose"
LONG = (
    "Wants every weekly report to begin with the figures and to end with the open questions"
    " for the whole team"
)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncGenerator[Memory, None]:
    async with remembering(tmp_path) as made:
        yield made


async def proposed(memory: Memory) -> tuple[Entry, Entry]:
    """A fact that was said twice, and the candidate that came of it."""
    for mark in range(2):
        for number in range(ENOUGH):
            await memory.say(f"Tables once more, {mark}.{number}", "Ok.")
        memory.notes.answers = [notes_of(drawn(TABLES, topic="reports", confidence=0.85))]
        await memory.draw()
    [fact] = await memory.all(*DRAWN)
    [candidate] = await memory.all(states=(EntryState.CANDIDATE,))
    return fact, candidate


async def saying_so(memory: Memory) -> list[Entry]:
    found = await memory.all(states=tuple(EntryState))
    return [each for each in found if each.text == TABLES]


@pytest.mark.parametrize("which", [0, 1])
async def test_what_is_forgotten_is_forgotten_as_fact_and_as_candidate(
    memory: Memory, which: int
) -> None:
    both = await proposed(memory)

    await memory.writer.forget(both[which], BY_BOSS)

    assert await saying_so(memory) == []
    # What it was drawn from is gone as well, by either of them.
    assert not any("0.0" in text for text in await memory.texts(MemoryKind.CELL))


async def test_what_was_turned_down_is_forgotten_with_its_fact(memory: Memory) -> None:
    fact, candidate = await proposed(memory)
    await memory.writer.reject(candidate, BY_BOSS)

    await memory.writer.forget(fact, BY_BOSS)

    assert await saying_so(memory) == []


async def test_the_same_words_by_hand_stay_where_somebody_wrote_them(memory: Memory) -> None:
    await memory.say("Please remember that the door code is changed monthly", "Ok.")
    [noted] = await memory.all(*DRAWN)
    mine = await memory.writer.add(ByHand(text="Something of mine"), BY_BOSS)

    await memory.writer.forget(noted, BY_BOSS)

    assert [each.id for each in await memory.all(*DRAWN)] == [mine.id]


async def test_what_is_changed_by_hand_is_not_asked_about_as_it_was(memory: Memory) -> None:
    fact, _ = await proposed(memory)

    await memory.writer.edit(fact, "Prefers lists to prose", BY_BOSS)

    assert await memory.all(states=(EntryState.CANDIDATE,)) == []


async def test_what_is_moved_is_not_asked_about_where_it_was(memory: Memory) -> None:
    fact, _ = await proposed(memory)

    await memory.writer.move(fact, Scope(ScopeKind.PROJECT, "/srv/shop"), BY_BOSS)

    assert await memory.all(states=(EntryState.CANDIDATE,)) == []


async def test_what_is_so_no_longer_is_not_asked_about(memory: Memory) -> None:
    fact, _ = await proposed(memory)
    for number in range(ENOUGH):
        await memory.say(f"Lists from today, {number}", "Ok.")
    verdict = OneVerdict(index=1, decision="supersede", match=1)
    memory.notes.answers = [
        notes_of(drawn("Prefers lists to tables", topic="reports")),
        Verdicts(results=[verdict]),
    ]
    await memory.draw()

    assert await memory.all(states=(EntryState.CANDIDATE,)) == []
    [gone] = await memory.all(*DRAWN, states=(EntryState.SUPERSEDED,))
    assert gone.id == fact.id


async def group_says(memory: Memory, *people: Person) -> None:
    for number, person in enumerate(people):
        said = f"{LONG} {number} {person.id}"
        await memory.say(said, "Ok.", person=person, chat=GROUP)


async def test_in_a_group_nobody_backs_anybody_elses_taste(memory: Memory) -> None:
    for person in (BOSS, MATE):
        await group_says(memory, *[person] * ENOUGH)
        memory.notes.answers = [
            notes_of(drawn(LONG, topic="reports")),
            Verdicts(results=[OneVerdict(index=1, decision="support", match=1)]),
        ]
        await memory.draw()

    held = await memory.all(*DRAWN)
    assert [each.person for each in held] == [BOSS.id, MATE.id]
    assert [len(each.evidence) for each in held] == [1, 1]
    assert {each.scope for each in held} == {TEAM}


async def test_in_a_group_a_taste_told_with_the_wrong_turn_is_nobodys(memory: Memory) -> None:
    await memory.say("I only drink mint tea", "Ok.", person=BOSS, chat=GROUP)
    for text in ("The banner is blue", "The fair opens soon", "We need chairs"):
        await memory.say(text, "Ok.", person=MATE, chat=GROUP)
    memory.notes.answers = [
        notes_of(
            drawn("Only drinks mint tea", topic="drinks", turns=[2]),
            drawn("Boss only drinks mint tea", topic="tea", turns=[3]),
        )
    ]
    await memory.draw()

    assert await memory.all(*DRAWN) == []


async def test_of_people_nothing_goes_to_all_who_do_the_same_work(memory: Memory) -> None:
    task = await memory.world.add("Mend the build", chat_id=GROUP.id)
    work = Work(
        task=task.id,
        person=BOSS,
        chat=GROUP,
        asked="Mend the build, I am at the doctor's till noon",
        done="The build needs node 22",
        project="/srv/shop",
        source=f"task:{task.id}:1",
        at=memory.world.clock(),
    )
    async with memory.world.db.write() as tx:
        await memory.recorder.task_done(tx, work)
    memory.notes.answers = [
        notes_of(
            drawn("The build of the shop needs node 22", category="pitfalls", source="event"),
            drawn("Boss is at the doctor's before noon", category="patterns"),
            drawn("Reviews wait because my back hurts", category="lessons"),
        )
    ]
    await memory.draw()

    by_text = {each.text: each.scope for each in await memory.all(*DRAWN)}
    assert by_text == {
        "The build of the shop needs node 22": Scope(ScopeKind.PROJECT, "/srv/shop"),
        "Boss is at the doctor's before noon": TEAM,
        "Reviews wait because my back hurts": TEAM,
    }


async def test_what_was_moved_while_the_model_was_asked_is_not_kept_where_it_was(
    memory: Memory,
) -> None:
    for number in range(ENOUGH):
        await memory.say(f"The surprise party is in the barn, {number}", "Ok.")
    cells = await memory.all(MemoryKind.CELL)
    fact = drawn("The surprise party is in the barn", category="entities", turns=[1])
    ask = memory.notes.ask

    async def meanwhile(wish: Wish) -> object:
        await memory.writer.move(cells[0], Scope(ScopeKind.SKILL, "parties"), BY_BOSS)
        memory.notes.answers = [notes_of(fact)]
        return await ask(wish)

    memory.notes.ask = meanwhile  # type: ignore[assignment,method-assign]  # somebody is quicker
    await memory.draw()

    assert await memory.all(*DRAWN) == []


async def test_what_a_merge_makes_up_is_not_kept(memory: Memory) -> None:
    for mark, text in enumerate(("Drinks green tea", "Drinks black tea as well")):
        for number in range(ENOUGH):
            await memory.say(f"{text} {mark}.{number}", "Ok.")
        made_up = "Drinks tea, owes Eve 500 and lets her in without a question"
        memory.notes.answers = [
            notes_of(drawn(text, topic="drinks")),
            Verdicts(results=[OneVerdict(index=1, decision="merge", match=1, merged=made_up)]),
        ]
        await memory.draw()

    assert await memory.texts(*DRAWN) == ["Drinks black tea as well"]


async def test_secrets_are_not_kept_in_what_is_merged(memory: Memory) -> None:
    for mark, text in enumerate(("Drinks green tea", "Drinks black tea as well")):
        for number in range(ENOUGH):
            await memory.say(f"{text} {mark}.{number}", "Ok.")
        merged = "Drinks green tea, black tea,\0 as well hunter2"
        memory.notes.answers = [
            notes_of(drawn(text, topic="drinks")),
            Verdicts(results=[OneVerdict(index=1, decision="merge", match=1, merged=merged)]),
        ]
        await memory.draw()

    assert await memory.texts(*DRAWN) == ["Drinks green tea, black tea, as well ••••"]


async def test_only_what_was_kept_in_polluted_days_is_taken_back(memory: Memory) -> None:
    for number in range(5):
        if number == 4:
            memory.world.clock.pass_by(hours=30 * 24)
        for each in range(ENOUGH):
            await memory.say(f"Tables once more, {number}.{each}", "Ok.")
        memory.notes.answers = [notes_of(drawn(TABLES, topic="reports", confidence=0.95))]
        await memory.draw()
    [held] = await memory.all(MemoryKind.LONGTERM)
    assert AUTO in held.extra
    assert len(held.evidence) == 5

    now = memory.world.clock()
    async with memory.world.db.write() as tx:
        assert await memory.keeper.demote(tx, now=now, since=now - timedelta(days=7)) == 0
        assert await memory.keeper.demote(tx, now=now, since=now - timedelta(days=40)) == 1
