"""How near to each other the vectors of a model lie that have nothing to do with each other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sqlalchemy import select

from storage.db import Database
from storage.memory.tables import memories, memory_vectors
from storage.records.memory.entries import EntryState, MemoryKind

_V = memory_vectors.c
_M = memories.c


class VectorSamples:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def cosines(self, model: str, kinds: Sequence[MemoryKind], most: int) -> list[float]:
        """Of every pair of the newest active entries of these kinds, the least first."""
        query = (
            select(_V.vector)
            .join(memories, _M.number == _V.number)
            .where(
                _V.model == model,
                _M.state == EntryState.ACTIVE.value,
                _M.kind.in_([kind.value for kind in kinds]),
            )
            .order_by(_M.number.desc())
            .limit(most)
        )
        async with self._db.read() as view:
            vectors = (await view.execute(query)).scalars().all()
        return await asyncio.to_thread(_pairs, vectors)


def _pairs(vectors: Sequence[bytes]) -> list[float]:
    # Loaded on first use: where there is no embedder, its 16 MiB are not needed.
    import numpy as np

    fitting = [each for each in vectors if len(each) == len(vectors[0])]
    if not fitting:
        return []
    rows = np.frombuffer(b"".join(fitting), dtype="<f4").reshape(len(fitting), -1)
    one, other = np.triu_indices(len(fitting), k=1)
    return [float(each) for each in np.sort((rows @ rows.T)[one, other])]
