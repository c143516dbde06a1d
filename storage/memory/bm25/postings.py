"""Postings as they are stored: written block by block, read for a search in one go."""

from __future__ import annotations

import asyncio
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from sqlalchemy import delete, select, update

from storage.db import Database, Transaction
from storage.dialect import FixedWrite, insert_or_ignore, upsert
from storage.memory.bm25.blocks import length_code, length_of, merged, shifted, without
from storage.memory.bm25.scoring import Packed, Shelf
from storage.memory.tables import memory_blocks, memory_postings, memory_scopes
from storage.records.memory.entries import Scope

_P = memory_postings.c
_L = memory_blocks.c
_S = memory_scopes.c
_T = TypeVar("_T")
_AT_ONCE = 500
_COLUMNS = ("scope_id", "block", "term", "data")


@dataclass(frozen=True, slots=True)
class New:
    """What comes to one block: for each word its postings in order, and how long what they are of
    is."""

    words: defaultdict[str, array[int]] = field(default_factory=lambda: defaultdict(_no_postings))
    lengths: dict[int, float] = field(default_factory=dict)


def _no_postings() -> array[int]:
    return array("H")


Place: TypeAlias = tuple[int, int]
"""A scope's number, and a block."""


class Postings:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._put = FixedWrite(
            lambda dialect: upsert(dialect, memory_postings, _COLUMNS, _COLUMNS[:3]), *_COLUMNS
        )

    async def scope_id(self, tx: Transaction, scope: Scope) -> int:
        query = select(_S.id).where(_S.name == str(scope))
        found = await tx.scalar(query)
        if found is None:
            new = insert_or_ignore(self._db.dialect, memory_scopes).values(name=str(scope))
            await tx.execute(new)
            found = await tx.scalar(query)
        assert found is not None
        return int(found)

    async def lengths(self, tx: Transaction, place: Place) -> bytes:
        query = select(_L.lengths).where(_L.scope_id == place[0], _L.block == place[1])
        return await tx.scalar(query) or b""

    async def scopes_of(self, tx: Transaction, block: int) -> Mapping[int, bytes]:
        """The lengths of the block's entries in every scope that has some there."""
        query = select(_L.scope_id, _L.lengths).where(_L.block == block)
        return {row.scope_id: row.lengths for row in await tx.execute(query)}

    async def add(self, tx: Transaction, place: Place, new: New) -> None:
        old = await self.lengths(tx, place)
        held = await self._held(tx, place, list(new.words)) if old else {}
        words = {term: merged(held.get(term, b""), some) for term, some in new.words.items()}
        await self._store(tx, place, words)
        await self._measure(tx, place, old, new.lengths)

    async def shift(
        self, tx: Transaction, place: Place, by: Mapping[int, Mapping[str, float]]
    ) -> None:
        """Each of these words is there so many times more, or less, by the offset. Nothing is
        where nothing was before."""
        old = await self.lengths(tx, place)
        changes = {
            offset: {term: times for term, times in words.items() if times}
            for offset, words in by.items()
            if has(old, offset)
        }
        terms = list(dict.fromkeys(term for words in changes.values() for term in words))
        if not terms:
            return
        held = await self._held(tx, place, terms)
        new = {term: held.get(term, b"") for term in terms}
        for offset, words in changes.items():
            for term, times in words.items():
                new[term] = shifted(new[term], offset, times)
        await self._store(tx, place, {t: data for t, data in new.items() if data or t in held})
        lengths = {
            offset: length_of(old[offset]) + sum(words.values())
            for offset, words in changes.items()
            if words
        }
        await self._measure(tx, place, old, lengths)

    async def erase(self, tx: Transaction, place: Place, offsets: frozenset[int]) -> None:
        """Every trace of what is there."""
        held = await self._held(tx, place, None)
        left = await asyncio.to_thread(_rid, held, offsets)
        await self._store(tx, place, left)
        old = await self.lengths(tx, place)
        await self._measure(tx, place, old, dict.fromkeys(offsets))

    async def shelves(
        self, view: Transaction, names: Sequence[str], words: Sequence[str]
    ) -> Sequence[Shelf]:
        """What a search for these words needs of the scopes with these names."""
        known = _S.id == _L.scope_id
        query = select(memory_scopes, _L.block, _L.lengths).where(known, _S.name.in_(names))
        blocks: defaultdict[tuple[int, int, float], dict[int, bytes]] = defaultdict(dict)
        for row in await view.execute(query):
            blocks[row.id, row.entries, row.length][row.block] = row.lengths
        return [
            Shelf(
                entries=entries,
                length=length,
                lengths=lengths,
                postings=await self._of_scope(view, scope_id, sorted(lengths), words),
            )
            for (scope_id, entries, length), lengths in blocks.items()
        ]

    async def _of_scope(
        self, view: Transaction, scope_id: int, blocks: Sequence[int], words: Sequence[str]
    ) -> Mapping[str, Packed]:
        """The blocks are named, for a look-up each: SQLite would walk through the whole scope."""
        found: defaultdict[str, list[tuple[int, bytes]]] = defaultdict(list)
        query = select(_P.term, _P.block, _P.data).where(_P.scope_id == scope_id)
        for some in chunks(blocks, _AT_ONCE):
            here = query.where(_P.block.in_(some), _P.term.in_(words))
            for term, block, data in await view.execute(here):
                found[term].append((block, data))
        return {term: sorted(packed) for term, packed in found.items()}

    async def _held(
        self, tx: Transaction, place: Place, words: Sequence[str] | None
    ) -> Mapping[str, bytes]:
        query = select(_P.term, _P.data).where(_P.scope_id == place[0], _P.block == place[1])
        if words is None:
            return {row.term: row.data for row in await tx.execute(query)}
        held: dict[str, bytes] = {}
        for some in chunks(words, _AT_ONCE):
            rows = await tx.execute(query.where(_P.term.in_(some)))
            held.update({row.term: row.data for row in rows})
        return held

    async def _store(self, tx: Transaction, place: Place, words: Mapping[str, bytes]) -> None:
        """What nobody has any more is taken away."""
        scope_id, block = place
        put = [(scope_id, block, term, data) for term, data in words.items() if data]
        if put:
            await self._put.send_many(tx, put)
        here = delete(memory_postings).where(_P.scope_id == scope_id, _P.block == block)
        for some in chunks([term for term, data in words.items() if not data], _AT_ONCE):
            await tx.execute(here.where(_P.term.in_(some)))

    async def _measure(
        self, tx: Transaction, place: Place, old: bytes, lengths: Mapping[int, float | None]
    ) -> None:
        """Note the lengths, and what the scope has more or less in all."""
        scope_id, block = place
        codes = bytearray(old.ljust(max(lengths, default=-1) + 1, b"\0"))
        for offset, length_there in lengths.items():
            codes[offset] = 0 if length_there is None else length_code(length_there)
        new = bytes(codes)
        columns = ("scope_id", "block", "lengths")
        row = {"scope_id": scope_id, "block": block, "lengths": new}
        await tx.execute(upsert(self._db.dialect, memory_blocks, columns, columns[:2]), row)
        entries = len(new) - new.count(0) - (len(old) - old.count(0))
        length = sum(map(length_of, new)) - sum(map(length_of, old))
        await tx.execute(
            update(memory_scopes)
            .where(_S.id == scope_id)
            .values(entries=_S.entries + entries, length=_S.length + length)
        )


def has(lengths: bytes, offset: int) -> bool:
    return offset < len(lengths) and lengths[offset] > 0


def chunks(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    yield from (items[at : at + size] for at in range(0, len(items), size))


def _rid(words: Mapping[str, bytes], offsets: frozenset[int]) -> Mapping[str, bytes]:
    """Those that change, without these offsets."""
    left = ((term, data, without(data, offsets)) for term, data in words.items())
    return {term: kept for term, data, kept in left if kept is not data}
