"""Imports memory entries in bulk: conversations, lists of facts, and backups."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo

from sqlalchemy import Column, delete, select

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.ids import SHORT_ID_LENGTH, IdGenerator
from storage.memory.cells import DERIVED_FROM, CellRepo
from storage.memory.entries import MemoryEntryRepo
from storage.memory_schema import (
    entry_from_row,
    entry_update_values,
    memories,
    memory_links,
    memory_tombstones,
    new_entry_row,
)
from storage.records.memory import (
    EntryId,
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryState,
    NewMemoryEntry,
    text_hash,
)
from storage.search.inverted_index import InvertedIndex
from storage.search.terms import (
    NEIGHBOUR_WEIGHTS,
    add_weights,
    count_terms_ahead,
    neighbour_terms,
    own_terms,
)

_M = memories.c
_T = memory_tombstones.c
_ID_LENGTH = SHORT_ID_LENGTH + 2
_MAX_DISTANCE = -min(NEIGHBOUR_WEIGHTS)
_MAX_PAUSE = timedelta(hours=6)
"""A message later than this does not count as an answer to the one before."""


@dataclass(frozen=True, slots=True)
class _ImportedTurn:
    number: int
    thread: str
    text: str
    at: datetime


class ConversationImporter:
    """Imports conversations into one scope. Rows must come in the order they were said; rows of one
    thread and sitting are indexed as neighbours."""

    def __init__(
        self,
        db: Database,
        ids: IdGenerator,
        index: InvertedIndex,
        scope: MemoryScope,
        *,
        zone: tzinfo = UTC,
    ) -> None:
        self._db = db
        self._ids = ids
        self._index = index
        self._scope = scope
        self._zone = zone
        self._last_turns: dict[str, deque[_ImportedTurn]] = {}

    def count_terms(self, rows: Sequence[NewMemoryEntry]) -> None:
        """Tokenize in advance, so that the transaction is shorter."""
        count_terms_ahead(row.text for row in rows)

    async def add(self, tx: Transaction, rows: Sequence[NewMemoryEntry], *, now: datetime) -> int:
        """Add rows, each with a `source`; returns how many are new. Existing and forgotten ones are
        skipped."""
        wanted = await self._not_forgotten(tx, rows)
        for thread in dict.fromkeys(row.thread for row in wanted):
            await self._load_last_turns(tx, thread)
        made = await self._insert(tx, wanted, now)
        turns = await self._select_turns(tx, wanted)
        words = {number: dict(own_terms(entry, self._zone)) for number, entry in made.items()}
        for before, after, apart in self._neighbour_pairs(turns):
            if after.number not in made:
                continue
            add_weights(words[after.number], neighbour_terms(before.text, -apart))
            if apart not in NEIGHBOUR_WEIGHTS:
                continue
            more = neighbour_terms(after.text, apart)
            if before.number in made:
                add_weights(words[before.number], more)
            else:
                await self._index.adjust(tx, before.number, self._scope, more)
        await self._index.put(tx, [(number, self._scope, found) for number, found in words.items()])
        return len(made)

    def _neighbour_pairs(
        self, turns: Sequence[_ImportedTurn]
    ) -> Iterator[tuple[_ImportedTurn, _ImportedTurn, int]]:
        """Pairs of an earlier and a later turn, with their distance in turns."""
        for turn in turns:
            last = self._last_turns.setdefault(turn.thread, deque(maxlen=_MAX_DISTANCE))
            for apart, before in enumerate(reversed(last), 1):
                if abs(turn.at - before.at) <= _MAX_PAUSE:
                    yield before, turn, apart
            last.append(turn)

    async def _not_forgotten(
        self, tx: Transaction, rows: Sequence[NewMemoryEntry]
    ) -> Sequence[NewMemoryEntry]:
        hashes = [text_hash(row.text) for row in rows]
        query = select(_T.hash).where(_T.scope == str(self._scope), _T.hash.in_(hashes))
        buried = set((await tx.execute(query)).scalars())
        return [row for row, words in zip(rows, hashes, strict=True) if words not in buried]

    async def _load_last_turns(self, tx: Transaction, thread: str) -> None:
        """Load the thread's last turns from before this import."""
        if thread in self._last_turns:
            return
        query = (
            select(_M.number, _M.text, _M.said_at)
            .where(
                _M.scope == str(self._scope),
                _M.thread == thread,
                _M.kind == MemoryKind.CELL.value,
            )
            .order_by(_M.number.desc())
            .limit(_MAX_DISTANCE)
        )
        rows = (await tx.execute(query)).all()
        last = (_ImportedTurn(row.number, thread, row.text, row.said_at) for row in reversed(rows))
        self._last_turns[thread] = deque(last, maxlen=_MAX_DISTANCE)

    async def _insert(
        self, tx: Transaction, rows: Sequence[NewMemoryEntry], now: datetime
    ) -> Mapping[int, MemoryEntry]:
        if not rows:
            return {}
        values = [new_entry_row(row, id=self._ids(_ID_LENGTH), now=now) for row in rows]
        insert = insert_or_ignore(self._db.dialect, memories).returning(memories)
        made = [entry_from_row(row) for row in await tx.execute(insert, values)]
        return {entry.number: entry for entry in made}

    async def _select_turns(
        self, tx: Transaction, rows: Sequence[NewMemoryEntry]
    ) -> Sequence[_ImportedTurn]:
        """All turns that exist now, in the order of the rows."""
        sources = [row.source for row in rows]
        query = select(_M.number, _M.source, _M.thread, _M.text, _M.said_at)
        found = await tx.execute(query.where(_M.source.in_(sources)))
        turns = {
            row.source: _ImportedTurn(row.number, row.thread, row.text, row.said_at)
            for row in found
        }
        return [turns[source] for source in dict.fromkeys(sources) if source in turns]


class EntryBatchWriter:
    def __init__(self, db: Database, ids: IdGenerator, entries: MemoryEntryRepo) -> None:
        self._db = db
        self._ids = ids
        self._entries = entries

    async def filter_existing_texts(
        self, tx: Transaction, scope: MemoryScope, texts: Collection[str]
    ) -> Collection[str]:
        """Texts that an entry in any state already has."""
        hashes = {text_hash(each): each for each in texts}
        query = select(_M.hash).where(_M.scope == str(scope), _M.hash.in_(hashes))
        found = set((await tx.execute(query)).scalars())
        return {each for each in texts if text_hash(each) in found}

    async def add(
        self, tx: Transaction, scope: MemoryScope, rows: Sequence[NewMemoryEntry], *, now: datetime
    ) -> Sequence[MemoryEntry]:
        """Add new entries of one scope, all written by hand. Each source may occur once. Tombstones
        do not block them."""
        if not rows:
            return []
        hashes = [text_hash(row.text) for row in rows]
        buried = _T.scope == str(scope), _T.hash.in_(hashes)
        await tx.execute(delete(memory_tombstones).where(*buried))
        values = [new_entry_row(row, id=self._ids(SHORT_ID_LENGTH + 2), now=now) for row in rows]
        insert = insert_or_ignore(self._db.dialect, memories).returning(memories)
        made = [entry_from_row(row) for row in await tx.execute(insert, values)]
        await self._entries.index_all(tx, [(each, None, "") for each in made])
        return sorted(made, key=lambda each: each.number)


_L = memory_links.c
_PROPOSAL_SOURCE = re.compile("(?:candidate|offer):")


class BackupRestorer:
    def __init__(self, db: Database, entries: MemoryEntryRepo) -> None:
        self._db = db
        self._entries = entries
        self._cells = CellRepo(db, entries)

    async def list_sources(
        self, entries: Sequence[MemoryEntry]
    ) -> Mapping[EntryId, Sequence[EntryId]]:
        """The cells each entry was extracted from."""
        ids = {each.number: each.id for each in entries}
        query = (
            select(_L.one, _M.id)
            .join(memories, _M.number == _L.other)
            .where(_L.one.in_(list(ids)), _L.kind == DERIVED_FROM)
            .order_by(_L.one, _L.other)
        )
        found: defaultdict[EntryId, list[EntryId]] = defaultdict(list)
        async with self._db.read() as view:
            for row in await view.execute(query):
                found[ids[row.one]].append(EntryId(row.id))
        return found

    async def restore(
        self, tx: Transaction, entries: Sequence[MemoryEntry], renamed_ids: dict[EntryId, EntryId]
    ) -> Sequence[MemoryEntry]:
        """Restore entries under their own ids and return those restored.

        Entries that already exist, were forgotten, or describe such entries are skipped. If the
        same text exists under another id, `renamed_ids` records it and references follow it.
        """
        gone = await self._forgotten_ids(tx, entries)
        there = {each.id for each in await self._entries.list_by_ids(_ids(entries), None, tx=tx)}
        entries = await self._without_dangling_references(tx, entries)
        made: list[MemoryEntry] = []
        for each in entries:
            if each.id in there or gone.intersection(_covered_ids(each)):
                continue
            if (held := await self._find_equal(tx, each)) is not None:
                renamed_ids[each.id] = held
            elif (kept := await self._insert(tx, _with_renamed_ids(each, renamed_ids))) is not None:
                made.append(kept)
        await self._entries.index_all(tx, [(each, None, "") for each in made])
        return made

    async def link_sources(
        self, tx: Transaction, sources: Mapping[EntryId, Sequence[EntryId]]
    ) -> None:
        """Link entries to their sources, as far as these exist."""
        ids = {*sources, *(each for some in sources.values() for each in some)}
        found = {each.id: each for each in await self._entries.list_by_ids(ids, None, tx=tx)}
        links = [
            {
                "one": found[one].number,
                "other": found[other].number,
                "kind": DERIVED_FROM,
                "weight": 1.0,
            }
            for one, others in sources.items()
            for other in others
            if one in found and other in found
        ]
        if links:
            await tx.execute(insert_or_ignore(self._db.dialect, memory_links), links)

    async def index_cells(self, tx: Transaction, cells: Sequence[EntryId]) -> None:
        """Index cells by their neighbours and extracted facts too."""
        await self._cells.index(tx, *await self._cells.list_by_ids(cells, tx=tx))

    async def _forgotten_ids(self, tx: Transaction, entries: Sequence[MemoryEntry]) -> set[str]:
        told_of = {id_ for each in entries for id_ in _covered_ids(each)}
        return set(await self._entries.tombstones.filter_forgotten_ids(told_of, tx=tx))

    async def _find_equal(self, tx: Transaction, entry: MemoryEntry) -> EntryId | None:
        """The id of an entry with the same text; empty if the text was forgotten there."""
        if entry.source and (held := await self._entries.find_by_source(entry.source, tx=tx)):
            return held.id
        for each in await self._entries.list_with_same_text(entry.scope, entry.text, tx=tx):
            if each.kind is entry.kind:
                return each.id
        buried = await self._entries.tombstones.has_text(tx, entry.scope, entry.text)
        return EntryId("") if buried else None

    async def _insert(self, tx: Transaction, entry: MemoryEntry) -> MemoryEntry | None:
        row = {
            **entry_update_values(entry),
            "id": entry.id,
            "source": entry.source,
            "created_at": entry.created_at,
        }
        insert = insert_or_ignore(self._db.dialect, memories).values(row).returning(memories)
        kept = (await tx.execute(insert)).one_or_none()
        return None if kept is None else entry_from_row(kept)

    async def _without_dangling_references(
        self, tx: Transaction, entries: Sequence[MemoryEntry]
    ) -> Sequence[MemoryEntry]:
        """Copies without references to missing people, chats and tasks."""
        people = await _existing_values(tx, schema.people.c.id, {each.person for each in entries})
        chats = await _existing_values(tx, schema.chats.c.id, {each.chat for each in entries})
        tasks = await _existing_values(tx, schema.tasks.c.id, {each.task for each in entries})
        return [
            replace(
                each,
                person=each.person if each.person in people else None,
                chat=each.chat if each.chat in chats else None,
                task=each.task if each.task in tasks else None,
            )
            for each in entries
        ]


async def _existing_values(
    tx: Transaction, column: Column[str], wanted: Iterable[str | None]
) -> set[str | None]:
    query = select(column).where(column.in_([each for each in wanted if each]))
    return set((await tx.execute(query)).scalars())


def _ids(entries: Sequence[MemoryEntry]) -> list[EntryId]:
    return [each.id for each in entries]


def _covered_ids(entry: MemoryEntry) -> set[str]:
    """Its own id and those it describes: an episode's cells, a proposal's original."""
    told_of = {str(entry.id)}
    if entry.kind is MemoryKind.EPISODE:
        told_of.update(entry.evidence)
    if entry.source and (proposed := _PROPOSAL_SOURCE.match(entry.source)):
        told_of.add(entry.source[proposed.end() :])
    if entry.state is MemoryState.SUPERSEDED and entry.superseded_by:
        told_of.add(entry.superseded_by)
    return told_of


def _with_renamed_ids(entry: MemoryEntry, renamed_ids: Mapping[EntryId, EntryId]) -> MemoryEntry:
    def name(entry_id: EntryId | None) -> EntryId | None:
        return None if entry_id is None else renamed_ids.get(entry_id, entry_id) or None

    return replace(
        entry,
        evidence=[renamed_ids.get(EntryId(each), EntryId(each)) or each for each in entry.evidence],
        supersedes=name(entry.supersedes),
        superseded_by=name(entry.superseded_by),
    )
