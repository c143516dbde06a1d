"""Ranking is BM25 by the book, however the postings are packed and pruned."""

from __future__ import annotations

import random
from array import array
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.db import Database
from storage.ids import IdGenerator
from storage.memory.bulk_import import ConversationImporter
from storage.memory.cells import CellRepo
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    NewMemoryEntry,
)
from storage.search import inverted_index
from storage.search.inverted_index import (
    BLOCK_SIZE,
    InvertedIndex,
    ScopePostings,
    adjust_posting,
    decode_length,
    encode_length,
    merge_postings,
    pack_posting,
    remove_postings,
    top_scores,
    unpack_postings,
)
from storage.search.terms import query_terms

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
ANN, BOB = MemoryScope(MemoryScopeKind.PERSON, "ann"), MemoryScope(MemoryScopeKind.PERSON, "bob")


@pytest.fixture
def index(db: Database) -> InvertedIndex:
    return InvertedIndex(db)


@pytest.fixture
def entries(db: Database, index: InvertedIndex) -> MemoryEntryRepo:
    return MemoryEntryRepo(db, IdGenerator(), index)


def cell(
    text: str, *, sender: str = "", hours: int = 0, scope: MemoryScope = ANN
) -> NewMemoryEntry:
    return NewMemoryEntry(
        kind=MemoryKind.CELL,
        scope=scope,
        text=text,
        sender=sender,
        thread="t",
        said_at=NOW + timedelta(hours=hours),
        source=f"{scope} {text}",
    )


async def kept(db: Database, index: InvertedIndex, *rows: NewMemoryEntry) -> int:
    async with db.write() as tx:
        return await ConversationImporter(db, IdGenerator(), index, rows[0].scope).add(
            tx, rows, now=NOW
        )


async def found(
    entries: MemoryEntryRepo, index: InvertedIndex, scope: MemoryScope, *words: str
) -> list[str]:
    hits = await index.search([scope], dict.fromkeys(words, 1.0), 10)
    return [
        each.text for each in await entries.list_by_numbers([hit.number for hit in hits], [scope])
    ]


@given(st.dictionaries(st.integers(0, BLOCK_SIZE - 1), st.floats(0.25, 7.75), max_size=50))
def test_postings_keep_what_they_are_given(times: Mapping[int, float]) -> None:
    data = b""
    for offset, count in sorted(times.items()):
        data = merge_postings(data, array("H", [pack_posting(offset, count)]))

    read = {each >> 5: (each & 31) / 4 for each in unpack_postings(data)}

    assert list(read) == sorted(times)
    assert all(abs(read[offset] - count) <= 0.126 for offset, count in times.items())
    assert remove_postings(data, frozenset(times)) == b""
    for offset in times:
        data = adjust_posting(data, offset, -8.0)
    assert data == b""


@given(st.floats(0, 50_000))
def test_a_length_is_kept_within_five_percent(length: float) -> None:
    assert abs(decode_length(encode_length(length)) - length) <= 0.05 * length + 0.05


def test_pruning_changes_nothing_among_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(5)
    shelf, words = made_up_shelf(dice, entries=6_000)

    exact = top_scores(shelf, words, limit=10**9)
    monkeypatch.setattr(inverted_index, "_MIN_POSTINGS_TO_SKIP", 0)
    pruned = top_scores(shelf, words, limit=20)

    assert len(pruned) < len(exact)
    first = sorted(exact.values(), reverse=True)[:20]
    assert sorted(pruned.values(), reverse=True)[:20] == pytest.approx(first)


def test_a_search_reads_a_bounded_number_of_postings(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, words = made_up_shelf(random.Random(5), entries=6_000)
    monkeypatch.setattr(inverted_index, "_MAX_POSTINGS_READ", 3_000)

    assert len(top_scores(shelf, words, limit=20)) <= 3_000 + BLOCK_SIZE


def made_up_shelf(dice: random.Random, entries: int) -> tuple[ScopePostings, dict[str, float]]:
    words = {f"w{n}": 1.0 for n in range(6)}
    postings: dict[str, list[tuple[int, bytes]]] = {word: [] for word in words}
    lengths = {}
    for block in range(entries // BLOCK_SIZE + 1):
        size = min(BLOCK_SIZE, entries - block * BLOCK_SIZE)
        lengths[block] = bytes(dice.randint(60, 130) for _ in range(size))
        for rank, word in enumerate(words):
            share = 0.002 * 4**rank
            data = array("H", [pack_posting(n, 1) for n in range(size) if dice.random() < share])
            postings[word].append((block, data.tobytes()))
    shelf = ScopePostings(
        entries=entries, length=40.0 * entries, lengths=lengths, postings=postings
    )
    return shelf, words


async def test_scores_are_those_of_the_formula(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex
) -> None:
    async with db.write() as tx:
        await index.put(
            tx, [(1, ANN, {"a": 2.0, "b": 1.0}), (2, ANN, {"a": 1.0}), (3, ANN, {"c": 1.0})]
        )

    shelf = (await shelves(db, index))[0]
    score = top_scores(shelf, {"a": 1.0}, 10)

    idf = log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    average = 5 / 3
    for number, times, length in ((1, 2, 3), (2, 1, 1)):
        norm = 1.2 * (1 - 0.4 + 0.4 * length / average)
        assert score[number] == pytest.approx(idf * times * 2.2 / (times + norm), rel=0.03)


async def shelves(db: Database, index: InvertedIndex) -> list[ScopePostings]:
    async with db.read() as view:
        return list(await index._postings.load_scopes(view, [str(ANN)], ["a"]))


async def test_each_scope_has_its_own_rare_words(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex
) -> None:
    await kept(db, index, cell("apple tree"), cell("pear"), cell("plum"))
    await kept(db, index, *[cell(f"apple {n}", scope=BOB) for n in range(20)])

    rare = await index.search([ANN], {"appl": 1.0}, 1)
    frequent = await index.search([BOB], {"appl": 1.0}, 1)

    assert rare[0].score > frequent[0].score


async def test_what_was_said_before_and_after_is_found_too_but_behind(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex
) -> None:
    rows = [cell("Which pet?"), cell("A parrot."), cell("How loud."), cell("Next day.", hours=20)]
    await kept(db, index, *rows)

    assert await found(entries, index, ANN, "parrot") == ["A parrot.", "How loud.", "Which pet?"]


@pytest.mark.parametrize(("said", "asked"), [("看醫生", "医生"), ("看医生", "醫生")])
async def test_traditional_and_simplified_characters_find_one_another(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex, said: str, asked: str
) -> None:
    await kept(db, index, cell(said), cell("買菜"))

    wanted = query_terms(asked, now=NOW, zone=UTC)

    assert (await found(entries, index, ANN, *wanted))[:1] == [said]


async def test_what_is_asked_finds_the_answer_before_the_question(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex
) -> None:
    rows = ["Which pet do you have?", "A parrot.", "Loud?", "Loud, and we have it for ever."]
    await kept(db, index, *map(cell, rows))

    pets = await found(entries, index, ANN, "pet")

    assert pets == ["A parrot.", "Which pet do you have?", "Loud?"]


async def test_two_turns_back_still_counts_in_one_import_or_in_many(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex
) -> None:
    rows = [cell("The harbour."), cell("Cold wind."), cell("Grey sea."), cell("Home again.")]
    await kept(db, index, *rows[:2])
    await kept(db, index, *rows[2:])
    other = [replace(row, scope=BOB, source=f"b {row.source}") for row in rows]
    await kept(db, index, *other)

    mine = await index.search([ANN], {"harbour": 1.0}, 9)
    theirs = await index.search([BOB], {"harbour": 1.0}, 9)

    assert [hit.score for hit in mine] == [hit.score for hit in theirs]
    assert len(mine) == 3


async def test_turns_of_a_chat_are_found_by_those_around_them_until_these_are_forgotten(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex
) -> None:
    cells = CellRepo(db, entries)
    for text in ("The harbour.", "Cold wind.", "Grey sea.", "Home again."):
        async with db.write() as tx:
            await cells.add(tx, cell(text), now=NOW)
    whole = ["The harbour.", "Cold wind.", "Grey sea."]
    assert await found(entries, index, ANN, "harbour") == whole
    first = (await entries.list([ANN]))[-1]

    async with db.write() as tx:
        await entries.forget(tx, first, now=NOW)

    assert await found(entries, index, ANN, "harbour") == []


async def test_neighbours_are_told_of_what_comes_later_and_of_what_goes(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex
) -> None:
    await kept(db, index, cell("Which pet?"))
    await kept(db, index, cell("A parrot."))
    assert await found(entries, index, ANN, "parrot") == ["A parrot.", "Which pet?"]
    second = (await entries.list([ANN]))[0]

    async with db.write() as tx:
        second = await entries.update(tx, replace(second, text="A canary."), now=NOW)
    assert await found(entries, index, ANN, "parrot") == []
    assert await found(entries, index, ANN, "canary") == ["A canary.", "Which pet?"]

    async with db.write() as tx:
        await entries.forget(tx, second, now=NOW)
    assert await found(entries, index, ANN, "canary") == []


@pytest.mark.parametrize("order", ["newest first", "oldest first", "any"])
async def test_what_is_forgotten_leaves_no_word_behind(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex, order: str
) -> None:
    await kept(db, index, *[cell(f"word{n} shared. Is it{n}?") for n in range(30)])
    everything = list(await entries.list([ANN], limit=100))
    if order == "oldest first":
        everything.reverse()
    elif order == "any":
        random.Random(5).shuffle(everything)
    for each in everything:
        async with db.write() as tx:
            await entries.forget(tx, each, now=NOW)

    async with db.read() as view:
        rest = await index._postings.load_block(view, (1, 0), None)
        lengths = await index._postings.get_lengths(view, (1, 0))
    assert rest == {}
    assert not any(lengths)


async def test_importing_again_changes_nothing(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex
) -> None:
    rows = [cell("one two"), cell("three four"), cell("five")]
    assert await kept(db, index, *rows) == 3
    before = await scores(index)

    assert await kept(db, index, *rows) == 0
    assert await scores(index) == before
    assert len(await entries.list([ANN])) == 3


async def scores(index: InvertedIndex) -> list[tuple[int, float]]:
    hits = await index.search([ANN], {"two": 1.0, "four": 1.0}, 10)
    return [(hit.number, hit.score) for hit in hits]


async def test_what_was_forgotten_is_not_imported_again(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex
) -> None:
    await kept(db, index, cell("my secret"))
    async with db.write() as tx:
        await entries.forget(tx, (await entries.list([ANN]))[0], now=NOW)

    assert await kept(db, index, cell("my secret")) == 0


@pytest.mark.parametrize("owen", ["Owen", "Owen Marsh"])
async def test_a_sender_who_is_named_comes_first(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex, owen: str
) -> None:
    await kept(
        db,
        index,
        cell("Owen, I painted the boat today", sender="Mara"),
        cell("I painted the boat today", sender=owen, hours=20),
        cell("What a day", sender="Mara", hours=40),
    )

    hits = await index.search([ANN], {"owen": 1.0, "@owen": 1.0, "boat": 1.0, "paint": 1.0}, 5)
    first = (await entries.list_by_numbers([hits[0].number], [ANN]))[0]

    assert first.sender == owen


@pytest.mark.parametrize(
    ("query", "sender"), [("Which tea do you like?", "Assistant"), ("Which tea do I like?", "Ann")]
)
async def test_to_an_assistant_you_is_the_assistant_and_i_am_somebody_else(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex, query: str, sender: str
) -> None:
    rows = [cell("Green tea.", sender=each, hours=20 * n) for n, each in enumerate(["Ann", "Bo"])]
    await kept(db, index, *rows, cell("Black tea, say.", sender="Assistant", hours=60))

    hits = await index.search([ANN], query_terms(query, now=NOW, zone=UTC), 5)
    first = (await entries.list_by_numbers([hits[0].number], [ANN]))[0]

    assert first.sender == sender


async def test_what_may_not_be_shown_makes_room_for_what_may(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex
) -> None:
    await kept(
        db,
        index,
        *[cell(f"tea tea tea {n}") for n in range(450)],
        cell("tea with a long tail of words"),
    )
    made: list[MemoryEntry] = list(await entries.list([ANN], limit=1))
    async with db.write() as tx:
        fact = NewMemoryEntry(
            kind=MemoryKind.FACT, scope=ANN, text="tea among many other things here"
        )
        await entries.add(tx, fact, now=NOW)

    hits = await index.search([ANN], {"tea": 1.0}, 1, kinds=[MemoryKind.FACT])

    assert len(hits) == 1
    assert hits[0].number == made[0].number + 1


async def test_no_scopes_and_no_words_find_nothing(db: Database, index: InvertedIndex) -> None:
    await kept(db, index, cell("tea"))

    assert await index.search([], {"tea": 1.0}, 5) == ()
    assert await index.search([ANN], {}, 5) == ()
    assert await index.search([BOB], {"tea": 1.0}, 5) == []
