"""The entries that files show, by scope and day, and which of them speak against one another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TypeVar

from sqlalchemy import ColumnElement, and_, func, select

from storage.db import Database
from storage.dialect import insert_or_ignore
from storage.memory.rows import entry_of
from storage.memory.tables import (
    memories,
    memory_links,
    memory_scopes,
    memory_tombstones,
)
from storage.memory.words import same
from storage.records.memory.entries import (
    Entry,
    EntryId,
    EntryState,
    MemoryKind,
    Scope,
)

RIVAL = "rival"
"""A link between two versions of one line. It weighs nothing."""

MOST = 5_000
"""Entries of one file."""

_M = memories.c
_L = memory_links.c
_PIECE = 2_000
_AT_ONCE = 500
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Glimpse:
    """Of an entry no more than says which file it is in; `shows` that it is in one."""

    number: int
    id: EntryId
    kind: MemoryKind
    said_at: datetime
    updated_at: datetime
    shows: bool


class Shelf:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def scopes(self) -> Sequence[Scope]:
        """All in which anything was ever kept."""
        async with self._db.read() as view:
            names = await view.scalars(select(memory_scopes.c.name).order_by(memory_scopes.c.name))
            return [Scope.of(name) for name in names]

    async def shown(
        self,
        scope: Scope,
        kinds: Sequence[MemoryKind],
        *,
        since: datetime | None = None,
        before: datetime | None = None,
        only: EntryId | None = None,
    ) -> Sequence[Entry]:
        """The last that are active, the oldest first."""
        where = _shown(scope, kinds, since, before, only)
        query = select(memories).where(*where).order_by(_M.number.desc()).limit(MOST)
        async with self._db.read() as view:
            rows = (await view.execute(query)).all()
        return [entry_of(row) for row in reversed(rows)]

    async def left_out(
        self,
        scope: Scope,
        kinds: Sequence[MemoryKind],
        *,
        since: datetime | None = None,
        before: datetime | None = None,
    ) -> int:
        """How many older ones `shown` has no room for."""
        where = _shown(scope, kinds, since, before, None)
        query = select(func.count()).select_from(memories).where(*where)
        async with self._db.read() as view:
            return max(0, int(await view.scalar(query) or 0) - MOST)

    async def sourced(self, sources: Mapping[str, EntryId]) -> Mapping[EntryId, Entry]:
        """By what stands for each source, the entry that came from it, where there is one."""
        found: dict[EntryId, Entry] = {}
        async with self._db.read() as view:
            for some in _batched(sources):
                query = select(memories).where(_M.source.in_(some))
                rows = (await view.execute(query)).all()
                found |= {sources[row.source]: entry_of(row) for row in rows}
        return found

    async def with_ids(self, ids: Iterable[EntryId]) -> Mapping[EntryId, Entry]:
        found: dict[EntryId, Entry] = {}
        async with self._db.read() as view:
            for some in _batched(ids):
                rows = (await view.execute(select(memories).where(_M.id.in_(some)))).all()
                found |= {EntryId(row.id): entry_of(row) for row in rows}
        return found

    async def glimpses(
        self,
        scope: Scope,
        kinds: Sequence[MemoryKind],
        *,
        after: int = 0,
        since: datetime | None,
        known: int = 0,
    ) -> Sequence[Glimpse]:
        """A piece of them by number: those of these kinds that were changed `since` then or are
        not among the `known` first, whatever their state. Asked for again `after` the last number
        until there are none."""
        columns = (_M.number, _M.id, _M.kind, _M.said_at, _M.updated_at, _M.state)
        where = [*_in(scope, kinds), _M.number > after]
        # What a backup gives back is new, and as old as it was.
        where += [] if since is None else [(_M.updated_at >= since) | (_M.number > known)]
        query = select(*columns).where(*where).order_by(_M.number).limit(_PIECE)
        async with self._db.read() as view:
            rows = (await view.execute(query)).all()
        return [
            Glimpse(
                number=row.number,
                id=EntryId(row.id),
                kind=MemoryKind(row.kind),
                said_at=row.said_at,
                updated_at=row.updated_at,
                shows=row.state == EntryState.ACTIVE.value,
            )
            for row in rows
        ]

    async def count(self, scope: Scope, kinds: Sequence[MemoryKind]) -> tuple[int, int]:
        """How many there are in whatever state, and the number of the last. Both fall where
        something was forgotten, whose number may be another one's then."""
        query = select(func.count(), func.max(_M.number)).where(*_in(scope, kinds))
        async with self._db.read() as view:
            row = (await view.execute(query)).one()
        return int(row[0] or 0), int(row[1] or 0)

    async def states(self) -> Mapping[Scope, tuple[object, ...]]:
        """By scope what differs once anything in it has come, gone or changed."""
        facts = func.count(), func.max(_M.number), func.max(_M.updated_at), func.sum(_M.revision)
        query = select(_M.scope, *facts).group_by(_M.scope)
        async with self._db.read() as view:
            return {Scope.of(row[0]): tuple(row[1:]) for row in (await view.execute(query)).all()}

    async def is_buried(self, scope: Scope, text: str) -> bool:
        """Whether somebody wanted these words forgotten here."""
        tomb = memory_tombstones.c
        query = select(tomb.at).where(tomb.scope == str(scope), tomb.hash == same(text))
        async with self._db.read() as view:
            return await view.scalar(query) is not None

    async def oppose(self, one: Entry, other: Entry) -> None:
        """They are two versions of the same, until one of them is gone."""
        link = {"one": one.number, "other": other.number, "kind": RIVAL, "weight": 0.0}
        async with self._db.write() as tx:
            await tx.execute(insert_or_ignore(self._db.dialect, memory_links).values(link))

    async def rivals(self, scope: Scope) -> Mapping[int, int]:
        """By the number of the newer one, that of the older."""
        query = (
            select(_L.one, _L.other)
            .join(memories, and_(_M.number == _L.other, _M.scope == str(scope)))
            .where(_L.kind == RIVAL)
        )
        async with self._db.read() as view:
            return {row.other: row.one for row in (await view.execute(query)).all()}


def _batched(of: Iterable[_T]) -> Iterator[list[_T]]:
    rest = iter(of)
    while some := list(islice(rest, _AT_ONCE)):
        yield some


def _shown(
    scope: Scope,
    kinds: Sequence[MemoryKind],
    since: datetime | None,
    before: datetime | None,
    only: EntryId | None,
) -> list[ColumnElement[bool]]:
    where = [*_in(scope, kinds), _M.state == EntryState.ACTIVE.value]
    where += [] if since is None else [_M.said_at >= since]
    where += [] if before is None else [_M.said_at < before]
    return where + ([] if only is None else [_M.id == only])


def _in(scope: Scope, kinds: Sequence[MemoryKind]) -> list[ColumnElement[bool]]:
    return [_M.scope == str(scope), _M.kind.in_([kind.value for kind in kinds])]
