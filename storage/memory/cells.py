"""Stores conversation cells (verbatim turns) and their links to extracted facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, select, union

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.memory.entries import MemoryEntryRepo, cells_after, cells_before
from storage.memory_schema import entry_from_row, memories, memory_links, memory_scopes
from storage.records.memory import (
    EntryId,
    MemoryEntry,
    MemoryKind,
    MemoryOrigin,
    MemoryScope,
    MemoryState,
    NewMemoryEntry,
)
from storage.records.people import ChatId
from storage.search.terms import NEIGHBOUR_WEIGHTS

DERIVED_FROM = "from"
"""Links a fact to a cell it was extracted from."""

_M = memories.c
_L = memory_links.c
_FULL_WEIGHT = 1.0
_PAGE_SIZE = 500


class CellRepo:
    """Methods that write must run within the caller's transaction."""

    def __init__(self, db: Database, entries: MemoryEntryRepo) -> None:
        self._db = db
        self._entries = entries

    async def add(
        self, tx: Transaction, new: NewMemoryEntry, *, now: datetime
    ) -> MemoryEntry | None:
        """Add a cell, indexed together with the cells before it. None where `MemoryEntryRepo.add`
        returns None."""
        before = await cells_before(tx, new, -min(NEIGHBOUR_WEIGHTS))
        around = {-apart: each.text for apart, each in enumerate(before, 1)}
        made = await self._entries.add(tx, new, now=now, neighbour_texts=around)
        if made is not None and before:
            await self.index(tx, before[0])
        return made

    async def remove_tombstone(self, tx: Transaction, new: NewMemoryEntry) -> None:
        """Allow a forgotten text again, because the person has said it again."""
        await self._entries.remove_tombstone(tx, new.scope, new.text)

    async def index(self, tx: Transaction, *cells: MemoryEntry) -> None:
        """Index cells by their own words, their neighbours' and those of their facts."""
        await self._entries.index_all(tx, [await self._index_input(tx, each) for each in cells])

    async def _index_input(
        self, tx: Transaction, cell: MemoryEntry
    ) -> tuple[MemoryEntry, Mapping[int, str], str]:
        before = await cells_before(tx, cell, -min(NEIGHBOUR_WEIGHTS))
        after = await cells_after(tx, cell, max(NEIGHBOUR_WEIGHTS))
        around = {-apart: each.text for apart, each in enumerate(before, 1)}
        around |= {apart: each.text for apart, each in enumerate(after, 1)}
        drawn = await self.list_facts(tx, cell)
        facts = " ".join(each.text for each in drawn if each.state is not MemoryState.REJECTED)
        return cell, around, facts

    async def list_by_ids(
        self, ids: Iterable[str], *, tx: Transaction | None = None
    ) -> Sequence[MemoryEntry]:
        """The cells that still exist, in the order they were said."""
        query = select(memories).where(_M.id.in_(list(ids))).order_by(_M.number)
        return [entry_from_row(row) for row in await self._db.fetch_all(query, tx=tx)]

    async def find(self, entry_id: EntryId, *, tx: Transaction | None = None) -> MemoryEntry | None:
        return next(iter(await self.list_by_ids([entry_id], tx=tx)), None)

    async def list_candidates(self) -> Sequence[MemoryEntry]:
        """All candidates of every scope, oldest first."""
        return await self._select_all(_M.state == MemoryState.CANDIDATE.value)

    async def list_extracted_longterm(self, tx: Transaction) -> Sequence[MemoryEntry]:
        """Active long-term entries that were extracted automatically and are not pinned, in all
        scopes."""
        return await self._select_all(
            _M.state == MemoryState.ACTIVE.value,
            _M.kind == MemoryKind.LONGTERM.value,
            _M.origin.in_([MemoryOrigin.CHAT.value, MemoryOrigin.TASK.value]),
            ~_M.pinned,
            tx=tx,
        )

    async def link_sources(
        self, tx: Transaction, fact: MemoryEntry, cells: Sequence[MemoryEntry]
    ) -> None:
        """Link a fact to its source cells and index them by its words."""
        for cell in cells:
            link = {
                "one": fact.number,
                "other": cell.number,
                "kind": DERIVED_FROM,
                "weight": _FULL_WEIGHT,
            }
            await tx.execute(insert_or_ignore(self._db.dialect, memory_links).values(link))
            await self.index(tx, cell)

    async def link(self, tx: Transaction, one: MemoryEntry, other: MemoryEntry, kind: str) -> None:
        """Link an entry to the one it is about."""
        link = {"one": one.number, "other": other.number, "kind": kind, "weight": _FULL_WEIGHT}
        await tx.execute(insert_or_ignore(self._db.dialect, memory_links).values(link))

    async def copy_sources(self, tx: Transaction, old: MemoryEntry, new: MemoryEntry) -> None:
        """Link `new` to the sources of `old`."""
        held = select(_L.other).where(_L.one == old.number, _L.kind == DERIVED_FROM)
        for other in (await tx.execute(held)).scalars().all():
            link = {"one": new.number, "other": other, "kind": DERIVED_FROM, "weight": _FULL_WEIGHT}
            await tx.execute(insert_or_ignore(self._db.dialect, memory_links).values(link))

    async def list_facts(self, tx: Transaction, cell: MemoryEntry) -> Sequence[MemoryEntry]:
        return await self._select_linked(tx, _L.other == cell.number, _L.one)

    async def list_restatements(self, tx: Transaction, entry: MemoryEntry) -> Sequence[MemoryEntry]:
        """Entries that would still state the same: a fact's cells, or a cell's facts without
        another source."""
        if entry.kind is not MemoryKind.CELL:
            return await self._select_linked(tx, _L.one == entry.number, _L.other)
        facts = await self.list_facts(tx, entry)
        sources = [await self._select_linked(tx, _L.one == each.number, _L.other) for each in facts]
        return [fact for fact, cells in zip(facts, sources, strict=True) if len(cells) == 1]

    async def _select_all(
        self, *where: ColumnElement[bool], tx: Transaction | None = None
    ) -> Sequence[MemoryEntry]:
        """Reads page by page. Naming the scopes makes the database use its index."""
        scopes = _M.scope.in_(select(memory_scopes.c.name))
        found: list[MemoryEntry] = []
        while True:
            after = found[-1].number if found else 0
            query = select(memories).where(scopes, *where, _M.number > after)
            rows = await self._db.fetch_all(query.order_by(_M.number).limit(_PAGE_SIZE), tx=tx)
            found += map(entry_from_row, rows)
            if len(rows) < _PAGE_SIZE:
                return found

    async def _select_linked(
        self, tx: Transaction, where: ColumnElement[bool], far_end: ColumnElement[int]
    ) -> Sequence[MemoryEntry]:
        linked = select(far_end).where(where, _L.kind == DERIVED_FROM)
        query = select(memories).where(_M.number.in_(linked)).order_by(_M.number)
        return [entry_from_row(row) for row in (await tx.execute(query)).all()]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCells:
    """One chat's cells in one scope; `last_number` is that of the latest."""

    scope: MemoryScope
    thread: str
    chat: ChatId
    last_number: int


class ChatCellRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def list_chats_since(self, number: int) -> Sequence[ChatCells]:
        """Chats with cells after this number."""
        query = (
            select(
                _M.scope,
                _M.thread,
                _M.chat_id,
                func.max(_M.number).label("last"),
            )
            .where(_M.number > number, _is_chat_cell(), _M.chat_id.is_not(None))
            .group_by(_M.scope, _M.thread, _M.chat_id)
        )
        rows = await self._db.fetch_all(query)
        return [
            ChatCells(
                scope=MemoryScope.parse(row.scope),
                thread=row.thread,
                chat=row.chat_id,
                last_number=row.last,
            )
            for row in rows
        ]

    async def list_cells(
        self, chat_cells: ChatCells, after: int, limit: int
    ) -> Sequence[MemoryEntry]:
        """Cells in the order they were said."""
        query = (
            select(memories)
            .where(
                _M.number > after,
                _is_chat_cell(),
                _M.scope == str(chat_cells.scope),
                _M.thread == chat_cells.thread,
            )
            .order_by(_M.number)
            .limit(limit)
        )
        return [entry_from_row(row) for row in await self._db.fetch_all(query)]

    async def list_topic_breaks(self, chat: ChatId, since: datetime) -> Sequence[datetime]:
        """Times at which a new conversation, another backend or a task started in the chat."""
        sessions, tasks = schema.sessions.c, schema.tasks.c
        mine = sessions.key == f"chat:{chat}"
        query = union(
            select(sessions.started_at).where(mine, sessions.started_at > since),
            select(sessions.closed_at).where(mine, sessions.closed_at > since),
            select(tasks.created_at).where(tasks.chat_id == chat, tasks.created_at > since),
        )
        return sorted(await self._db.fetch_column(query))


def _is_chat_cell() -> ColumnElement[bool]:
    return (
        (_M.kind == MemoryKind.CELL.value)
        & (_M.state == MemoryState.ACTIVE.value)
        & (_M.origin == MemoryOrigin.CHAT.value)
    )
