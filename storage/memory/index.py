"""Which entries have which words: BM25 with the figures of each scope, in plain tables."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from typing import TypeAlias

from sqlalchemy import select

from storage.db import Database, Transaction
from storage.memory.bm25.blocks import place_of, posting
from storage.memory.bm25.postings import New, Postings, chunks, has
from storage.memory.bm25.scoring import Shelf, best
from storage.memory.lexicon.asking import ASSISTANT, ONESELF, is_assistant
from storage.memory.tables import memories
from storage.memory.words import sender_tokens, terms
from storage.records.memory.entries import EntryState, MemoryKind, Scope

_M = memories.c
_POOL = 100
_SENDER_ASKED_FOR = 1.8
"""Times what anybody else's entry counts (docs/memory.md has what it brings)."""
_QUICK = 10_000
"""Bytes of postings that are scored right away; more are scored beside the event loop."""

Words: TypeAlias = Mapping[str, float]
"""The words of an entry, and what each counts by how often and where it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """`number` is the entry's; `score` is comparable within one search only."""

    number: int
    score: float


class Index:
    """Written to within the transaction that changes the entries."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._postings = Postings(db)

    async def put(self, tx: Transaction, rows: Iterable[tuple[int, Scope, Words]]) -> None:
        """Index entries by all of their words: the more at once, the quicker. One that had other
        words has to be removed first."""
        places: defaultdict[tuple[Scope, int], New] = defaultdict(New)
        for number, scope, words in sorted(rows, key=lambda row: row[0]):
            block, offset = place_of(number)
            new = places[scope, block]
            new.lengths[offset] = sum(words.values())
            by_term = new.words
            for term, times in words.items():
                by_term[term].append(posting(offset, times))
        for (scope, block), new in places.items():
            await self._postings.add(tx, (await self._postings.scope_id(tx, scope), block), new)

    async def adjust(self, tx: Transaction, number: int, scope: Scope, by: Words) -> None:
        """Count words of an entry so much more, or less. One that is not indexed is left alone."""
        await self.adjust_all(tx, scope, {number: by})

    async def adjust_all(self, tx: Transaction, scope: Scope, by: Mapping[int, Words]) -> None:
        """The same of several of one scope: each block is read and written once."""
        blocks: defaultdict[int, dict[int, Words]] = defaultdict(dict)
        for number, words in by.items():
            block, offset = place_of(number)
            blocks[block][offset] = words
        scope_id = await self._postings.scope_id(tx, scope)
        for block, words_of in blocks.items():
            await self._postings.shift(tx, (scope_id, block), words_of)

    async def remove(self, tx: Transaction, numbers: Iterable[int]) -> None:
        """Every trace of these entries."""
        blocks: defaultdict[int, set[int]] = defaultdict(set)
        for number in numbers:
            block, offset = place_of(number)
            blocks[block].add(offset)
        for block, offsets in blocks.items():
            for scope_id, lengths in (await self._postings.scopes_of(tx, block)).items():
                if here := frozenset(each for each in offsets if has(lengths, each)):
                    await self._postings.erase(tx, (scope_id, block), here)

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
        first. Where just one sender's name is among the words, what that one said counts more. No
        scopes: nothing."""
        names = [str(scope) for scope in scopes]
        if not names or not words or limit < 1:
            return ()
        most = max(_POOL, 2 * limit)
        async with self._db.read(tx) as view:
            shelves = await self._postings.shelves(view, names, list(words))
            work = partial(_scores, shelves, words, most)
            is_quick = sum(map(_size, shelves)) < _QUICK
            scores = work() if is_quick else await asyncio.to_thread(work)
            senders = await self._alive(view, scores, names, kinds, most)
        asked_for = _asked_for(set(senders.values()), words)
        hits = [
            Hit(
                number=number,
                score=scores[number] * (_SENDER_ASKED_FOR if sender in asked_for else 1.0),
            )
            for number, sender in senders.items()
        ]
        return nlargest(limit, hits, key=lambda hit: (hit.score, hit.number))

    async def _alive(
        self,
        view: Transaction,
        scores: Mapping[int, float],
        names: Sequence[str],
        kinds: Sequence[MemoryKind],
        most: int,
    ) -> Mapping[int, str]:
        """The best of those that may be shown, and who said them. The index has others, too."""
        kept: dict[int, str] = {}
        for some in _ranked(scores, most):
            query = select(_M.number, _M.sender).where(
                _M.number.in_(some),
                _M.scope.in_(names),
                _M.state == EntryState.ACTIVE.value,
                _M.kind.in_([kind.value for kind in kinds]),
            )
            kept.update({row.number: row.sender for row in await view.execute(query)})
            if len(kept) >= most:
                break
        return kept


def _scores(shelves: Sequence[Shelf], words: Mapping[str, float], most: int) -> Mapping[int, float]:
    scores: dict[int, float] = {}
    for shelf in shelves:
        scores.update(best(shelf, words, most))
    return scores


def _ranked(scores: Mapping[int, float], most: int) -> Iterator[Sequence[int]]:
    """The best first, the newest first among equals. Whoever is content with some is spared the
    sorting of all."""
    found = zip(scores.values(), scores, strict=True)
    first = [number for _, number in nlargest(most, found)]
    yield first
    if len(first) < len(scores):
        found = zip(scores.values(), scores, strict=True)
        rest = [number for _, number in sorted(found, reverse=True)][most:]
        yield from chunks(rest, most)


def _size(shelf: Shelf) -> int:
    return sum(len(data) for packed in shelf.postings.values() for _, data in packed)


def _asked_for(senders: set[str], words: Mapping[str, float]) -> Collection[str]:
    """Whoever is named, if it is just one: by the whole name, or else by a part of it. Where
    nobody is, and one of them is an assistant: that one for `you`, and the others for `I`."""
    whole = [each for each in senders if each and not set(terms(each)).difference(words)]
    part = [each for each in senders if not words.keys().isdisjoint(sender_tokens(each))]
    if named := whole or part:
        return named if len(named) == 1 else ()
    assistants = set(filter(is_assistant, senders))
    if not assistants:
        return ()
    return assistants if ASSISTANT in words else senders - assistants if ONESELF in words else ()
