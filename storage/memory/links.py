"""Stores weighted links between memory entries."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, or_, select

from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.memory_schema import entry_from_row, memories, memory_links
from storage.records.memory import MemoryEntry, MemoryKind, MemoryScope, MemoryState
from storage.rows import records_from

_M = memories.c
_L = memory_links.c

LINKED_KINDS = (MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM, MemoryKind.EPISODE)
"""Cells are not linked: their index already covers their neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLink:
    """A link between two entries, by their numbers; `kind` is the reason."""

    one: int
    other: int
    kind: str
    weight: float


class MemoryLinkRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, links: Sequence[MemoryLink]) -> None:
        """Add links whose ends both still exist."""
        ends = {each.one for each in links} | {each.other for each in links}
        found = await tx.execute(select(_M.number).where(_M.number.in_(ends)))
        there = set(found.scalars())
        rows = [
            {"one": each.one, "other": each.other, "kind": each.kind, "weight": each.weight}
            for each in links
            if each.one in there and each.other in there
        ]
        if rows:
            await tx.execute(insert_or_ignore(self._db.dialect, memory_links), rows)

    async def list_touching(self, numbers: Collection[int]) -> Sequence[MemoryLink]:
        """All links from or to one of these entries."""
        wanted = list(numbers)
        query = select(memory_links).where(or_(_L.one.in_(wanted), _L.other.in_(wanted)))
        return records_from(MemoryLink, await self._db.fetch_all(query))

    async def list_linkable_after(self, after: int, limit: int) -> Sequence[MemoryEntry]:
        """Linkable entries with numbers above `after`, oldest first."""
        return await self._select_linkable(_M.number > after, limit=limit)

    async def list_link_targets(self, entry: MemoryEntry, limit: int) -> Sequence[MemoryEntry]:
        """The latest older entries of the same scope."""
        older = _M.number < entry.number
        return await self._select_linkable(older, limit=limit, scope=entry.scope, latest=True)

    async def _select_linkable(
        self,
        where: ColumnElement[bool],
        *,
        limit: int,
        scope: MemoryScope | None = None,
        latest: bool = False,
    ) -> Sequence[MemoryEntry]:
        query = (
            select(memories)
            .where(
                where,
                _M.state == MemoryState.ACTIVE.value,
                _M.kind.in_([kind.value for kind in LINKED_KINDS]),
                *([] if scope is None else [_M.scope == str(scope)]),
            )
            .order_by(_M.number.desc() if latest else _M.number)
            .limit(limit)
        )
        return [entry_from_row(row) for row in await self._db.fetch_all(query)]
