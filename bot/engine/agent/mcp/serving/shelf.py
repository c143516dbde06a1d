"""What an agent outside may look up and keep: some scopes, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from bot.engine.memory.changed import Changed
from bot.engine.memory.recall import ALL, Recall
from bot.engine.memory.scopes import Reader
from bot.engine.memory.telling.inject import Injection
from bot.engine.memory.writing.service import plain
from storage.db import Database
from storage.errors import NotFound
from storage.memory.cells import Cells
from storage.memory.entries import EntryRepo
from storage.memory.jobs import JobRepo
from storage.records.memory.entries import (
    Category,
    Entry,
    EntryId,
    EntryState,
    MemoryKind,
    NewEntry,
    Origin,
    Scope,
    ScopeKind,
    Tier,
)
from storage.records.memory.shown import FoundEntry

_SOURCE = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed(Reader):
    """Reads what it is given, whoever it is."""

    only: tuple[Scope, ...]

    @property
    def scopes(self) -> Sequence[Scope]:
        return self.only


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What an agent wants kept. `importance` is from 0 to 1."""

    text: str
    kind: MemoryKind = MemoryKind.FACT
    category: Category = Category.OTHER
    label: str = ""
    keywords: tuple[str, ...] = ()
    importance: float = 0.5
    scope: Scope | None = None


class NotWritable(Exception):
    """There is no such scope to write to. The text says which there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """What shelves stand on. `jobs` are None where nothing is drawn out of what was said; days
    are told in `zone`."""

    db: Database
    entries: EntryRepo
    cells: Cells
    recall: Recall
    injection: Injection
    changed: Changed
    jobs: JobRepo | None
    mask: Callable[[str], str]
    now: Callable[[], datetime]
    zone: tzinfo = UTC


class Shelf:
    """`reader` says what is seen. What an agent writes is no person's word: it is kept as found by
    a program, may be improved by it and fades like all else, and never gets to everybody."""

    def __init__(self, stores: Stores, reader: Narrowed) -> None:
        self._stores = stores
        self._reader = reader

    @property
    def zone(self) -> tzinfo:
        return self._stores.zone

    @property
    def readable(self) -> Sequence[Scope]:
        return self._reader.only

    @property
    def writable(self) -> Sequence[Scope]:
        """The first is where things are kept if nothing is said."""
        return [scope for scope in self._reader.only if scope.kind is not ScopeKind.GLOBAL]

    async def search(
        self, query: str, limit: int, *, scope: Scope | None = None, cut: float | None = None
    ) -> Sequence[FoundEntry]:
        scopes = [each for each in self._reader.only if scope in {None, each}]
        return await self._stores.recall.within(scopes, query, limit, kinds=ALL, cut=cut)

    async def is_empty(self) -> bool:
        return not await self._stores.entries.count(self._reader.only)

    async def get(self, entry_id: str) -> Entry | None:
        try:
            return await self._stores.entries.get(EntryId(entry_id), self._reader.only)
        except NotFound:
            return None

    async def standing(self) -> str:
        return (await self._stores.injection.standing(self._reader)).text

    async def keep(self, note: Note) -> Entry | None:
        """None for what is empty, and for what somebody wanted forgotten. Said again it is there
        once. Raises NotWritable."""
        stores, scope = self._stores, self._kept_in(note.scope)
        text = stores.mask(plain(note.text)).strip()
        if not text:
            return None
        now = stores.now()
        async with stores.db.write() as tx:
            for same in await stores.entries.same_as(scope, text, tx=tx):
                if same.state is EntryState.ACTIVE and same.kind is note.kind:
                    return same
            made = await stores.entries.add(tx, self._new(note, scope, text, now), now=now)
        stores.changed.tell(scope)
        return made

    async def read_through(self, conversation: str, scope: Scope | None) -> Entry | None:
        """Keep what was said, for a model to draw facts out of it later. None as of `keep`."""
        stores, where = self._stores, self._kept_in(scope)
        text = stores.mask(plain(conversation)).strip()
        if not text:
            return None
        now, name = stores.now(), _name(where, text)
        cell = NewEntry(
            kind=MemoryKind.CELL,
            scope=where,
            text=text,
            tier=Tier.PERIPHERAL,
            confidence=1.0,
            origin=Origin.IMPORT,
            source=f"mcp:{name}",
            thread=f"mcp:{name}",
            person=self._reader.person,
            said_at=now,
            extra={"said": len(text)},
        )
        async with stores.db.write() as tx:
            kept = await stores.cells.add(tx, cell, now=now)
            if kept is not None and stores.jobs is not None:
                await stores.jobs.gather(tx, kept, enough=1, now=now, due_at=now)
            if kept is None:
                return await stores.entries.by_source(cell.source or "", tx=tx)
        stores.changed.tell(where)
        return kept

    def _kept_in(self, scope: Scope | None) -> Scope:
        there = self.writable
        if scope is None and there:
            return there[0]
        if scope is None or scope not in there:
            names = ", ".join(map(str, there)) or "none: this server only reads"
            raise NotWritable(f"kept can be in {names}")
        return scope

    def _new(self, note: Note, scope: Scope, text: str, now: datetime) -> NewEntry:
        mask = self._stores.mask
        return NewEntry(
            kind=note.kind,
            scope=scope,
            text=text,
            category=note.category,
            label=mask(plain(note.label)),
            keywords=tuple(mask(plain(each)) for each in note.keywords),
            importance=note.importance,
            origin=Origin.IMPORT,
            person=self._reader.person,
            said_at=now,
        )


def _name(scope: Scope, text: str) -> str:
    return hashlib.sha256(f"{scope}\0{text}".encode()).hexdigest()[:_SOURCE]
