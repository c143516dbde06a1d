"""What goes takes with it what would still say it, and leaves marks that hold no words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from storage.db import Database
from storage.ids import Ids
from storage.memory.cells import Cells
from storage.memory.entries import EntryRepo
from storage.memory.index import Index
from storage.records.memory.entries import (
    GLOBAL,
    Entry,
    MemoryKind,
    NewEntry,
    Scope,
    ScopeKind,
)

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
ANN, BOB = Scope(ScopeKind.PERSON, "ann"), Scope(ScopeKind.PERSON, "bob")
THREAD = "chat:c"


class Shelf:
    def __init__(self, db: Database) -> None:
        self.db = db
        self.index = Index(db)
        self.entries = EntryRepo(db, Ids(), self.index)
        self.cells = Cells(db, self.entries)

    async def say(self, text: str, scope: Scope = ANN, *, at: datetime = NOW) -> Entry:
        new = NewEntry(kind=MemoryKind.CELL, scope=scope, text=text, thread=THREAD, said_at=at)
        async with self.db.write() as tx:
            made = await self.cells.add(tx, new, now=NOW)
        assert made is not None
        return made

    async def tell(self, cells: Sequence[Entry], scope: Scope) -> Entry:
        ids = [each.id for each in cells]
        new = NewEntry(kind=MemoryKind.EPISODE, scope=scope, text="They spoke.", evidence=ids)
        async with self.db.write() as tx:
            made = await self.entries.add(tx, new, now=NOW)
        assert made is not None
        return made

    async def texts(self) -> list[str]:
        return sorted(each.text for each in await self.entries.list(None))

    async def found(self, word: str) -> list[str]:
        hits = await self.index.search([ANN], {word: 1.0}, 20)
        found = await self.entries.numbered([hit.number for hit in hits], [ANN])
        return sorted(each.text for each in found)


@pytest.fixture
def shelf(db: Database) -> Shelf:
    return Shelf(db)


async def test_many_at_once_leave_what_one_after_the_other_would(
    db: Database, shelf: Shelf
) -> None:
    said = [await shelf.say(f"w{n}") for n in range(9)]
    async with db.write() as tx:
        await shelf.entries.drop_all(tx, [said[1], said[2], said[6]])

    assert await shelf.texts() == ["w0", "w3", "w4", "w5", "w7", "w8"]
    assert [await shelf.found(f"w{n}") for n in (1, 2, 6)] == [[], [], []]
    # What stayed is still found by what stayed around it.
    assert await shelf.found("w4") == ["w3", "w4", "w5"]
    assert await shelf.found("w8") == ["w7", "w8"]


async def test_many_that_go_write_the_index_once(
    db: Database, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [await shelf.say(f"w{n}") for n in range(12)]
    written = list[int]()
    remove = shelf.index.remove

    async def counted(tx: object, numbers: Sequence[int]) -> None:
        written.append(len(list(numbers)))
        await remove(tx, numbers)  # type: ignore[arg-type]  # the transaction that it was given

    monkeypatch.setattr(shelf.index, "remove", counted)
    async with db.write() as tx:
        await shelf.entries.drop_all(tx, said[:8])

    assert written == [8]


async def test_an_episode_that_tells_of_it_goes_wherever_it_is_by_now(
    db: Database, shelf: Shelf
) -> None:
    said, other = await shelf.say("the code is 4711"), await shelf.say("the sea", BOB)
    await shelf.tell([said], GLOBAL)
    await shelf.tell([other], BOB)
    async with db.write() as tx:
        await shelf.entries.forget(tx, said, now=NOW)

    left = await shelf.entries.list(None, kinds=[MemoryKind.EPISODE])
    assert [each.scope for each in left] == [BOB]


async def test_what_was_forgotten_is_known_by_its_id_whatever_it_said(
    db: Database, shelf: Shelf
) -> None:
    said, kept = await shelf.say("first wording"), await shelf.say("another")
    async with db.write() as tx:
        changed = await shelf.entries.change(tx, replace(said, text="new wording"), now=NOW)
        await shelf.entries.forget(tx, changed, now=NOW)

    assert await shelf.entries.tombstones.ids([said.id, kept.id]) == {said.id}


async def test_a_forgotten_turn_is_known_by_its_moment_and_its_words_until_said_again(
    db: Database, shelf: Shelf
) -> None:
    said = await shelf.say("The code is 4711")
    tombstones = shelf.entries.tombstones
    assert not await tombstones.unsaid(THREAD)
    async with db.write() as tx:
        await shelf.entries.forget(tx, said, now=NOW + timedelta(hours=1))
    gone, elsewhere = await tombstones.unsaid(THREAD), await tombstones.unsaid("chat:d")

    assert gone.has("whatever was answered", NOW - timedelta(seconds=2))
    assert gone.has("the CODE is 4711!", NOW - timedelta(minutes=10))
    assert not gone.has("the weather", NOW - timedelta(minutes=10))
    assert not gone.has("The code is 4711", NOW + timedelta(hours=2))
    assert not elsewhere
