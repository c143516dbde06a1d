from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from storage.db import Database
from storage.errors import ConcurrentUpdate, NotFound
from storage.ids import IdGenerator
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    GLOBAL_SCOPE,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    NewMemoryEntry,
)
from storage.search.inverted_index import InvertedIndex

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
ANN, BOB = MemoryScope(MemoryScopeKind.PERSON, "ann"), MemoryScope(MemoryScopeKind.PERSON, "bob")


@pytest.fixture
def index(db: Database) -> InvertedIndex:
    return InvertedIndex(db)


@pytest.fixture
def entries(db: Database, index: InvertedIndex) -> MemoryEntryRepo:
    return MemoryEntryRepo(db, IdGenerator(), index)


def fact(text: str, scope: MemoryScope = ANN, source: str | None = None) -> NewMemoryEntry:
    return NewMemoryEntry(kind=MemoryKind.FACT, scope=scope, text=text, source=source)


async def test_what_is_remembered_is_read_back_whole(
    db: Database, entries: MemoryEntryRepo
) -> None:
    new = fact("喜欢花生酱 and tea")
    async with db.write() as tx:
        made = await entries.add(tx, new, now=NOW)
    assert made is not None

    again = await entries.get(made.id, [ANN])

    assert again == made
    assert (again.text, again.scope, again.created_at) == (new.text, ANN, NOW)


async def test_nobody_sees_what_is_not_in_their_scopes(
    db: Database, entries: MemoryEntryRepo
) -> None:
    async with db.write() as tx:
        made = await entries.add(tx, fact("a secret"), now=NOW)
    assert made is not None

    for scopes in ([BOB, GLOBAL_SCOPE], []):
        with pytest.raises(NotFound):
            await entries.get(made.id, scopes)
        assert await entries.list_by_numbers([made.number], scopes) == []
        assert await entries.list(scopes) == []


async def test_the_same_source_is_written_once(db: Database, entries: MemoryEntryRepo) -> None:
    async with db.write() as tx:
        assert await entries.add(tx, fact("one", source="s"), now=NOW)
        assert await entries.add(tx, fact("two", source="s"), now=NOW) is None


async def test_what_is_forgotten_does_not_come_back(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex
) -> None:
    async with db.write() as tx:
        made = await entries.add(tx, fact("My PIN is 1234."), now=NOW)
        assert made is not None
        await entries.forget(tx, made, now=NOW)
        assert await entries.add(tx, fact("my pin is 1234"), now=NOW) is None
    assert await index.search([ANN], {"pin": 1.0}, 5) == []

    async with db.write() as tx:
        await entries.remove_tombstone(tx, ANN, "my pin is 1234")
        assert await entries.add(tx, fact("my pin is 1234"), now=NOW)


async def test_an_edit_on_an_old_revision_is_refused(
    db: Database, entries: MemoryEntryRepo
) -> None:
    async with db.write() as tx:
        made = await entries.add(tx, fact("tea"), now=NOW)
        assert made is not None
        newer = await entries.update(tx, replace(made, text="coffee"), now=NOW)
    assert newer.revision == made.revision + 1

    with pytest.raises(ConcurrentUpdate):
        async with db.write() as tx:
            await entries.update(tx, replace(made, text="water"), now=NOW)
    assert (await entries.get(made.id, None)).text == "coffee"


async def test_words_find_what_is_active_in_scope(
    db: Database, entries: MemoryEntryRepo, index: InvertedIndex
) -> None:
    async with db.write() as tx:
        mine = await entries.add(tx, fact("花生过敏"), now=NOW)
        await entries.add(tx, fact("花生过敏", BOB), now=NOW)
        old = await entries.add(tx, fact("花生酱好吃"), now=NOW)
        assert mine is not None
        assert old is not None
        await entries.update(tx, replace(old, state=MemoryState.SUPERSEDED), now=NOW)

    hits = await index.search([ANN], {"花生": 1.0}, 5)

    assert [hit.number for hit in hits] == [mine.number]
