"""The nearest vectors are found in a matrix that is read once, and again when they change."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from storage.db import Database
from storage.ids import IdGenerator
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    NewMemoryEntry,
)
from storage.search.inverted_index import InvertedIndex
from storage.search.vectors import VectorRepo

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
ANN, BOB = MemoryScope(MemoryScopeKind.PERSON, "ann"), MemoryScope(MemoryScopeKind.PERSON, "bob")


@pytest.fixture
def entries(db: Database) -> MemoryEntryRepo:
    return MemoryEntryRepo(db, IdGenerator(), InvertedIndex(db))


@pytest.fixture
def vectors(db: Database) -> VectorRepo:
    return VectorRepo(db)


async def kept(
    db: Database,
    entries: MemoryEntryRepo,
    vectors: VectorRepo,
    scope: MemoryScope,
    *rows: list[float],
) -> list[MemoryEntry]:
    made = []
    async with db.write() as tx:
        for row in rows:
            new = NewMemoryEntry(kind=MemoryKind.FACT, scope=scope, text=f"{scope} {row}")
            entry = await entries.add(tx, new, now=NOW)
            assert entry is not None
            made.append(entry)
        await vectors.put(tx, "m", list(zip(made, rows, strict=True)))
    return made


async def near(vectors: VectorRepo, *scopes: MemoryScope, model: str = "m") -> list[int]:
    return [hit.number for hit in await vectors.near(scopes, model, [1.0, 0.0], 5)]


async def test_the_nearest_come_first_and_only_from_these_scopes(
    db: Database, entries: MemoryEntryRepo, vectors: VectorRepo
) -> None:
    far, close = await kept(db, entries, vectors, ANN, [0.0, 1.0], [0.8, 0.6])
    (other,) = await kept(db, entries, vectors, BOB, [1.0, 0.0])

    assert await near(vectors, ANN) == [close.number, far.number]
    assert await near(vectors, ANN, BOB) == [other.number, close.number, far.number]
    assert await near(vectors) == []
    assert await near(vectors, ANN, model="another") == []


async def test_what_comes_goes_or_changes_is_seen_at_once(
    db: Database, entries: MemoryEntryRepo, vectors: VectorRepo
) -> None:
    one, two = await kept(db, entries, vectors, ANN, [0.0, 1.0], [0.8, 0.6])
    assert await near(vectors, ANN) == [two.number, one.number]

    (three,) = await kept(db, entries, vectors, ANN, [1.0, 0.0])
    assert await near(vectors, ANN) == [three.number, two.number, one.number]

    async with db.write() as tx:
        await vectors.put(tx, "m", [(one, [0.9, 0.1])])
    assert await near(vectors, ANN) == [three.number, one.number, two.number]

    async with db.write() as tx:
        await entries.update(tx, replace(three, state=MemoryState.ARCHIVED), now=NOW)
        await entries.forget(tx, two, now=NOW)
    assert await near(vectors, ANN) == [one.number]


async def test_vectors_of_another_length_are_none_of_this_model(
    db: Database, entries: MemoryEntryRepo, vectors: VectorRepo
) -> None:
    await kept(db, entries, vectors, ANN, [1.0, 0.0, 0.0])

    assert await near(vectors, ANN) == []
