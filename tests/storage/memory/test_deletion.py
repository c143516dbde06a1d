"""Tests that deletion removes restatements too and leaves tombstones without text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from storage.db import Database
from storage.ids import IdGenerator
from storage.memory.cells import CellRepo
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    GLOBAL_SCOPE,
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    NewMemoryEntry,
)
from storage.search.inverted_index import InvertedIndex

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
ANN, BOB = MemoryScope(MemoryScopeKind.PERSON, "ann"), MemoryScope(MemoryScopeKind.PERSON, "bob")
THREAD = "chat:c"


class MemoryStore:
    def __init__(self, db: Database) -> None:
        self.db = db
        self.index = InvertedIndex(db)
        self.entries = MemoryEntryRepo(db, IdGenerator(), self.index)
        self.cells = CellRepo(db, self.entries)

    async def say(self, text: str, scope: MemoryScope = ANN, *, at: datetime = NOW) -> MemoryEntry:
        new = NewMemoryEntry(
            kind=MemoryKind.CELL, scope=scope, text=text, thread=THREAD, said_at=at
        )
        async with self.db.write() as tx:
            made = await self.cells.add(tx, new, now=NOW)
        assert made is not None
        return made

    async def tell(self, cells: Sequence[MemoryEntry], scope: MemoryScope) -> MemoryEntry:
        ids = [each.id for each in cells]
        new = NewMemoryEntry(kind=MemoryKind.EPISODE, scope=scope, text="They spoke.", evidence=ids)
        async with self.db.write() as tx:
            made = await self.entries.add(tx, new, now=NOW)
        assert made is not None
        return made

    async def texts(self) -> list[str]:
        return sorted(each.text for each in await self.entries.list(None))

    async def found(self, word: str) -> list[str]:
        hits = await self.index.search([ANN], {word: 1.0}, 20)
        found = await self.entries.list_by_numbers([hit.number for hit in hits], [ANN])
        return sorted(each.text for each in found)


@pytest.fixture
def shelf(db: Database) -> MemoryStore:
    return MemoryStore(db)


async def test_many_at_once_leave_what_one_after_the_other_would(
    db: Database, shelf: MemoryStore
) -> None:
    said = [await shelf.say(f"w{n}") for n in range(9)]
    async with db.write() as tx:
        await shelf.entries.delete_all(tx, [said[1], said[2], said[6]])

    assert await shelf.texts() == ["w0", "w3", "w4", "w5", "w7", "w8"]
    assert [await shelf.found(f"w{n}") for n in (1, 2, 6)] == [[], [], []]
    # What stayed is still found by what stayed around it.
    assert await shelf.found("w4") == ["w3", "w4", "w5"]
    assert await shelf.found("w8") == ["w7", "w8"]


async def test_many_that_go_write_the_index_once(
    db: Database, shelf: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [await shelf.say(f"w{n}") for n in range(12)]
    written = list[int]()
    remove = shelf.index.remove

    async def counted(tx: object, numbers: Sequence[int]) -> None:
        written.append(len(list(numbers)))
        await remove(tx, numbers)  # type: ignore[arg-type]  # the transaction that it was given

    monkeypatch.setattr(shelf.index, "remove", counted)
    async with db.write() as tx:
        await shelf.entries.delete_all(tx, said[:8])

    assert written == [8]


async def test_an_episode_that_tells_of_it_goes_wherever_it_is_by_now(
    db: Database, shelf: MemoryStore
) -> None:
    said, other = await shelf.say("the code is 4711"), await shelf.say("the sea", BOB)
    await shelf.tell([said], GLOBAL_SCOPE)
    await shelf.tell([other], BOB)
    async with db.write() as tx:
        await shelf.entries.forget(tx, said, now=NOW)

    left = await shelf.entries.list(None, kinds=[MemoryKind.EPISODE])
    assert [each.scope for each in left] == [BOB]


async def test_what_was_forgotten_is_known_by_its_id_whatever_it_said(
    db: Database, shelf: MemoryStore
) -> None:
    said, kept = await shelf.say("first wording"), await shelf.say("another")
    async with db.write() as tx:
        changed = await shelf.entries.update(tx, replace(said, text="new wording"), now=NOW)
        await shelf.entries.forget(tx, changed, now=NOW)

    assert await shelf.entries.tombstones.filter_forgotten_ids([said.id, kept.id]) == {said.id}


async def test_a_forgotten_turn_is_known_by_its_moment_and_its_words_until_said_again(
    db: Database, shelf: MemoryStore
) -> None:
    said = await shelf.say("The code is 4711")
    tombstones = shelf.entries.tombstones
    assert not await tombstones.get_forgotten_turns(THREAD)
    async with db.write() as tx:
        await shelf.entries.forget(tx, said, now=NOW + timedelta(hours=1))
    gone, elsewhere = (
        await tombstones.get_forgotten_turns(THREAD),
        await tombstones.get_forgotten_turns("chat:d"),
    )

    assert gone.covers("whatever was answered", NOW - timedelta(seconds=2))
    assert gone.covers("the CODE is 4711!", NOW - timedelta(minutes=10))
    assert not gone.covers("the weather", NOW - timedelta(minutes=10))
    assert not gone.covers("The code is 4711", NOW + timedelta(hours=2))
    assert not elsewhere
