"""What entries mean, as vectors: of each model its own, compared within it only."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence

from sqlalchemy import and_, delete, exists, func, insert, select

from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.memory.index import Hit
from storage.memory.rows import entry_of
from storage.memory.tables import memories, memory_scopes, memory_vectors
from storage.memory.vectors import Matrices
from storage.records.memory.entries import Entry, EntryState, MemoryKind, Scope

_V = memory_vectors.c
_M = memories.c
_S = memory_scopes.c


class Vectors:
    """Vectors are of length 1, so that their product is their cosine."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._matrices = Matrices(db)

    async def put(
        self, tx: Transaction, model: str, rows: Sequence[tuple[Entry, Sequence[float]]]
    ) -> None:
        """Instead of those there were. An entry that has changed or gone meanwhile gets none."""
        self._matrices.change()
        for entry, vector in rows:
            where = and_(_M.number == entry.number, _M.revision == entry.revision)
            if await tx.scalar(select(_M.number).where(where)) is None:
                continue
            await tx.execute(delete(memory_vectors).where(_V.number == entry.number))
            row = {
                "number": entry.number,
                "model": model,
                "scope_id": await self._scope_id(tx, entry.scope),
                "vector": array("f", vector).tobytes(),
            }
            await tx.execute(insert(memory_vectors).values(row))

    async def missing(
        self,
        model: str,
        kinds: Sequence[MemoryKind],
        limit: int,
        *,
        besides: Collection[int] = (),
    ) -> Sequence[Entry]:
        """Active entries that have no vector of this model yet, the newest first."""
        has = exists().where(_V.number == _M.number, _V.model == model)
        query = (
            select(memories)
            .where(
                _M.state == EntryState.ACTIVE.value,
                _M.kind.in_([kind.value for kind in kinds]),
                ~has,
                _M.number.not_in(list(besides)),
            )
            .order_by(_M.number.desc())
            .limit(limit)
        )
        async with self._db.read() as view:
            return [entry_of(row) for row in (await view.execute(query)).all()]

    async def count(self, model: str) -> int:
        query = select(func.count()).select_from(memory_vectors).where(_V.model == model)
        async with self._db.read() as view:
            return await view.scalar(query) or 0

    async def near(
        self,
        scopes: Sequence[Scope],
        model: str,
        vector: Sequence[float],
        limit: int,
        *,
        kinds: Sequence[MemoryKind] = tuple(MemoryKind),
    ) -> Sequence[Hit]:
        """Active entries of these scopes by cosine, the nearest first. No scopes: nothing."""
        found = await self._matrices.near(scopes, model, vector, limit, kinds=kinds)
        return [Hit(number=number, score=score) for number, score in found]

    async def _scope_id(self, tx: Transaction, scope: Scope) -> int:
        await tx.execute(insert_or_ignore(self._db.dialect, memory_scopes).values(name=str(scope)))
        found = await tx.scalar(select(_S.id).where(_S.name == str(scope)))
        assert found is not None
        return int(found)
