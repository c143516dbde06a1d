"""Entries as a backup holds them: with what they were drawn from, and put back as they were."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Column, select

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.memory.cells import FROM, Cells
from storage.memory.entries import EntryRepo
from storage.memory.rows import changed_row, entry_of
from storage.memory.tables import memories, memory_links
from storage.records.memory.entries import Entry, EntryId, EntryState, MemoryKind

_M = memories.c
_L = memory_links.c
_PROPOSED = re.compile("(?:candidate|offer):")


class Backups:
    def __init__(self, db: Database, entries: EntryRepo) -> None:
        self._db = db
        self._entries = entries
        self._cells = Cells(db, entries)

    async def sources(self, entries: Sequence[Entry]) -> Mapping[EntryId, Sequence[EntryId]]:
        """The cells that each of these was drawn from."""
        ids = {each.number: each.id for each in entries}
        query = (
            select(_L.one, _M.id)
            .join(memories, _M.number == _L.other)
            .where(_L.one.in_(list(ids)), _L.kind == FROM)
            .order_by(_L.one, _L.other)
        )
        found: defaultdict[EntryId, list[EntryId]] = defaultdict(list)
        async with self._db.read() as view:
            for row in await view.execute(query):
                found[ids[row.one]].append(EntryId(row.id))
        return found

    async def put_back(
        self, tx: Transaction, entries: Sequence[Entry], known_as: dict[EntryId, EntryId]
    ) -> Sequence[Entry]:
        """Those that came back, each under the id that it had. One stays away that is there, in
        whatever words, and one that was forgotten or tells of what was. Where the same words are
        there under another id, `known_as` notes it; what refers to them refers to that then."""
        gone = await self._forgotten(tx, entries)
        there = {each.id for each in await self._entries.with_ids(_ids(entries), None, tx=tx)}
        entries = await self._placed(tx, entries)
        made: list[Entry] = []
        for each in entries:
            if each.id in there or gone.intersection(_told_of(each)):
                continue
            if (held := await self._known(tx, each)) is not None:
                known_as[each.id] = held
            elif (kept := await self._put(tx, _renamed(each, known_as))) is not None:
                made.append(kept)
        await self._entries.index_all(tx, [(each, None, "") for each in made])
        return made

    async def drawn(self, tx: Transaction, sources: Mapping[EntryId, Sequence[EntryId]]) -> None:
        """Note what these were drawn from, of what is there."""
        ids = {*sources, *(each for some in sources.values() for each in some)}
        found = {each.id: each for each in await self._entries.with_ids(ids, None, tx=tx)}
        links = [
            {"one": found[one].number, "other": found[other].number, "kind": FROM, "weight": 1.0}
            for one, others in sources.items()
            for other in others
            if one in found and other in found
        ]
        if links:
            await tx.execute(insert_or_ignore(self._db.dialect, memory_links), links)

    async def index(self, tx: Transaction, cells: Sequence[EntryId]) -> None:
        """Make these found by what was said around them and by what was drawn from them, too."""
        await self._cells.index(tx, *await self._cells.by_ids(cells, tx=tx))

    async def _forgotten(self, tx: Transaction, entries: Sequence[Entry]) -> set[str]:
        told_of = {id_ for each in entries for id_ in _told_of(each)}
        return set(await self._entries.tombstones.ids(told_of, tx=tx))

    async def _known(self, tx: Transaction, entry: Entry) -> EntryId | None:
        """What says the same there; empty for what nobody may say there any more."""
        if entry.source and (held := await self._entries.by_source(entry.source, tx=tx)):
            return held.id
        for each in await self._entries.same_as(entry.scope, entry.text, tx=tx):
            if each.kind is entry.kind:
                return each.id
        buried = await self._entries.tombstones.has_words(tx, entry.scope, entry.text)
        return EntryId("") if buried else None

    async def _put(self, tx: Transaction, entry: Entry) -> Entry | None:
        row = {
            **changed_row(entry),
            "id": entry.id,
            "source": entry.source,
            "created_at": entry.created_at,
        }
        insert = insert_or_ignore(self._db.dialect, memories).values(row).returning(memories)
        kept = (await tx.execute(insert)).one_or_none()
        return None if kept is None else entry_of(kept)

    async def _placed(self, tx: Transaction, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Without the people, chats and tasks that are not there any more."""
        people = await _there(tx, schema.people.c.id, {each.person for each in entries})
        chats = await _there(tx, schema.chats.c.id, {each.chat for each in entries})
        tasks = await _there(tx, schema.tasks.c.id, {each.task for each in entries})
        return [
            replace(
                each,
                person=each.person if each.person in people else None,
                chat=each.chat if each.chat in chats else None,
                task=each.task if each.task in tasks else None,
            )
            for each in entries
        ]


async def _there(
    tx: Transaction, column: Column[str], wanted: Iterable[str | None]
) -> set[str | None]:
    query = select(column).where(column.in_([each for each in wanted if each]))
    return set((await tx.execute(query)).scalars())


def _ids(entries: Sequence[Entry]) -> list[EntryId]:
    return [each.id for each in entries]


def _told_of(entry: Entry) -> set[str]:
    """It, and what it tells of: an episode of its cells, a proposal of what was proposed."""
    told_of = {str(entry.id)}
    if entry.kind is MemoryKind.EPISODE:
        told_of.update(entry.evidence)
    if entry.source and (proposed := _PROPOSED.match(entry.source)):
        told_of.add(entry.source[proposed.end() :])
    if entry.state is EntryState.SUPERSEDED and entry.superseded_by:
        told_of.add(entry.superseded_by)
    return told_of


def _renamed(entry: Entry, known_as: Mapping[EntryId, EntryId]) -> Entry:
    def name(entry_id: EntryId | None) -> EntryId | None:
        return None if entry_id is None else known_as.get(entry_id, entry_id) or None

    return replace(
        entry,
        evidence=[known_as.get(EntryId(each), EntryId(each)) or each for each in entry.evidence],
        supersedes=name(entry.supersedes),
        superseded_by=name(entry.superseded_by),
    )
