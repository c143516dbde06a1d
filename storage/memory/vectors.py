"""The vectors of a scope as one matrix, read once and kept until they change."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from storage.db import Database, Transaction
from storage.memory.tables import memories, memory_scopes, memory_vectors
from storage.records.memory.entries import EntryState, MemoryKind, Scope

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_V = memory_vectors.c
_M = memories.c
_S = memory_scopes.c
_MOST_BYTES = 64 * 1024 * 1024
_LONGEST_WRITE = 10.0
"""Seconds within which a transaction that has written vectors is surely over."""
_MORE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matrix:
    """`numbers` of the entries, a row for each; read `at`, when there were `count` of them."""

    numbers: NDArray[np.int64]
    rows: NDArray[np.float32]
    count: int
    at: float


class Matrices:
    """What another process writes over a vector is seen with the next one that comes or goes."""

    def __init__(self, db: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._clock = clock
        self._kept: OrderedDict[tuple[int, str, int], _Matrix] = OrderedDict()
        self._changed_at = float("-inf")

    def change(self) -> None:
        """To be told by whoever writes vectors, within the transaction."""
        self._changed_at = self._clock()
        self._kept.clear()

    async def near(
        self,
        scopes: Sequence[Scope],
        model: str,
        vector: Sequence[float],
        limit: int,
        *,
        kinds: Sequence[MemoryKind],
    ) -> Sequence[tuple[int, float]]:
        """Active entries by cosine, the nearest first. Vectors of another length are none of this
        model."""
        names = [str(scope) for scope in scopes]
        if not names or limit < 1:
            return ()
        async with self._db.read() as view:
            ids = (await view.execute(select(_S.id).where(_S.name.in_(names)))).scalars().all()
            found: list[tuple[float, int]] = []
            for scope_id in ids:
                matrix = await self._matrix(view, scope_id, model, len(vector))
                if matrix is not None:
                    found += await asyncio.to_thread(_nearest, matrix, vector, _MORE * limit)
            found.sort(reverse=True)
            alive = await _alive(view, [number for _, number in found], names, kinds)
        return [(number, score) for score, number in found if number in alive][:limit]

    async def _matrix(
        self, view: Transaction, scope_id: int, model: str, size: int
    ) -> _Matrix | None:
        key = (scope_id, model, size)
        here = (_V.scope_id == scope_id) & (_V.model == model)
        count = await view.scalar(select(func.count()).select_from(memory_vectors).where(here)) or 0
        kept = self._kept.get(key)
        is_settled = kept is not None and kept.at - self._changed_at > _LONGEST_WRITE
        if kept is not None and kept.count == count and is_settled:
            self._kept.move_to_end(key)
            return kept
        rows = (await view.execute(select(_V.number, _V.vector).where(here))).all()
        at = self._clock()
        matrix = await asyncio.to_thread(
            _stacked, [(row.number, row.vector) for row in rows], size, at
        )
        if matrix is not None:
            self._kept[key] = matrix
            while sum(each.rows.nbytes for each in self._kept.values()) > _MOST_BYTES:
                self._kept.popitem(last=False)
        return matrix


async def _alive(
    view: Transaction, numbers: Sequence[int], names: Sequence[str], kinds: Sequence[MemoryKind]
) -> frozenset[int]:
    query = select(_M.number).where(
        _M.number.in_(numbers),
        _M.scope.in_(names),
        _M.state == EntryState.ACTIVE.value,
        _M.kind.in_([kind.value for kind in kinds]),
    )
    return frozenset((await view.execute(query)).scalars())


def _stacked(rows: Sequence[tuple[int, bytes]], size: int, at: float) -> _Matrix | None:
    # Loaded on first use: where there is no embedder, its 16 MiB are not needed.
    import numpy as np

    fitting = [(number, data) for number, data in rows if len(data) == 4 * size]
    if not fitting:
        return None
    joined = b"".join(data for _, data in fitting)
    return _Matrix(
        numbers=np.array([number for number, _ in fitting], dtype=np.int64),
        rows=np.frombuffer(joined, dtype="<f4").reshape(len(fitting), size),
        count=len(rows),
        at=at,
    )


def _nearest(matrix: _Matrix, vector: Sequence[float], most: int) -> list[tuple[float, int]]:
    import numpy as np  # as above

    scores = matrix.rows @ np.asarray(vector, dtype=np.float32)
    best = np.argsort(-scores, kind="stable")[:most]
    return [(float(scores[at]), int(matrix.numbers[at])) for at in best]
