"""The nearest vectors are found in a matrix that is read once, and again when they change."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from storage.db import Database
from storage.ids import Ids
from storage.memory.entries import EntryRepo
from storage.memory.index import Index
from storage.memory.living.vectors import Vectors
from storage.records.memory.entries import (
    Entry,
    EntryState,
    MemoryKind,
    NewEntry,
    Scope,
    ScopeKind,
)

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
ANN, BOB = Scope(ScopeKind.PERSON, "ann"), Scope(ScopeKind.PERSON, "bob")


@pytest.fixture
def entries(db: Database) -> EntryRepo:
    return EntryRepo(db, Ids(), Index(db))


@pytest.fixture
def vectors(db: Database) -> Vectors:
    return Vectors(db)


async def kept(
    db: Database, entries: EntryRepo, vectors: Vectors, scope: Scope, *rows: list[float]
) -> list[Entry]:
    made = []
    async with db.write() as tx:
        for row in rows:
            new = NewEntry(kind=MemoryKind.FACT, scope=scope, text=f"{scope} {row}")
            entry = await entries.add(tx, new, now=NOW)
            assert entry is not None
            made.append(entry)
        await vectors.put(tx, "m", list(zip(made, rows, strict=True)))
    return made


async def near(vectors: Vectors, *scopes: Scope, model: str = "m") -> list[int]:
    return [hit.number for hit in await vectors.near(scopes, model, [1.0, 0.0], 5)]


async def test_the_nearest_come_first_and_only_from_these_scopes(
    db: Database, entries: EntryRepo, vectors: Vectors
) -> None:
    far, close = await kept(db, entries, vectors, ANN, [0.0, 1.0], [0.8, 0.6])
    (other,) = await kept(db, entries, vectors, BOB, [1.0, 0.0])

    assert await near(vectors, ANN) == [close.number, far.number]
    assert await near(vectors, ANN, BOB) == [other.number, close.number, far.number]
    assert await near(vectors) == []
    assert await near(vectors, ANN, model="another") == []


async def test_what_comes_goes_or_changes_is_seen_at_once(
    db: Database, entries: EntryRepo, vectors: Vectors
) -> None:
    one, two = await kept(db, entries, vectors, ANN, [0.0, 1.0], [0.8, 0.6])
    assert await near(vectors, ANN) == [two.number, one.number]

    (three,) = await kept(db, entries, vectors, ANN, [1.0, 0.0])
    assert await near(vectors, ANN) == [three.number, two.number, one.number]

    async with db.write() as tx:
        await vectors.put(tx, "m", [(one, [0.9, 0.1])])
    assert await near(vectors, ANN) == [three.number, one.number, two.number]

    async with db.write() as tx:
        await entries.change(tx, replace(three, state=EntryState.ARCHIVED), now=NOW)
        await entries.forget(tx, two, now=NOW)
    assert await near(vectors, ANN) == [one.number]


async def test_vectors_of_another_length_are_none_of_this_model(
    db: Database, entries: EntryRepo, vectors: Vectors
) -> None:
    await kept(db, entries, vectors, ANN, [1.0, 0.0, 0.0])

    assert await near(vectors, ANN) == []
