"""Tests that what people say is no longer so, or has changed, ends what was noted before, and that
nothing else does."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import pytest

from bot.engine.memory.access import MemoryReader
from bot.engine.memory.context_builder import ContextSession, MemoryContextBuilder
from bot.engine.memory.ingestion import ConversationTurn
from bot.engine.memory.retriever import MemoryRetriever, make_term_extractor
from storage.db import Transaction
from storage.ids import IdGenerator
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import EntryId, MemoryEntry, MemoryKind, MemoryState
from storage.search.inverted_index import InvertedIndex
from tests.bot.engine.memory.change_cases import CASES, ChangeCase
from tests.bot.engine.memory.writing_builders import BY_BOSS, WritingSetup, build_writing
from tests.engine_harness import BOSS, CHAT, GROUP, MATE
from tests.migrated_database import open_database
from tests.waiting import WAIT_SECONDS

_FACTS = (MemoryKind.FACT, MemoryKind.PROFILE)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncGenerator[WritingSetup, None]:
    async with build_writing(tmp_path) as made:
        yield made


async def test_98_in_100_sentences_change_what_they_mean_to(memory: WritingSetup) -> None:
    async with memory.world.db.write() as tx:
        wrong = [each for each in CASES if not await _is_right(memory, tx, each)]

    assert len(wrong) <= 0.02 * len(CASES), wrong


async def _is_right(memory: WritingSetup, tx: Transaction, case: ChangeCase) -> bool:
    """Each case has the store for itself."""
    await memory.entries.delete_all(tx, await _list(memory, tx, *MemoryState))
    await _say(memory, tx, case.first)
    known = await _list(memory, tx, MemoryState.ACTIVE)
    memory.world.clock.advance(hours=1)
    await _say(memory, tx, case.then)
    held = await _list(memory, tx, MemoryState.ACTIVE)
    over = await _list(memory, tx, MemoryState.SUPERSEDED)
    if not known:
        return False
    if not case.over:
        return {each.id for each in known} <= {each.id for each in held}
    return _have(over, case.over) and _have(held, case.holds)


async def _say(memory: WritingSetup, tx: Transaction, said: str) -> None:
    at = memory.world.clock()
    turn = ConversationTurn(
        person=BOSS, chat=CHAT, user_text=said, assistant_text="", source=f"{said}{at}", at=at
    )
    await memory.recorder.record_turn(tx, turn, [])


async def _list(
    memory: WritingSetup, tx: Transaction, *states: MemoryState
) -> Sequence[MemoryEntry]:
    return await memory.entries.list(None, kinds=_FACTS, states=states, tx=tx)


def _have(entries: Sequence[MemoryEntry], parts: Sequence[str]) -> bool:
    return all(any(part in each.text for each in entries) for part in parts)


async def _aside(memory: WritingSetup, asked: str) -> str:
    """What a model is told with a message of a later conversation."""
    retriever = MemoryRetriever(
        entries=memory.entries,
        index=memory.index,
        extract_terms=make_term_extractor(UTC),
        now=memory.world.clock,
    )
    builder = MemoryContextBuilder(
        entries=memory.entries,
        retriever=retriever,
        list_injected=_nothing_injected,
        now=memory.world.clock,
    )
    reader, now = MemoryReader(chat=CHAT, person=BOSS.id), memory.world.clock()
    session = ContextSession(id="s", turns=1, started_at=now, chat=CHAT.id)
    standing = await builder.build_standing(reader)
    return standing.text + (await builder.build_aside(reader, asked, session, standing)).text


async def _nothing_injected(_session: str, _turn: int) -> tuple[EntryId, ...]:
    return ()


@pytest.mark.parametrize(
    ("said", "asked", "told"),
    [
        (
            ("I live in Berlin", "I moved to Munich in May 2025"),
            ("Where did I live before?", "Where do I live now?"),
            (
                "until 2025-05-01, no longer so] Lives in Berlin",
                "since 2025-05-01] Lives in Munich",
            ),
        ),
        (
            ("我住在北京", "我去年三月搬到了上海"),
            ("我以前住哪？", "我现在住在哪里？"),
            ("until 2025-03-01, no longer so] 住在北京", "since 2025-03-01] 住在上海"),
        ),
        (
            ("I lived in Madrid from 2012 to 2016", "I live in Berlin"),
            ("Where did I live before?", "Where do I live now?"),
            (
                "since 2012-01-01, until 2016-01-01, no longer so] Lived in Madrid",
                "Lives in Berlin",
            ),
        ),
    ],
)
async def test_the_past_is_told_with_its_time_to_who_asks_for_it_and_marked_to_others(
    memory: WritingSetup, said: Sequence[str], asked: Sequence[str], told: Sequence[str]
) -> None:
    for each in said:
        await memory.record_turn(each, "Noted.")
        memory.world.clock.advance(days=1)

    about_past, about_now = [await _aside(memory, each) for each in asked]

    assert all(each in about_past for each in told), about_past
    assert told[0] not in about_now
    assert told[1] in about_now
    # Words that are no longer so are never told without saying it.
    for line in (about_past + about_now).splitlines():
        assert said[0] not in line or "no longer so" in line


async def test_there_is_the_place_where_one_works_or_what_was_named_before(
    memory: WritingSetup,
) -> None:
    await memory.record_turn("I work at Siemens")
    await memory.record_turn("I don't work there any more")

    assert [each.text for each in await memory.list_entries(*_FACTS)] == [
        "I don't work there any more"
    ]


async def test_what_is_planned_is_valid_from_then_and_falls_with_the_plan(
    memory: WritingSetup,
) -> None:
    await memory.record_turn("I live in Berlin")
    await memory.record_turn("I'm moving to Tokyo next year")

    before = await _aside(memory, "Hello there, which district of the city do you like?")
    memory.world.clock.advance(days=500)
    after = await _aside(memory, "Hello there, which district of the city do you like?")

    assert "Lives in Berlin" in before
    assert "Lives in Tokyo" not in before
    assert "Lives in Tokyo" in after
    assert "Lives in Berlin" not in after


async def test_what_was_ended_by_mistake_holds_again_once_those_words_are_forgotten(
    memory: WritingSetup,
) -> None:
    await memory.record_turn("I'm allergic to peanuts")
    await memory.record_turn("I'm not allergic to peanuts any more")
    [ending] = await memory.list_entries(*_FACTS)

    await memory.writer.forget(ending, BY_BOSS)

    [held] = await memory.list_entries(*_FACTS)
    assert (held.text, held.valid_until) == ("Allergic to peanuts", None)


async def test_an_edit_keeps_since_when_it_is_so_and_what_is_said_later_changes_it_no_more(
    memory: WritingSetup,
) -> None:
    await memory.record_turn("I moved to Munich in May 2025")
    [home] = await memory.list_entries(*_FACTS)

    edited = await memory.writer.edit(home, "Lives in Munich, near the zoo", BY_BOSS)
    await memory.record_turn("I moved to Porto")
    await memory.record_turn("I don't live in Munich any more. " + "This goes on. " * 5_000)

    [held] = await memory.list_entries(*_FACTS)
    assert (held.id, held.text) == (home.id, "Lives in Munich, near the zoo")
    assert held.valid_from == edited.valid_from == home.valid_from


async def test_what_one_says_in_a_group_ends_nothing_of_anothers(memory: WritingSetup) -> None:
    await memory.record_turn("I'm a vegetarian", person=BOSS, chat=GROUP)
    await memory.record_turn("I'm a vegetarian", source="2", person=MATE, chat=GROUP)
    await memory.record_turn("I'm not vegetarian any more", person=MATE, chat=GROUP)

    assert [each.text for each in await memory.list_entries(*_FACTS)] == [
        "Boss: Diet: vegetarian",
        "Mate: I'm not vegetarian any more",
    ]


_CITIES = ("Berlin", "Munich", "Porto")


def test_a_kill_between_two_facts_leaves_one_that_holds_and_the_last_words_with_it(
    tmp_path: Path,
) -> None:
    seen = 0
    for n in range(3):
        home = tmp_path / str(n)
        home.mkdir()
        child = get_context("fork").Process(target=_move_for_ever, args=(home,))
        child.start()
        # Killed at any moment: what holds then must be so at each.
        _wait_for_words(home, 2 + n)
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        seen += asyncio.run(_check_homes(home))
    assert seen > 3, "the process must have said something"


def _move_for_ever(home: Path) -> None:
    async def run() -> None:
        async with build_writing(home) as memory:
            for n in count():
                await memory.record_turn(f"I moved to {_CITIES[n % 3]}", source=f"inbox:{n}")
                memory.world.clock.advance(hours=1)
                (home / "said").write_text(str(n + 1))

    asyncio.run(run())


def _wait_for_words(home: Path, least: int) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        said = home / "said"
        if said.exists() and int(said.read_text() or 0) >= least:
            return
        time.sleep(0.01)
    raise AssertionError("the other process says nothing")


async def _check_homes(home: Path) -> int:
    """The number of words said. All that they changed was stored with them."""
    async with open_database(home) as db:
        entries = MemoryEntryRepo(db, IdGenerator(), InvertedIndex(db))
        said = await entries.list(None, kinds=(MemoryKind.CELL,))
        known = await entries.list(None, kinds=_FACTS, states=tuple(MemoryState))
    homes = [each for each in known if each.key == "profile:home"]
    [held] = [each for each in homes if each.state is MemoryState.ACTIVE]
    last = max(said, key=lambda each: each.number)
    assert held.text.removeprefix("Lives in ") in last.text
    over = [each for each in homes if each is not held]
    assert len(over) == len(said) - 1
    assert all(each.superseded_by and each.held_until is not None for each in over)
    return len(said)
