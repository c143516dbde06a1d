"""Stores postings in blocks and runs BM25 searches over scopes."""

from __future__ import annotations

import asyncio
import sys
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from heapq import nlargest
from math import log, log2
from typing import TypeAlias, TypeVar

from sqlalchemy import ColumnElement, and_, delete, select, update

from storage.db import Database, Transaction
from storage.dialect import PreparedWrite, insert_or_ignore, upsert
from storage.memory_schema import memories, memory_blocks, memory_postings, memory_scopes
from storage.records.memory import MemoryKind, MemoryScope, MemoryState
from storage.search.terms import ASKS_ASSISTANT, ASKS_SELF, is_assistant, sender_terms, tokenize

# --- BM25 over packed postings
# Rare words first, frequent words only where they can matter.

OFFSET_BITS = 11
BLOCK_SIZE = 1 << OFFSET_BITS
TF_BITS = 5
TF_MASK = (1 << TF_BITS) - 1
_TF_STEPS = 4
_LENGTH_STEPS = 16
_MAX_LENGTH_CODE = 255
K1 = 1.2
B = 0.4


def block_position(number: int) -> tuple[int, int]:
    """An entry's block and its offset there."""
    return number >> OFFSET_BITS, number & (BLOCK_SIZE - 1)


def unpack_postings(data: bytes) -> array[int]:
    """One number per posting, `offset << 5 | count`, in order; `count` is in quarters."""
    packed = array("H")
    packed.frombytes(data)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed


def pack_posting(offset: int, times: float) -> int:
    """Encodes one posting for `unpack_postings`; the count is at least a quarter."""
    steps = int(times * _TF_STEPS + 0.5)
    # Runs hundreds of times per stored entry: comparing is faster than min and max.
    if steps < 1:
        steps = 1
    elif steps > TF_MASK:
        steps = TF_MASK
    return offset << TF_BITS | steps


def merge_postings(data: bytes, new: array[int]) -> bytes:
    """Add postings, which must be in order, replacing those at the same offsets."""
    if not data or int.from_bytes(data[-2:], "little") >> TF_BITS < new[0] >> TF_BITS:
        return data + _to_bytes(new)
    counts = {each >> TF_BITS: each & TF_MASK for each in unpack_postings(data)}
    return _pack_counts(counts | {each >> TF_BITS: each & TF_MASK for each in new})


def adjust_posting(data: bytes, offset: int, times: float) -> bytes:
    """Change the count at this offset by `times`. Empty if no posting remains."""
    counts = {each >> TF_BITS: each & TF_MASK for each in unpack_postings(data)}
    counts[offset] = min(counts.get(offset, 0) + round(times * _TF_STEPS), TF_MASK)
    return _pack_counts(counts)


def remove_postings(data: bytes, offsets: frozenset[int]) -> bytes:
    held = unpack_postings(data)
    kept = array("H", [each for each in held if each >> TF_BITS not in offsets])
    return data if len(kept) == len(held) else _to_bytes(kept)


def encode_length(length: float) -> int:
    """Encode a length in one byte with about 4 % error. 0 means not indexed."""
    return max(1, min(_MAX_LENGTH_CODE, round(_LENGTH_STEPS * log2(1 + max(0.0, length)))))


def decode_length(code: int) -> float:
    return float(2 ** (code / _LENGTH_STEPS) - 1) if code else 0.0


def tf_ratios(average: float) -> list[list[float]]:
    """Term weights relative to their maximum, by count and then by length code."""
    return _cached_tf_ratios(encode_length(average))


@lru_cache(maxsize=64)
def _cached_tf_ratios(average: int) -> list[list[float]]:
    mean = max(decode_length(average), 1.0)
    norms = [K1 * (1 - B + B * decode_length(code) / mean) for code in range(_MAX_LENGTH_CODE + 1)]
    return [
        [(step / _TF_STEPS) * (K1 + 1) / (step / _TF_STEPS + norm) for norm in norms]
        for step in range(TF_MASK + 1)
    ]


def _pack_counts(counts: Mapping[int, int]) -> bytes:
    ordered = sorted(counts.items())
    return _to_bytes(array("H", [at << TF_BITS | steps for at, steps in ordered if steps > 0]))


def _to_bytes(packed: array[int]) -> bytes:
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


_MAX_POSTINGS_READ = 16_000
"""Maximum postings read for a search in each scope."""
_MIN_POSTINGS_TO_SKIP = 2_000
"""Below this number, postings are read without checking whether they can matter."""
_CANDIDATES = 500
ADDRESSEE_WEIGHT = 0.3
"""Weight of a sender's name in a text: usually another sender wrote it."""
_POSTING_TF_BITS = TF_MASK.bit_length()

PackedPostings: TypeAlias = Sequence[tuple[int, bytes]]
"""One word's postings by block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopePostings:
    """A scope's data for a search: number of entries, their total length, the lengths in each
    block, and the postings of the query's words."""

    entries: int
    length: float
    lengths: Mapping[int, bytes]
    postings: Mapping[str, PackedPostings]


@dataclass(frozen=True, slots=True)
class _QueryTerm:
    value: float
    packed: PackedPostings
    df: int


def top_scores(scope: ScopePostings, words: Mapping[str, float], limit: int) -> Mapping[int, float]:
    """At least the `limit` best entries, if there are as many, with their scores by number."""
    return _TopScorer(scope, limit).score(_rank_terms(scope, words))


def inverse_frequency(matching: int, entries: int) -> float:
    """How telling a word is that `matching` of the entries have."""
    # The counters may lag: no more entries can match than exist.
    return log(1 + (max(entries - matching, 0) + 0.5) / (matching + 0.5))


def _rank_terms(shelf: ScopePostings, words: Mapping[str, float]) -> Sequence[_QueryTerm]:
    found = []
    for term, weight in words.items():
        packed = shelf.postings.get(term, ())
        if df := sum(len(data) for _, data in packed) // 2:
            idf = inverse_frequency(df, shelf.entries)
            said = ADDRESSEE_WEIGHT if f"@{term}" in shelf.postings else 1.0
            found.append(_QueryTerm(weight * said * idf, packed, df))
    return sorted(found, key=lambda word: word.value, reverse=True)


class _TopScorer:
    def __init__(self, shelf: ScopePostings, most: int) -> None:
        self._lengths = shelf.lengths
        self._ratios = tf_ratios(shelf.length / max(shelf.entries, 1))
        self._most = most
        self._scores: defaultdict[int, float] = defaultdict(float)
        self._budget = _MAX_POSTINGS_READ

    def score(self, words: Sequence[_QueryTerm]) -> Mapping[int, float]:
        bound = sum(word.value for word in words) * (K1 + 1)
        for at, word in enumerate(words):
            if self._can_stop(words[at:], bound):
                return self._refine(words[at:], bound)
            self._add(word)
            bound -= word.value * (K1 + 1)
        return self._scores

    def _can_stop(self, rest: Sequence[_QueryTerm], bound: float) -> bool:
        """Whether entries without any word so far can no longer be among the best, or reading on
        would exceed the budget."""
        postings = sum(word.df for word in rest)
        if postings < _MIN_POSTINGS_TO_SKIP or len(self._scores) < self._most:
            return self._budget <= 0
        if rest[0].df > self._budget:
            return True
        if rest[0].df < len(self._scores):
            # Reading is faster than checking here.
            return False
        return nlargest(self._most, self._scores.values())[-1] > bound

    def _add(self, word: _QueryTerm) -> None:
        """Reads the newest blocks first, as far as the budget allows."""
        scores, value, of = self._scores, word.value, self._ratios
        for block, data in reversed(word.packed):
            if self._budget <= 0:
                return
            base, lengths = block << OFFSET_BITS, self._lengths[block]
            packed = unpack_postings(data)
            self._budget -= len(packed)
            for each in packed:
                offset = each >> _POSTING_TF_BITS
                scores[base + offset] += value * of[each & TF_MASK][lengths[offset]]

    def _refine(self, rest: Sequence[_QueryTerm], bound: float) -> Mapping[int, float]:
        """Apply the remaining words only to entries that can still be among the best."""
        scores = self._scores
        good = nlargest(_CANDIDATES, zip(scores.values(), scores, strict=True))
        least = good[min(self._most, len(good)) - 1][0] - bound
        places: defaultdict[int, list[int]] = defaultdict(list)
        for score, number in good:
            if score >= least:
                places[number >> OFFSET_BITS].append(number)
        for word in rest:
            for block, data in word.packed:
                if block in places:
                    self._look_up(places[block], block, data, word.value)
        return {n: scores[n] for numbers in places.values() for n in numbers}

    def _look_up(self, numbers: Sequence[int], block: int, data: bytes, value: float) -> None:
        packed, base, lengths = unpack_postings(data), block << OFFSET_BITS, self._lengths[block]
        end = len(packed)
        for number in numbers:
            offset = number - base
            at = bisect_left(packed, offset << _POSTING_TF_BITS)
            if at < end and packed[at] >> _POSTING_TF_BITS == offset:
                self._scores[number] += value * self._ratios[packed[at] & TF_MASK][lengths[offset]]


_P = memory_postings.c
_L = memory_blocks.c
_S = memory_scopes.c
_T = TypeVar("_T")
_BATCH_SIZE = 500
_COLUMNS = ("scope_id", "block", "term", "data")


@dataclass(frozen=True, slots=True)
class BlockAdditions:
    """Additions to one block: each word's postings in order, and the lengths by offset."""

    words: defaultdict[str, array[int]] = field(default_factory=lambda: defaultdict(_no_postings))
    lengths: dict[int, float] = field(default_factory=dict)


def _no_postings() -> array[int]:
    return array("H")


BlockKey: TypeAlias = tuple[int, int]
"""A scope's number and a block."""


class PostingStore:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._put = PreparedWrite(
            lambda dialect: upsert(dialect, memory_postings, _COLUMNS, _COLUMNS[:3]), *_COLUMNS
        )

    async def get_or_create_scope_id(self, tx: Transaction, scope: MemoryScope) -> int:
        query = select(_S.id).where(_S.name == str(scope))
        found = await tx.scalar(query)
        if found is None:
            new = insert_or_ignore(self._db.dialect, memory_scopes).values(name=str(scope))
            await tx.execute(new)
            found = await tx.scalar(query)
        assert found is not None
        return int(found)

    async def get_lengths(self, tx: Transaction, key: BlockKey) -> bytes:
        query = select(_L.lengths).where(_L.scope_id == key[0], _L.block == key[1])
        return await tx.scalar(query) or b""

    async def get_lengths_by_scope(self, tx: Transaction, block: int) -> Mapping[int, bytes]:
        """The lengths of the block's entries, by scope."""
        query = select(_L.scope_id, _L.lengths).where(_L.block == block)
        return {row.scope_id: row.lengths for row in await tx.execute(query)}

    async def add(self, tx: Transaction, key: BlockKey, new: BlockAdditions) -> None:
        old = await self.get_lengths(tx, key)
        held = await self.load_block(tx, key, list(new.words)) if old else {}
        words = {
            term: merge_postings(held.get(term, b""), some) for term, some in new.words.items()
        }
        await self._store(tx, key, words)
        await self._update_lengths(tx, key, old, new.lengths)

    async def adjust(
        self, tx: Transaction, key: BlockKey, by: Mapping[int, Mapping[str, float]]
    ) -> None:
        """Change word counts by offset. Entries that are not indexed stay unchanged."""
        old = await self.get_lengths(tx, key)
        changes = {
            offset: {term: times for term, times in words.items() if times}
            for offset, words in by.items()
            if has_entry(old, offset)
        }
        terms = list(dict.fromkeys(term for words in changes.values() for term in words))
        if not terms:
            return
        held = await self.load_block(tx, key, terms)
        new = {term: held.get(term, b"") for term in terms}
        for offset, words in changes.items():
            for term, times in words.items():
                new[term] = adjust_posting(new[term], offset, times)
        await self._store(tx, key, {t: data for t, data in new.items() if data or t in held})
        lengths = {
            offset: decode_length(old[offset]) + sum(words.values())
            for offset, words in changes.items()
            if words
        }
        await self._update_lengths(tx, key, old, lengths)

    async def erase(self, tx: Transaction, key: BlockKey, offsets: frozenset[int]) -> None:
        """Delete everything at these offsets."""
        held = await self.load_block(tx, key, None)
        left = await asyncio.to_thread(_without_offsets, held, offsets)
        await self._store(tx, key, left)
        old = await self.get_lengths(tx, key)
        await self._update_lengths(tx, key, old, dict.fromkeys(offsets))

    async def load_scopes(
        self, view: Transaction, names: Sequence[str], words: Sequence[str]
    ) -> Sequence[ScopePostings]:
        """The data a search for these words needs, for the named scopes."""
        known = _S.id == _L.scope_id
        query = select(memory_scopes, _L.block, _L.lengths).where(known, _S.name.in_(names))
        blocks: defaultdict[tuple[int, int, float], dict[int, bytes]] = defaultdict(dict)
        for row in await view.execute(query):
            blocks[row.id, row.entries, row.length][row.block] = row.lengths
        return [
            ScopePostings(
                entries=entries,
                length=length,
                lengths=lengths,
                postings=await self._load_scope_postings(view, scope_id, sorted(lengths), words),
            )
            for (scope_id, entries, length), lengths in blocks.items()
        ]

    async def _load_scope_postings(
        self, view: Transaction, scope_id: int, blocks: Sequence[int], words: Sequence[str]
    ) -> Mapping[str, PackedPostings]:
        """Naming the blocks makes SQLite use the index instead of scanning the scope."""
        found: defaultdict[str, list[tuple[int, bytes]]] = defaultdict(list)
        query = select(_P.term, _P.block, _P.data).where(_P.scope_id == scope_id)
        for some in in_chunks(blocks, _BATCH_SIZE):
            here = query.where(_P.block.in_(some), _P.term.in_(words))
            for term, block, data in await view.execute(here):
                found[term].append((block, data))
        return {term: sorted(packed) for term, packed in found.items()}

    async def load_block(
        self, tx: Transaction, place: BlockKey, words: Sequence[str] | None
    ) -> Mapping[str, bytes]:
        """Postings of these words, or of all."""
        query = select(_P.term, _P.data).where(_P.scope_id == place[0], _P.block == place[1])
        if words is None:
            return {row.term: row.data for row in await tx.execute(query)}
        held: dict[str, bytes] = {}
        for some in in_chunks(words, _BATCH_SIZE):
            rows = await tx.execute(query.where(_P.term.in_(some)))
            held.update({row.term: row.data for row in rows})
        return held

    async def _store(self, tx: Transaction, place: BlockKey, words: Mapping[str, bytes]) -> None:
        """Store the packed postings and delete words without any."""
        scope_id, block = place
        put = [(scope_id, block, term, data) for term, data in words.items() if data]
        if put:
            await self._put.send_many(tx, put)
        here = delete(memory_postings).where(_P.scope_id == scope_id, _P.block == block)
        for some in in_chunks([term for term, data in words.items() if not data], _BATCH_SIZE):
            await tx.execute(here.where(_P.term.in_(some)))

    async def _update_lengths(
        self, tx: Transaction, place: BlockKey, old: bytes, lengths: Mapping[int, float | None]
    ) -> None:
        """Update the lengths and the scope's totals."""
        scope_id, block = place
        codes = bytearray(old.ljust(max(lengths, default=-1) + 1, b"\0"))
        for offset, length_there in lengths.items():
            codes[offset] = 0 if length_there is None else encode_length(length_there)
        new = bytes(codes)
        columns = ("scope_id", "block", "lengths")
        row = {"scope_id": scope_id, "block": block, "lengths": new}
        await tx.execute(upsert(self._db.dialect, memory_blocks, columns, columns[:2]), row)
        entries = len(new) - new.count(0) - (len(old) - old.count(0))
        length = sum(map(decode_length, new)) - sum(map(decode_length, old))
        await tx.execute(
            update(memory_scopes)
            .where(_S.id == scope_id)
            .values(entries=_S.entries + entries, length=_S.length + length)
        )


def has_entry(lengths: bytes, offset: int) -> bool:
    return offset < len(lengths) and lengths[offset] > 0


def in_chunks(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    yield from (items[at : at + size] for at in range(0, len(items), size))


def _without_offsets(words: Mapping[str, bytes], offsets: frozenset[int]) -> Mapping[str, bytes]:
    """The changed words, without these offsets."""
    left = ((term, data, remove_postings(data, offsets)) for term, data in words.items())
    return {term: kept for term, data, kept in left if kept is not data}


_M = memories.c
_POOL = 100
_SENDER_BOOST = 1.8
"""Factor for entries of a requested sender (measured by `benchmarks memory`)."""
_MAX_INLINE_BYTES = 10_000
"""Bytes of postings scored inline; more are scored in a thread."""

TermWeights: TypeAlias = Mapping[str, float]
"""An entry's words, each weighted by count and position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """`number` identifies the entry; `score` is comparable within one search only. `relevance` is
    comparable across searches and stores: 1 is about one word of the query that no other entry of
    the scope has."""

    number: int
    score: float
    relevance: float = 1.0


class InvertedIndex:
    """Write to it within the transaction that changes the entries."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._postings = PostingStore(db)

    async def put(
        self, tx: Transaction, rows: Iterable[tuple[int, MemoryScope, TermWeights]]
    ) -> None:
        """Index entries by all their words; larger batches are faster. An entry indexed with other
        words must be removed first."""
        places: defaultdict[tuple[MemoryScope, int], BlockAdditions] = defaultdict(BlockAdditions)
        for number, scope, words in sorted(rows, key=lambda row: row[0]):
            block, offset = block_position(number)
            new = places[scope, block]
            new.lengths[offset] = sum(words.values())
            by_term = new.words
            for term, times in words.items():
                by_term[term].append(pack_posting(offset, times))
        for (scope, block), new in places.items():
            await self._postings.add(
                tx, (await self._postings.get_or_create_scope_id(tx, scope), block), new
            )

    async def adjust(
        self, tx: Transaction, number: int, scope: MemoryScope, by: TermWeights
    ) -> None:
        """Change word weights of an entry. Does nothing if it is not indexed."""
        await self.adjust_all(tx, scope, {number: by})

    async def adjust_all(
        self, tx: Transaction, scope: MemoryScope, by: Mapping[int, TermWeights]
    ) -> None:
        """Like `adjust` for several entries of one scope: each block is read and written once."""
        blocks: defaultdict[int, dict[int, TermWeights]] = defaultdict(dict)
        for number, words in by.items():
            block, offset = block_position(number)
            blocks[block][offset] = words
        scope_id = await self._postings.get_or_create_scope_id(tx, scope)
        for block, words_of in blocks.items():
            await self._postings.adjust(tx, (scope_id, block), words_of)

    async def remove(self, tx: Transaction, numbers: Iterable[int]) -> None:
        """Remove entries completely."""
        blocks: defaultdict[int, set[int]] = defaultdict(set)
        for number in numbers:
            block, offset = block_position(number)
            blocks[block].add(offset)
        for block, offsets in blocks.items():
            for scope_id, lengths in (await self._postings.get_lengths_by_scope(tx, block)).items():
                if here := frozenset(each for each in offsets if has_entry(lengths, each)):
                    await self._postings.erase(tx, (scope_id, block), here)

    async def search(
        self,
        scopes: Sequence[MemoryScope],
        words: Mapping[str, float],
        limit: int,
        *,
        kinds: Sequence[MemoryKind] = tuple(MemoryKind),
        states: Sequence[MemoryState] = (MemoryState.ACTIVE,),
        tx: Transaction | None = None,
    ) -> Sequence[SearchHit]:
        """Entries of these scopes and states with any of the weighted words, best first. If exactly
        one sender is named, that sender's entries count more. Without scopes the result is
        empty."""
        names = [str(scope) for scope in scopes]
        if not names or not words or limit < 1:
            return ()
        most = max(_POOL, 2 * limit)
        where = and_(
            _M.scope.in_(names),
            _M.state.in_([state.value for state in states]),
            _M.kind.in_([kind.value for kind in kinds]),
        )
        async with self._db.read(tx) as view:
            shelves = await self._postings.load_scopes(view, names, list(words))
            work = partial(_score_scopes, shelves, words, most)
            is_quick = sum(map(_postings_size, shelves)) < _MAX_INLINE_BYTES
            found = work() if is_quick else await asyncio.to_thread(work)
            scores = {number: score for number, (score, _) in found.items()}
            senders = await self._select_shown(view, scores, most, where)
        asked_for = _requested_senders(set(senders.values()), words)
        hits = [
            SearchHit(
                number=number,
                score=scores[number] * (_SENDER_BOOST if sender in asked_for else 1.0),
                relevance=found[number][1],
            )
            for number, sender in senders.items()
        ]
        return nlargest(limit, hits, key=lambda hit: (hit.score, hit.number))

    async def _select_shown(
        self,
        view: Transaction,
        scores: Mapping[int, float],
        most: int,
        where: ColumnElement[bool],
    ) -> Mapping[int, str]:
        """The best entries that may be shown, with their senders. The index contains others too."""
        kept: dict[int, str] = {}
        for some in _rank_batches(scores, most):
            query = select(_M.number, _M.sender).where(_M.number.in_(some), where)
            kept.update({row.number: row.sender for row in await view.execute(query)})
            if len(kept) >= most:
                break
        return kept


def _score_scopes(
    scopes: Sequence[ScopePostings], words: Mapping[str, float], most: int
) -> Mapping[int, tuple[float, float]]:
    """Score and relevance by number."""
    found: dict[int, tuple[float, float]] = {}
    for shelf in scopes:
        rarest = inverse_frequency(1, shelf.entries)
        scores = top_scores(shelf, words, most)
        found.update({number: (score, score / rarest) for number, score in scores.items()})
    return found


def _rank_batches(scores: Mapping[int, float], most: int) -> Iterator[Sequence[int]]:
    """Batches in descending score, newest first among equals; lazy, so that few results need no
    full sort."""
    found = zip(scores.values(), scores, strict=True)
    first = [number for _, number in nlargest(most, found)]
    yield first
    if len(first) < len(scores):
        found = zip(scores.values(), scores, strict=True)
        rest = [number for _, number in sorted(found, reverse=True)][most:]
        yield from in_chunks(rest, most)


def _postings_size(shelf: ScopePostings) -> int:
    return sum(len(data) for packed in shelf.postings.values() for _, data in packed)


def _requested_senders(senders: set[str], words: Mapping[str, float]) -> Collection[str]:
    """The sender named by the query, if it is exactly one: by full name, else by a part of it. If
    none is named and one sender is an assistant: that one for `you`, the others for `I`."""
    whole = [each for each in senders if each and not set(tokenize(each)).difference(words)]
    part = [each for each in senders if not words.keys().isdisjoint(sender_terms(each))]
    if named := whole or part:
        return named if len(named) == 1 else ()
    assistants = set(filter(is_assistant, senders))
    if not assistants:
        return ()
    return (
        assistants
        if ASKS_ASSISTANT in words
        else senders - assistants
        if ASKS_SELF in words
        else ()
    )
