"""What fades, and where use and age put it. Counting changes no revision."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import func, select, update

from storage.db import Database, Transaction
from storage.memory.rows import entry_of
from storage.memory.tables import memories
from storage.records.memory.entries import Entry, EntryState, MemoryKind, Origin, Tier

_M = memories.c


class WearRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def facts(
        self,
        *,
        after: int = 0,
        limit: int = 500,
        untouched_since: datetime | None = None,
        states: Sequence[EntryState] = (EntryState.ACTIVE, EntryState.ARCHIVED),
    ) -> Sequence[Entry]:
        """Facts that the program has drawn by itself, by their numbers from `after` on."""
        touched = func.coalesce(_M.reinforced_at, _M.created_at)
        query = (
            select(memories)
            .where(
                _M.number > after,
                _M.kind == MemoryKind.FACT.value,
                _M.origin != Origin.MANUAL.value,
                _M.pinned.is_(False),
                _M.state.in_([state.value for state in states]),
                *([touched < untouched_since] if untouched_since else []),
            )
            .order_by(_M.number)
            .limit(limit)
        )
        async with self._db.read() as view:
            return [entry_of(row) for row in (await view.execute(query)).all()]

    async def move(self, tx: Transaction, numbers: Collection[int], tier: Tier) -> None:
        await tx.execute(
            update(memories).where(_M.number.in_(list(numbers))).values(tier=tier.value)
        )
