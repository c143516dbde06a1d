"""Which entries have which words: BM25 with the figures of each scope, in plain tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import log
from typing import Any

from sqlalchemy import Row, bindparam, delete, func, insert, select, update

from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.memory.tables import memories, memory_postings, memory_scopes
from storage.memory.words import terms
from storage.records.memory.entries import EntryState, MemoryKind, Scope

_K1 = 1.2
_B = 0.4
_P = memory_postings.c
_S = memory_scopes.c
_M = memories.c

BODY, META, BEFORE, AFTER, FACTS = 1.0, 0.5, 0.5, 0.25, 1.0
"""What a word counts in an entry's own text, in its sender and date, in what was said before and
after it, and in the facts that were drawn from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """`number` is the entry's; `score` is comparable within one search only."""

    number: int
    score: float


class Index:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def put(
        self, tx: Transaction, number: int, scope: Scope, fields: Iterable[tuple[str, float]]
    ) -> None:
        """Index an entry by its texts, each with its weight, instead of whatever was there."""
        await self.remove(tx, number)
        counts: defaultdict[str, float] = defaultdict(float)
        for text, weight in fields:
            for term in terms(text):
                counts[term] += weight
        length = float(sum(counts.values()))
        scope_id = await self.scope_id(tx, scope)
        if counts:
            rows = [
                {"scope_id": scope_id, "term": t, "number": number, "tf": n, "length": length}
                for t, n in counts.items()
            ]
            await tx.execute(insert(memory_postings), rows)
        await tx.execute(update(memories).where(_M.number == number).values(length=length))
        await self._grow(tx, scope_id, 1, length)

    async def remove(self, tx: Transaction, number: int) -> None:
        held = select(_P.scope_id, func.max(_P.length)).where(_P.number == number)
        row = (await tx.execute(held.group_by(_P.scope_id))).one_or_none()
        if row is not None:
            await tx.execute(delete(memory_postings).where(_P.number == number))
            await self._grow(tx, row[0], -1, -row[1])

    async def scope_id(self, tx: Transaction, scope: Scope) -> int:
        await tx.execute(insert_or_ignore(self._db.dialect, memory_scopes).values(name=str(scope)))
        found = await tx.scalar(select(_S.id).where(_S.name == str(scope)))
        assert found is not None
        return int(found)

    async def search(
        self,
        scopes: Sequence[Scope],
        words: Mapping[str, float],
        limit: int,
        *,
        kinds: Sequence[MemoryKind] = tuple(MemoryKind),
        tx: Transaction | None = None,
    ) -> Sequence[Hit]:
        """Active entries of these scopes that have any of the words, each with its weight, best
        first. No scopes: nothing."""
        names = [str(scope) for scope in scopes]
        async with self._db.read(tx) as view:
            known = (await view.execute(select(memory_scopes).where(_S.name.in_(names)))).all()
            scores: defaultdict[int, float] = defaultdict(float)
            for scope in known:
                for number, score in await self._of_scope(view, scope, words):
                    scores[number] += score
            best = nlargest(limit * 4, scores, key=scores.__getitem__)
            alive = select(_M.number).where(
                _M.number.in_(best),
                _M.scope.in_(names),
                _M.state == EntryState.ACTIVE.value,
                _M.kind.in_([kind.value for kind in kinds]),
            )
            kept = set((await view.execute(alive)).scalars())
        return [Hit(number=n, score=scores[n]) for n in best if n in kept][:limit]

    async def _of_scope(
        self, view: Transaction, scope: Row[Any], words: Mapping[str, float]
    ) -> Iterable[tuple[int, float]]:
        entries, average = scope.entries, scope.length / max(scope.entries, 1)
        query = select(_P.number, _P.tf, _P.length).where(
            _P.scope_id == scope.id,
            _P.term == bindparam("term"),
        )
        found: defaultdict[int, float] = defaultdict(float)
        for term, weight in words.items():
            rows = (await view.execute(query, {"term": term})).all()
            idf = log(1 + (entries - len(rows) + 0.5) / (len(rows) + 0.5))
            for number, tf, length in rows:
                part = tf * (_K1 + 1) / (tf + _K1 * (1 - _B + _B * length / max(average, 1)))
                found[number] += weight * idf * part
        return found.items()

    async def _grow(self, tx: Transaction, scope_id: int, entries: int, length: float) -> None:
        await tx.execute(
            update(memory_scopes)
            .where(_S.id == scope_id)
            .values(entries=_S.entries + entries, length=_S.length + length)
        )
