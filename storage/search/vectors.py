"""Stores entry vectors for each embedding model and searches them by cosine."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import and_, delete, exists, func, insert, select

from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.memory_schema import entry_from_row, memories, memory_scopes, memory_vectors
from storage.records.memory import MemoryEntry, MemoryKind, MemoryScope, MemoryState
from storage.search.inverted_index import SearchHit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_V = memory_vectors.c
_M = memories.c
_S = memory_scopes.c
_MAX_CACHE_BYTES = 64 * 1024 * 1024
_MAX_WRITE_SECONDS = 10.0
"""Seconds after which a transaction that wrote vectors has surely ended."""
_OVERFETCH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _VectorMatrix:
    """`numbers` of the entries, one row each; read at time `at`, when `count` of them existed."""

    numbers: NDArray[np.int64]
    rows: NDArray[np.float32]
    count: int
    at: float


class VectorMatrixCache:
    """Caches a scope's vectors as a matrix. If another process overwrites a vector, the cache
    notices with the next insertion or deletion."""

    def __init__(self, db: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._clock = clock
        self._cached: OrderedDict[tuple[int, str, int], _VectorMatrix] = OrderedDict()
        self._changed_at = float("-inf")

    def invalidate(self) -> None:
        """Call this within the transaction that writes vectors."""
        self._changed_at = self._clock()
        self._cached.clear()

    async def near(
        self,
        scopes: Sequence[MemoryScope],
        model: str,
        vector: Sequence[float],
        limit: int,
        *,
        kinds: Sequence[MemoryKind],
    ) -> Sequence[tuple[int, float]]:
        """Active entries by cosine, nearest first. Vectors of another length are ignored."""
        names = [str(scope) for scope in scopes]
        if not names or limit < 1:
            return ()
        async with self._db.read() as view:
            ids = (await view.execute(select(_S.id).where(_S.name.in_(names)))).scalars().all()
            found: list[tuple[float, int]] = []
            for scope_id in ids:
                matrix = await self._matrix(view, scope_id, model, len(vector))
                if matrix is not None:
                    found += await asyncio.to_thread(_nearest, matrix, vector, _OVERFETCH * limit)
            found.sort(reverse=True)
            alive = await _active_numbers(view, [number for _, number in found], names, kinds)
        return [(number, score) for score, number in found if number in alive][:limit]

    async def _matrix(
        self, view: Transaction, scope_id: int, model: str, size: int
    ) -> _VectorMatrix | None:
        key = (scope_id, model, size)
        here = (_V.scope_id == scope_id) & (_V.model == model)
        count = await view.scalar(select(func.count()).select_from(memory_vectors).where(here)) or 0
        kept = self._cached.get(key)
        is_settled = kept is not None and kept.at - self._changed_at > _MAX_WRITE_SECONDS
        if kept is not None and kept.count == count and is_settled:
            self._cached.move_to_end(key)
            return kept
        rows = (await view.execute(select(_V.number, _V.vector).where(here))).all()
        at = self._clock()
        matrix = await asyncio.to_thread(
            _build_matrix, [(row.number, row.vector) for row in rows], size, at
        )
        if matrix is not None:
            self._cached[key] = matrix
            while sum(each.rows.nbytes for each in self._cached.values()) > _MAX_CACHE_BYTES:
                self._cached.popitem(last=False)
        return matrix


async def _active_numbers(
    view: Transaction, numbers: Sequence[int], names: Sequence[str], kinds: Sequence[MemoryKind]
) -> frozenset[int]:
    query = select(_M.number).where(
        _M.number.in_(numbers),
        _M.scope.in_(names),
        _M.state == MemoryState.ACTIVE.value,
        _M.kind.in_([kind.value for kind in kinds]),
    )
    return frozenset((await view.execute(query)).scalars())


def _build_matrix(rows: Sequence[tuple[int, bytes]], size: int, at: float) -> _VectorMatrix | None:
    # Loaded on first use: installations without an embedder save 16 MiB.
    import numpy as np

    fitting = [(number, data) for number, data in rows if len(data) == 4 * size]
    if not fitting:
        return None
    joined = b"".join(data for _, data in fitting)
    return _VectorMatrix(
        numbers=np.array([number for number, _ in fitting], dtype=np.int64),
        rows=np.frombuffer(joined, dtype="<f4").reshape(len(fitting), size),
        count=len(rows),
        at=at,
    )


def _nearest(matrix: _VectorMatrix, vector: Sequence[float], most: int) -> list[tuple[float, int]]:
    import numpy as np  # as above

    scores = matrix.rows @ np.asarray(vector, dtype=np.float32)
    best = np.argsort(-scores, kind="stable")[:most]
    return [(float(scores[at]), int(matrix.numbers[at])) for at in best]


class VectorSamples:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def cosines(self, model: str, kinds: Sequence[MemoryKind], most: int) -> list[float]:
        """Cosines of all pairs of the newest active entries of these kinds, in ascending order."""
        query = (
            select(_V.vector)
            .join(memories, _M.number == _V.number)
            .where(
                _V.model == model,
                _M.state == MemoryState.ACTIVE.value,
                _M.kind.in_([kind.value for kind in kinds]),
            )
            .order_by(_M.number.desc())
            .limit(most)
        )
        vectors = await self._db.fetch_column(query)
        return await asyncio.to_thread(_pairwise_cosines, vectors)


def _pairwise_cosines(vectors: Sequence[bytes]) -> list[float]:
    # Loaded on first use: installations without an embedder save 16 MiB.
    import numpy as np

    fitting = [each for each in vectors if len(each) == len(vectors[0])]
    if not fitting:
        return []
    rows = np.frombuffer(b"".join(fitting), dtype="<f4").reshape(len(fitting), -1)
    one, other = np.triu_indices(len(fitting), k=1)
    return [float(each) for each in np.sort((rows @ rows.T)[one, other])]


class VectorRepo:
    """Vectors have length 1, so their dot product is their cosine."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._matrices = VectorMatrixCache(db)

    async def put(
        self, tx: Transaction, model: str, rows: Sequence[tuple[MemoryEntry, Sequence[float]]]
    ) -> None:
        """Replace vectors. Entries that have changed or gone since get none."""
        self._matrices.invalidate()
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

    async def list_without_vector(
        self,
        model: str,
        kinds: Sequence[MemoryKind],
        limit: int,
        *,
        excluding: Collection[int] = (),
    ) -> Sequence[MemoryEntry]:
        """Active entries without a vector of this model, newest first."""
        has = exists().where(_V.number == _M.number, _V.model == model)
        query = (
            select(memories)
            .where(
                _M.state == MemoryState.ACTIVE.value,
                _M.kind.in_([kind.value for kind in kinds]),
                ~has,
                _M.number.not_in(list(excluding)),
            )
            .order_by(_M.number.desc())
            .limit(limit)
        )
        return [entry_from_row(row) for row in await self._db.fetch_all(query)]

    async def count(self, model: str) -> int:
        query = select(func.count()).select_from(memory_vectors).where(_V.model == model)
        return await self._db.fetch_value(query) or 0

    async def near(
        self,
        scopes: Sequence[MemoryScope],
        model: str,
        vector: Sequence[float],
        limit: int,
        *,
        kinds: Sequence[MemoryKind] = tuple(MemoryKind),
    ) -> Sequence[SearchHit]:
        """Active entries of these scopes by cosine, nearest first. Without scopes the result is
        empty."""
        found = await self._matrices.near(scopes, model, vector, limit, kinds=kinds)
        return [SearchHit(number=number, score=score) for number, score in found]

    async def _scope_id(self, tx: Transaction, scope: MemoryScope) -> int:
        await tx.execute(insert_or_ignore(self._db.dialect, memory_scopes).values(name=str(scope)))
        found = await tx.scalar(select(_S.id).where(_S.name == str(scope)))
        assert found is not None
        return int(found)
