"""What was said, turn by turn, and the facts that were drawn from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, delete, select

from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.memory.entries import EntryRepo
from storage.memory.fields import AROUND
from storage.memory.living.neighbours import said_after, said_before
from storage.memory.rows import entry_of
from storage.memory.tables import memories, memory_links, memory_scopes, memory_vectors
from storage.records.memory.entries import (
    Entry,
    EntryId,
    EntryState,
    MemoryKind,
    NewEntry,
    Origin,
)

FROM = "from"
"""The kind of a link from a fact to the cell that it was drawn from."""

_M = memories.c
_L = memory_links.c
_WHOLE = 1.0
_A_PAGE = 500


class Cells:
    """Every method but those that only read is part of a larger transaction."""

    def __init__(self, db: Database, entries: EntryRepo) -> None:
        self._db = db
        self._entries = entries

    async def add(self, tx: Transaction, new: NewEntry, *, now: datetime) -> Entry | None:
        """Keep a cell; what was said before it finds it, and it finds what was said before. None
        as of `EntryRepo.add`."""
        before = await said_before(tx, new, -min(AROUND))
        around = {-apart: each.text for apart, each in enumerate(before, 1)}
        made = await self._entries.add(tx, new, now=now, around=around)
        if made is not None and before:
            await self.index(tx, before[0])
        return made

    async def dig_up(self, tx: Transaction, new: NewEntry) -> None:
        """Whoever says it wants it kept, also if it was forgotten before."""
        await self._entries.dig_up(tx, new.scope, new.text)

    async def index(self, tx: Transaction, *cells: Entry) -> None:
        """Make them found by their own words, by those around them and by the facts drawn from
        them."""
        await self._entries.index_all(tx, [await self._finds(tx, each) for each in cells])

    async def _finds(self, tx: Transaction, cell: Entry) -> tuple[Entry, Mapping[int, str], str]:
        before = await said_before(tx, cell, -min(AROUND))
        after = await said_after(tx, cell, max(AROUND))
        around = {-apart: each.text for apart, each in enumerate(before, 1)}
        around |= {apart: each.text for apart, each in enumerate(after, 1)}
        drawn = await self.facts_of(tx, cell)
        facts = " ".join(each.text for each in drawn if each.state is not EntryState.REJECTED)
        return cell, around, facts

    async def by_ids(self, ids: Iterable[str], *, tx: Transaction | None = None) -> Sequence[Entry]:
        """Those that are still there, in the order in which they were said."""
        query = select(memories).where(_M.id.in_(list(ids))).order_by(_M.number)
        async with self._db.read(tx) as view:
            return [entry_of(row) for row in (await view.execute(query)).all()]

    async def one(self, entry_id: EntryId, *, tx: Transaction | None = None) -> Entry | None:
        return next(iter(await self.by_ids([entry_id], tx=tx)), None)

    async def proposed(self) -> Sequence[Entry]:
        """All candidates of everybody, the oldest first."""
        return await self._all(_M.state == EntryState.CANDIDATE.value)

    async def drawn_longterm(self, tx: Transaction) -> Sequence[Entry]:
        """What is long-term without having been written, brought or pinned by anybody, of all."""
        return await self._all(
            _M.state == EntryState.ACTIVE.value,
            _M.kind == MemoryKind.LONGTERM.value,
            _M.origin.in_([Origin.CHAT.value, Origin.TASK.value]),
            ~_M.pinned,
            tx=tx,
        )

    async def cite(self, tx: Transaction, fact: Entry, cells: Sequence[Entry]) -> None:
        """The fact was drawn from these, and they are found by its words from now on."""
        for cell in cells:
            link = {"one": fact.number, "other": cell.number, "kind": FROM, "weight": _WHOLE}
            await tx.execute(insert_or_ignore(self._db.dialect, memory_links).values(link))
            await self.index(tx, cell)

    async def link(self, tx: Transaction, one: Entry, other: Entry, kind: str) -> None:
        """Note that one is about the other."""
        link = {"one": one.number, "other": other.number, "kind": kind, "weight": _WHOLE}
        await tx.execute(insert_or_ignore(self._db.dialect, memory_links).values(link))

    async def take_over(self, tx: Transaction, old: Entry, new: Entry) -> None:
        """What `old` was drawn from stands behind `new` as well."""
        held = select(_L.other).where(_L.one == old.number, _L.kind == FROM)
        for other in (await tx.execute(held)).scalars().all():
            link = {"one": new.number, "other": other, "kind": FROM, "weight": _WHOLE}
            await tx.execute(insert_or_ignore(self._db.dialect, memory_links).values(link))

    async def facts_of(self, tx: Transaction, cell: Entry) -> Sequence[Entry]:
        return await self._linked(tx, _L.other == cell.number, _L.one)

    async def kin(self, tx: Transaction, entry: Entry) -> Sequence[Entry]:
        """What would still say what the entry says: of a fact its cells, of a cell the facts that
        were drawn from nothing else."""
        if entry.kind is not MemoryKind.CELL:
            return await self._linked(tx, _L.one == entry.number, _L.other)
        facts = await self.facts_of(tx, entry)
        sources = [await self._linked(tx, _L.one == each.number, _L.other) for each in facts]
        return [fact for fact, cells in zip(facts, sources, strict=True) if len(cells) == 1]

    async def forget_vectors(self, tx: Transaction, entry: Entry) -> None:
        """They are made anew for where it is now."""
        await tx.execute(delete(memory_vectors).where(memory_vectors.c.number == entry.number))

    async def _all(
        self, *where: ColumnElement[bool], tx: Transaction | None = None
    ) -> Sequence[Entry]:
        """A page at a time. Scopes are named so that the index is used."""
        scopes = _M.scope.in_(select(memory_scopes.c.name))
        found: list[Entry] = []
        while True:
            after = found[-1].number if found else 0
            query = select(memories).where(scopes, *where, _M.number > after)
            async with self._db.read(tx) as view:
                rows = (await view.execute(query.order_by(_M.number).limit(_A_PAGE))).all()
            found += map(entry_of, rows)
            if len(rows) < _A_PAGE:
                return found

    async def _linked(
        self, tx: Transaction, where: ColumnElement[bool], far: ColumnElement[int]
    ) -> Sequence[Entry]:
        linked = select(far).where(where, _L.kind == FROM)
        query = select(memories).where(_M.number.in_(linked)).order_by(_M.number)
        return [entry_of(row) for row in (await tx.execute(query)).all()]
