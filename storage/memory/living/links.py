"""Which entries belong together, and how strongly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, or_, select

from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.memory.rows import entry_of
from storage.memory.tables import memories, memory_links
from storage.records.memory.entries import Entry, EntryState, MemoryKind, Scope

_M = memories.c
_L = memory_links.c

LINKED = (MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM, MemoryKind.EPISODE)
"""What was said word for word belongs to what was said around it, which its index knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Between two entries by their numbers; `kind` says why."""

    one: int
    other: int
    kind: str
    weight: float


class LinkRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, links: Sequence[Link]) -> None:
        """Those whose ends are both there still."""
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

    async def of(self, numbers: Collection[int]) -> Sequence[Link]:
        """All that begin or end at one of these."""
        wanted = list(numbers)
        query = select(memory_links).where(or_(_L.one.in_(wanted), _L.other.in_(wanted)))
        async with self._db.read() as view:
            rows = (await view.execute(query)).all()
        return [Link(one=r.one, other=r.other, kind=r.kind, weight=r.weight) for r in rows]

    async def fresh(self, after: int, limit: int) -> Sequence[Entry]:
        """What may be linked, from this number on, the oldest first."""
        return await self._some(_M.number > after, limit=limit)

    async def before(self, entry: Entry, limit: int) -> Sequence[Entry]:
        """What it may be linked to: the latest of its own scope that are older."""
        older = _M.number < entry.number
        return await self._some(older, limit=limit, scope=entry.scope, latest=True)

    async def _some(
        self,
        where: ColumnElement[bool],
        *,
        limit: int,
        scope: Scope | None = None,
        latest: bool = False,
    ) -> Sequence[Entry]:
        query = (
            select(memories)
            .where(
                where,
                _M.state == EntryState.ACTIVE.value,
                _M.kind.in_([kind.value for kind in LINKED]),
                *([] if scope is None else [_M.scope == str(scope)]),
            )
            .order_by(_M.number.desc() if latest else _M.number)
            .limit(limit)
        )
        async with self._db.read() as view:
            return [entry_of(row) for row in (await view.execute(query)).all()]
