"""How much is remembered, counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, func, select

from storage.db import Database
from storage.memory.tables import memories, memory_jobs, memory_scopes
from storage.records.memory.entries import EntryState, Scope

_M = memories.c


class MemoryFigures:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def scopes(self) -> Sequence[Scope]:
        """All in which something is, or was."""
        query = select(memory_scopes.c.name).order_by(memory_scopes.c.name)
        async with self._db.read() as view:
            return [Scope.of(name) for name in (await view.execute(query)).scalars()]

    async def by_kind(
        self, scopes: Sequence[Scope], *, state: EntryState | None = None
    ) -> Mapping[str, int]:
        return await self._counted(_M.kind, scopes, state)

    async def by_state(self, scopes: Sequence[Scope]) -> Mapping[str, int]:
        return await self._counted(_M.state, scopes)

    async def by_scope(self, scopes: Sequence[Scope]) -> Mapping[str, int]:
        return await self._counted(_M.scope, scopes)

    async def jobs(self, state: str) -> int:
        query = select(func.count()).where(memory_jobs.c.state == state)
        async with self._db.read() as view:
            return await view.scalar(query) or 0

    async def _counted(
        self,
        column: ColumnElement[str],
        scopes: Sequence[Scope],
        state: EntryState | None = None,
    ) -> Mapping[str, int]:
        query = (
            select(column, func.count())
            .where(_M.scope.in_([str(scope) for scope in scopes]))
            .group_by(column)
            .order_by(column)
        )
        if state is not None:
            query = query.where(_M.state == state.value)
        async with self._db.read() as view:
            return {row[0]: row[1] for row in await view.execute(query)}
