"""Joins the memories of two persons who are one, and takes them apart again.

Entries move between the persons' scopes with the words they are found by. Where both know something
else about the same subject, the newer entry holds until the person has chosen; so a conflict is a
superseded entry that is linked to the one that holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, or_, select, update

from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.memory.entries import MemoryEntryRepo, MemoryLink, MemoryLinkRepo
from storage.memory_schema import (
    entry_from_row,
    memories,
    memory_jobs,
    memory_links,
    memory_tombstones,
    memory_vectors,
)
from storage.records.memory import (
    EntryId,
    ExtractionJobState,
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    support_from_extra,
    text_hash,
)
from storage.records.people import PersonId
from storage.search.inverted_index import (
    TF_BITS,
    BlockAdditions,
    PostingStore,
    block_position,
    decode_length,
    has_entry,
    in_chunks,
    unpack_postings,
)

CHOICE_LINK = "choice"
"""Links an entry that holds to one it replaced when accounts were linked. It has no weight."""

_M, _L, _J, _T = memories.c, memory_links.c, memory_jobs.c, memory_tombstones.c
_STATED = (MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM)
_ENDED_JOBS = (ExtractionJobState.DONE.value, ExtractionJobState.FAILED.value)
_BATCH_SIZE = 500


def person_scope(person: PersonId) -> MemoryScope:
    return MemoryScope(MemoryScopeKind.PERSON, person)


class LinkedMemoryRepo:
    """Every method that writes does so within the caller's transaction."""

    def __init__(self, db: Database, entries: MemoryEntryRepo) -> None:
        self._db = db
        self._entries = entries
        self._links = MemoryLinkRepo(db)
        self._postings = PostingStore(db)

    async def join(
        self, tx: Transaction, joined: PersonId, kept: PersonId, *, now: datetime
    ) -> None:
        """Make all that `joined` knows, and what they said in groups, known by `kept`."""
        old, new = person_scope(joined), person_scope(kept)
        brought = func.coalesce(_M.brought_by, joined)
        numbers = await self._move(tx, _M.scope == str(old), old, new, brought)
        said = {"person_id": kept, "brought_by": brought}
        await tx.execute(update(memories).where(_M.person_id == joined).values(said))
        await self._copy_tombstones(tx, old, new)
        await self._move_jobs(tx, old, new)
        await self._settle_conflicts(tx, new, numbers, now)

    async def separate(
        self, tx: Transaction, joined: PersonId, kept: PersonId, *, now: datetime
    ) -> None:
        """Give back what `joined` brought, as it was: what either has that was replaced by
        something of the other holds again."""
        old, new = person_scope(kept), person_scope(joined)
        theirs = and_(_M.brought_by == joined, _M.scope == str(old))
        numbers = await self._move(tx, theirs, old, new, None)
        said = {"person_id": joined, "brought_by": None}
        await tx.execute(update(memories).where(_M.brought_by == joined).values(said))
        await self._separate(tx, numbers, old, new, now)
        await self._split_jobs(tx, numbers, old, new)

    async def make_permanent(self, tx: Transaction, joined: str) -> None:
        """End the possibility to separate these memories again."""
        await tx.execute(update(memories).where(_M.brought_by == joined).values(brought_by=None))

    async def list_choices(
        self, person: PersonId, *, tx: Transaction | None = None
    ) -> Sequence[tuple[MemoryEntry, MemoryEntry]]:
        """Pairs of which the person has not chosen one yet: the entry that holds, and the other."""
        mine = memories.alias()
        other = memories.alias()
        query = (
            select(mine.c.id.label("holds"), other.c.id.label("other"))
            .select_from(memory_links)
            .join(mine, mine.c.number == _L.one)
            .join(other, other.c.number == _L.other)
            .where(
                _L.kind == CHOICE_LINK,
                mine.c.scope == str(person_scope(person)),
                other.c.scope == mine.c.scope,
                mine.c.state == MemoryState.ACTIVE.value,
                other.c.state == MemoryState.SUPERSEDED.value,
            )
            .order_by(other.c.number)
        )
        rows = await self._db.fetch_all(query, tx=tx)
        ids = {EntryId(each) for row in rows for each in (row.holds, row.other)}
        scope = [person_scope(person)]
        found = {each.id: each for each in await self._entries.list_by_ids(ids, scope, tx=tx)}
        return [(found[row.holds], found[row.other]) for row in rows]

    async def choose(
        self,
        tx: Transaction,
        pair: tuple[MemoryEntry, MemoryEntry],
        holding: Collection[EntryId],
        *,
        now: datetime,
    ) -> None:
        """End a conflict: one of the two holds, or both."""
        for each, other in (pair, pair[::-1]):
            holds = each.id in holding
            settled = replace(
                each,
                state=MemoryState.ACTIVE if holds else MemoryState.SUPERSEDED,
                superseded_by=None if holds else other.id,
                invalidated_at=None if holds else now,
                valid_until=None if holds else each.valid_until,
            )
            await self._entries.update(tx, settled, now=now)
        numbers = [each.number for each in pair]
        ends = and_(_L.one.in_(numbers), _L.other.in_(numbers), _L.kind == CHOICE_LINK)
        await tx.execute(delete(memory_links).where(ends))

    async def _move(
        self,
        tx: Transaction,
        where: ColumnElement[bool],
        old: MemoryScope,
        new: MemoryScope,
        brought_by: Any,
    ) -> Sequence[int]:
        """Move these entries and return their numbers."""
        numbers = sorted(await tx.scalars(select(_M.number).where(where)))
        from_id = await self._postings.get_or_create_scope_id(tx, old)
        to_id = await self._postings.get_or_create_scope_id(tx, new)
        for block, offsets in _by_block(numbers).items():
            await self._move_postings(tx, block, frozenset(offsets), from_id, to_id)
        values = {"scope": str(new), "revision": _M.revision + 1, "brought_by": brought_by}
        for some in in_chunks(numbers, _BATCH_SIZE):
            await tx.execute(update(memories).where(_M.number.in_(some)).values(values))
            vectors = update(memory_vectors).where(memory_vectors.c.number.in_(some))
            await tx.execute(vectors.values(scope_id=to_id))
        return numbers

    async def _move_postings(
        self, tx: Transaction, block: int, offsets: frozenset[int], old: int, new: int
    ) -> None:
        lengths = await self._postings.get_lengths(tx, (old, block))
        there = frozenset(each for each in offsets if has_entry(lengths, each))
        if not there:
            return
        held = await self._postings.load_block(tx, (old, block), None)
        await self._postings.erase(tx, (old, block), there)
        added = BlockAdditions()
        added.lengths.update({each: decode_length(lengths[each]) for each in there})
        for term, data in held.items():
            moved = [each for each in unpack_postings(data) if each >> TF_BITS in there]
            if moved:
                added.words[term].extend(moved)
        await self._postings.add(tx, (new, block), added)

    async def _copy_tombstones(self, tx: Transaction, old: MemoryScope, new: MemoryScope) -> None:
        """Copy tombstones: a fact that one side asked to forget must not come back on the other."""
        query = select(_T.hash, _T.at).where(_T.scope == str(old))
        rows = [
            {"scope": str(new), "hash": row.hash, "at": row.at} for row in await tx.execute(query)
        ]
        if rows:
            await tx.execute(insert_or_ignore(self._db.dialect, memory_tombstones), rows)

    async def _settle_conflicts(
        self, tx: Transaction, scope: MemoryScope, numbers: Collection[int], now: datetime
    ) -> None:
        """Keep one of two entries with the same words. Of two about the same subject let one hold:
        one that was written by hand, else the newer."""
        query = select(memories).where(
            _M.scope == str(scope),
            _M.state == MemoryState.ACTIVE.value,
            _M.kind.in_([kind.value for kind in _STATED]),
        )
        came, held = {*numbers}, [entry_from_row(row) for row in (await tx.execute(query)).all()]
        by_text: dict[str, MemoryEntry] = {}
        by_key: defaultdict[str, list[MemoryEntry]] = defaultdict(list)
        for own in held:
            if own.number not in came:
                by_text[text_hash(own.text)] = own
                by_key[own.key].append(own)
        for each in held:
            if each.number not in came:
                continue
            if (twin := by_text.get(text_hash(each.text))) is not None:
                await self._replace(tx, each, twin, now)
                continue
            rivals = [other for other in by_key[each.key] if _excludes(each, other)]
            winner = max((each, *rivals), key=_precedence)
            for loser in rivals if winner is each else [each]:
                await self._replace(tx, loser, winner, now)
                by_text.pop(text_hash(loser.text), None)
                pair = {"one": winner.number, "other": loser.number}
                await self._links.add(tx, [MemoryLink(**pair, kind=CHOICE_LINK, weight=0.0)])
            if winner is each:
                # What is replaced is no rival of what follows.
                by_key[each.key] = [other for other in by_key[each.key] if other not in rivals]

    async def _replace(
        self, tx: Transaction, loser: MemoryEntry, winner: MemoryEntry, now: datetime
    ) -> None:
        gone = replace(
            loser,
            state=MemoryState.SUPERSEDED,
            superseded_by=winner.id,
            invalidated_at=now,
        )
        await self._entries.update(tx, gone, now=now)

    async def _separate(
        self,
        tx: Transaction,
        numbers: Collection[int],
        old: MemoryScope,
        new: MemoryScope,
        now: datetime,
    ) -> None:
        """Undo what crosses the two scopes."""
        went = {*numbers}
        both = _M.scope.in_([str(old), str(new)])
        tied = or_(_M.superseded_by.is_not(None), _M.supersedes.is_not(None))
        query = select(memories).where(both, tied)
        found = [entry_from_row(row) for row in (await tx.execute(query)).all()]
        named = {each for entry in found for each in (entry.superseded_by, entry.supersedes)}
        number_of: dict[str, int] = {}
        for chunk in in_chunks([each for each in named if each], _BATCH_SIZE):
            ids = select(_M.id, _M.number).where(_M.id.in_(chunk))
            number_of |= {row.id: row.number for row in await tx.execute(ids)}

        def crosses(entry: MemoryEntry, other: EntryId | None) -> bool:
            number = number_of.get(other) if other else None
            return number is not None and (number in went) != (entry.number in went)

        for each in found:
            if crosses(each, each.superseded_by):
                await self._entries.restore(tx, each, now=now)
            if crosses(each, each.supersedes):
                await tx.execute(
                    update(memories).where(_M.number == each.number).values(supersedes=None)
                )
        for some in in_chunks(sorted(went), _BATCH_SIZE):
            ends = or_(_L.one.in_(some), _L.other.in_(some))
            for row in (await tx.execute(select(_L.one, _L.other).where(ends))).all():
                if (row.one in went) != (row.other in went):
                    link = and_(_L.one == row.one, _L.other == row.other)
                    await tx.execute(delete(memory_links).where(link))

    async def _move_jobs(self, tx: Transaction, old: MemoryScope, new: MemoryScope) -> None:
        for row in await _open_jobs(tx, old):
            payload = {**row.payload, "scope": str(new)}
            source = row.source.replace(f"open:{old}:", f"open:{new}:", 1)
            values = {"payload": payload, "source": source}
            await tx.execute(update(memory_jobs).where(_J.id == row.id).values(values))

    async def _split_jobs(
        self,
        tx: Transaction,
        numbers: Collection[int],
        old: MemoryScope,
        new: MemoryScope,
    ) -> None:
        """Split extraction jobs so that each keeps the cells of one side only: facts belong to the
        person whose words they come from."""
        ids: set[str] = set()
        for some in in_chunks(sorted(numbers), _BATCH_SIZE):
            ids |= {*await tx.scalars(select(_M.id).where(_M.number.in_(some)))}
        for row in await _open_jobs(tx, old):
            gone = [each for each in row.payload["cells"] if each in ids]
            left = [each for each in row.payload["cells"] if each not in ids]
            if not gone:
                continue
            job = update(memory_jobs).where(_J.id == row.id)
            if left:
                await tx.execute(job.values(payload={**row.payload, "cells": left}))
            else:
                payload = {**row.payload, "scope": str(new)}
                source = row.source.replace(f"open:{old}:", f"open:{new}:", 1)
                await tx.execute(job.values(payload=payload, source=source))


def _by_block(numbers: Iterable[int]) -> Mapping[int, set[int]]:
    blocks: defaultdict[int, set[int]] = defaultdict(set)
    for number in numbers:
        block, offset = block_position(number)
        blocks[block].add(offset)
    return blocks


def _excludes(one: MemoryEntry, other: MemoryEntry) -> bool:
    """Whether both are about the same subject and hold without conditions."""
    has_conditions = any(support_from_extra(each).context for each in (one, other))
    return bool(one.key) and one.key == other.key and not has_conditions


def _precedence(entry: MemoryEntry) -> tuple[bool, datetime, int]:
    return entry.is_protected, entry.said_at, entry.number


async def _open_jobs(tx: Transaction, scope: MemoryScope) -> Sequence[Any]:
    query = select(memory_jobs).where(_J.state.not_in(_ENDED_JOBS))
    rows = (await tx.execute(query)).all()
    return [row for row in rows if row.payload.get("scope") == str(scope)]
