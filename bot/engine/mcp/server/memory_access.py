"""Gives external agents access to the memories of selected scopes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from bot.engine.memory.access import (
    CHAT_SCOPE,
    OWN_SCOPE,
    PRIVATE_SCOPE_KINDS,
    MemoryReader,
    UnknownScopeName,
    parse_scope,
)
from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.context_builder import MemoryContextBuilder
from bot.engine.memory.noise_filter import NoiseKind, classify_fact_noise, to_storable_text
from bot.engine.memory.retriever import ALL_KINDS, MemoryRetriever
from storage.db import Database
from storage.errors import NotFound
from storage.memory.cells import CellRepo, ExtractionJobRepo
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    GLOBAL_SCOPE,
    EntryId,
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryMatch,
    MemoryOrigin,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    MemoryTier,
    NewMemoryEntry,
)
from storage.records.people import Chat

_SOURCE_CHARS = 24
_MAX_SCOPES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedReader(MemoryReader):
    """A reader with a fixed set of scopes."""

    allowed_scopes: tuple[MemoryScope, ...]

    @property
    def scopes(self) -> Sequence[MemoryScope]:
        return self.allowed_scopes


@dataclass(frozen=True, slots=True, kw_only=True)
class McpMemoryNote:
    """A memory to store; `importance` is from 0 to 1."""

    text: str
    kind: MemoryKind = MemoryKind.FACT
    category: MemoryCategory = MemoryCategory.OTHER
    label: str = ""
    keywords: tuple[str, ...] = ()
    importance: float = 0.5
    scope: MemoryScope | None = None


class ForbiddenScope(Exception):
    """This scope is never served. The text says why."""


class ScopeNotWritable(Exception):
    """The scope is not writable; the message lists those that are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpMemoryDeps:
    """Services for memory access.

    Without `jobs` no facts are extracted; dates are shown in `zone`."""

    db: Database
    entries: MemoryEntryRepo
    cells: CellRepo
    recall: MemoryRetriever
    injection: MemoryContextBuilder
    changed: MemoryChangeFeed
    jobs: ExtractionJobRepo | None
    mask: Callable[[str], str]
    now: Callable[[], datetime]
    zone: tzinfo = UTC


class McpMemoryAccess:
    """Reads and writes the scopes of `reader`.

    Notes are stored with origin IMPORT: they may be changed automatically and decay, and are never
    in the global scope."""

    def __init__(self, deps: McpMemoryDeps, reader: ScopedReader) -> None:
        self._deps = deps
        self._reader = reader

    @property
    def zone(self) -> tzinfo:
        return self._deps.zone

    @property
    def readable_scopes(self) -> Sequence[MemoryScope]:
        return self._reader.allowed_scopes

    @property
    def writable_scopes(self) -> Sequence[MemoryScope]:
        """Writable scopes; the first is the default."""
        return [
            scope
            for scope in self._reader.allowed_scopes
            if scope.kind is not MemoryScopeKind.GLOBAL
        ]

    async def search(
        self, query: str, limit: int, *, scope: MemoryScope | None = None, cut: float | None = None
    ) -> Sequence[MemoryMatch]:
        scopes = [each for each in self._reader.allowed_scopes if scope in {None, each}]
        return await self._deps.recall.search_scopes(
            scopes, query, limit, kinds=ALL_KINDS, min_share=cut
        )

    async def is_empty(self) -> bool:
        return not await self._deps.entries.count(self._reader.allowed_scopes)

    async def get(self, entry_id: str) -> MemoryEntry | None:
        try:
            return await self._deps.entries.get(EntryId(entry_id), self._reader.allowed_scopes)
        except NotFound:
            return None

    async def standing_context(self) -> str:
        return (await self._deps.injection.build_standing(self._reader)).text

    async def store(self, note: McpMemoryNote) -> MemoryEntry | None:
        """Store a note once; returns None if it is empty, was forgotten before, or reads like
        orders to an AI.

        Raises ScopeNotWritable."""
        deps, scope = self._deps, self._writable_scope(note.scope)
        text = deps.mask(to_storable_text(note.text)).strip()
        if not text or classify_fact_noise(text) is NoiseKind.SUSPICIOUS:
            return None
        now = deps.now()
        async with deps.db.write() as tx:
            for same in await deps.entries.list_with_same_text(scope, text, tx=tx):
                if same.state is MemoryState.ACTIVE and same.kind is note.kind:
                    return same
            entry = await deps.entries.add(tx, self._new_entry(note, scope, text, now), now=now)
        deps.changed.publish(scope)
        return entry

    async def ingest_conversation(
        self, conversation: str, scope: MemoryScope | None
    ) -> MemoryEntry | None:
        """Store a conversation for later fact extraction; returns None as in `store`."""
        deps, where = self._deps, self._writable_scope(scope)
        text = deps.mask(to_storable_text(conversation)).strip()
        if not text:
            return None
        now, name = deps.now(), _source_name(where, text)
        cell = NewMemoryEntry(
            kind=MemoryKind.CELL,
            scope=where,
            text=text,
            tier=MemoryTier.PERIPHERAL,
            confidence=1.0,
            origin=MemoryOrigin.IMPORT,
            source=f"mcp:{name}",
            thread=f"mcp:{name}",
            person=self._reader.person,
            said_at=now,
            extra={"said": len(text)},
        )
        async with deps.db.write() as tx:
            kept = await deps.cells.add(tx, cell, now=now)
            if kept is not None and deps.jobs is not None:
                await deps.jobs.add_cell(tx, kept, batch_size=1, now=now, due_at=now)
            if kept is None:
                return await deps.entries.find_by_source(cell.source or "", tx=tx)
        deps.changed.publish(where)
        return kept

    def _writable_scope(self, scope: MemoryScope | None) -> MemoryScope:
        there = self.writable_scopes
        if scope is None and there:
            return there[0]
        if scope is None or scope not in there:
            names = ", ".join(map(str, there)) or "none: this server only reads"
            raise ScopeNotWritable(f"memories can be stored in {names}")
        return scope

    def _new_entry(
        self, note: McpMemoryNote, scope: MemoryScope, text: str, now: datetime
    ) -> NewMemoryEntry:
        mask = self._deps.mask
        return NewMemoryEntry(
            kind=note.kind,
            scope=scope,
            text=text,
            category=note.category,
            label=mask(to_storable_text(note.label)),
            keywords=tuple(mask(to_storable_text(each)) for each in note.keywords),
            importance=note.importance,
            origin=MemoryOrigin.IMPORT,
            person=self._reader.person,
            said_at=now,
        )


def parse_served_scopes(names: Sequence[str], chat: Chat) -> tuple[MemoryScope, ...]:
    """The named scopes, for the owner of `chat`. Raises ForbiddenScope."""
    if len(names) > _MAX_SCOPES:
        raise ForbiddenScope(f"no more than {_MAX_SCOPES} scopes")
    found = [_parse_own_scope(name, chat) for name in names] or [GLOBAL_SCOPE]
    return tuple(dict.fromkeys(found))


def _parse_own_scope(name: str, chat: Chat) -> MemoryScope:
    name = name.strip()
    if name == OWN_SCOPE:
        if chat.person_id is None:
            raise ForbiddenScope("nobody owns the web chat yet: start `shiftboss run` once")
        return MemoryScope(MemoryScopeKind.PERSON, chat.person_id)
    try:
        scope = parse_scope(name)
    except UnknownScopeName as error:
        raise ForbiddenScope(
            f"{error}; a scope is global, me, project:/FOLDER or any name"
        ) from error
    own = MemoryScope(MemoryScopeKind.PERSON, chat.person_id or "nobody")
    if name == CHAT_SCOPE or (scope.kind in PRIVATE_SCOPE_KINDS and scope != own):
        raise ForbiddenScope(f"{name[:80]!r} is somebody's own; yours is `{OWN_SCOPE}`")
    return scope


def _source_name(scope: MemoryScope, text: str) -> str:
    return hashlib.sha256(f"{scope}\0{text}".encode()).hexdigest()[:_SOURCE_CHARS]
