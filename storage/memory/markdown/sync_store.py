"""Stores the state of Markdown sync: shown entries, conflicts and digests of written files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, bindparam, delete, func, select

from storage.db import Database, Transaction, record_from
from storage.dialect import insert_or_ignore, upsert
from storage.memory.markdown.page_format import PageDigest
from storage.memory_schema import (
    entry_from_row,
    memories,
    memory_files,
    memory_links,
    memory_scopes,
    memory_tombstones,
)
from storage.records.memory import (
    EntryId,
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryState,
    text_hash,
)
from storage.search.inverted_index import in_chunks

CONFLICT_LINK = "rival"
"""Links two versions of one line. It has no weight."""

MAX_FILE_ENTRIES = 5_000
"""Maximum entries in one file."""

_M = memories.c
_L = memory_links.c
_PAGE_SIZE = 2_000
_BATCH_SIZE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOutline:
    """The fields that decide which file an entry belongs to; `is_shown` says whether it appears
    there."""

    number: int
    id: EntryId
    kind: MemoryKind
    said_at: datetime
    updated_at: datetime
    is_shown: bool


class SyncedEntryRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def list_scopes(self) -> Sequence[MemoryScope]:
        """All scopes that ever had entries."""
        async with self._db.read_once() as view:
            names = await view.scalars(select(memory_scopes.c.name).order_by(memory_scopes.c.name))
            return [MemoryScope.parse(name) for name in names]

    async def list_shown(
        self,
        scope: MemoryScope,
        kinds: Sequence[MemoryKind],
        *,
        since: datetime | None = None,
        before: datetime | None = None,
        only: EntryId | None = None,
    ) -> Sequence[MemoryEntry]:
        """The last active entries, oldest first."""
        where = _shown_conditions(scope, kinds, since, before, only)
        query = select(memories).where(*where).order_by(_M.number.desc()).limit(MAX_FILE_ENTRIES)
        rows = await self._db.fetch_all(query)
        return [entry_from_row(row) for row in reversed(rows)]

    async def count_left_out(
        self,
        scope: MemoryScope,
        kinds: Sequence[MemoryKind],
        *,
        since: datetime | None = None,
        before: datetime | None = None,
    ) -> int:
        """How many older entries `list_shown` has no room for."""
        where = _shown_conditions(scope, kinds, since, before, None)
        query = select(func.count()).select_from(memories).where(*where)
        return max(0, int(await self._db.fetch_value(query) or 0) - MAX_FILE_ENTRIES)

    async def find_by_sources(
        self, sources: Mapping[str, EntryId]
    ) -> Mapping[EntryId, MemoryEntry]:
        """The entry created from each source, by the id given for that source, where one exists."""
        found: dict[EntryId, MemoryEntry] = {}
        async with self._db.read() as view:
            for some in in_chunks(list(sources), _BATCH_SIZE):
                query = select(memories).where(_M.source.in_(some))
                rows = (await view.execute(query)).all()
                found |= {sources[row.source]: entry_from_row(row) for row in rows}
        return found

    async def find_by_ids(self, ids: Iterable[EntryId]) -> Mapping[EntryId, MemoryEntry]:
        found: dict[EntryId, MemoryEntry] = {}
        async with self._db.read() as view:
            for some in in_chunks(list(ids), _BATCH_SIZE):
                rows = (await view.execute(select(memories).where(_M.id.in_(some)))).all()
                found |= {EntryId(row.id): entry_from_row(row) for row in rows}
        return found

    async def list_outlines(
        self,
        scope: MemoryScope,
        kinds: Sequence[MemoryKind],
        *,
        after: int = 0,
        since: datetime | None,
        known_up_to: int = 0,
    ) -> Sequence[EntryOutline]:
        """A page of outlines by number above `after`; call again with the last number until empty.

        Includes entries in any state that were changed `since` then or are numbered above
        `known_up_to`.
        """
        columns = (_M.number, _M.id, _M.kind, _M.said_at, _M.updated_at, _M.state)
        where = [*_scope_conditions(scope, kinds), _M.number > after]
        # A restored entry is new although its timestamps are old.
        where += [] if since is None else [(_M.updated_at >= since) | (_M.number > known_up_to)]
        query = select(*columns).where(*where).order_by(_M.number).limit(_PAGE_SIZE)
        rows = await self._db.fetch_all(query)
        return [
            record_from(EntryOutline, row, is_shown=row.state == MemoryState.ACTIVE.value)
            for row in rows
        ]

    async def count(self, scope: MemoryScope, kinds: Sequence[MemoryKind]) -> tuple[int, int]:
        """The number of entries in any state and the highest entry number. Both may fall after a
        deletion, and numbers may be reused."""
        query = select(func.count(), func.max(_M.number)).where(*_scope_conditions(scope, kinds))
        async with self._db.read_once() as view:
            row = (await view.execute(query)).one()
        return int(row[0] or 0), int(row[1] or 0)

    async def get_scope_states(self) -> Mapping[MemoryScope, tuple[object, ...]]:
        """A value for each scope that changes when any of its entries does."""
        facts = func.count(), func.max(_M.number), func.max(_M.updated_at), func.sum(_M.revision)
        query = select(_M.scope, *facts).group_by(_M.scope)
        return {
            MemoryScope.parse(row[0]): tuple(row[1:]) for row in await self._db.fetch_all(query)
        }

    async def is_forgotten(self, scope: MemoryScope, text: str) -> bool:
        """Whether this text was forgotten in this scope."""
        tomb = memory_tombstones.c
        query = select(tomb.at).where(tomb.scope == str(scope), tomb.hash == text_hash(text))
        return await self._db.fetch_value(query) is not None

    async def add_conflict(self, one: MemoryEntry, other: MemoryEntry) -> None:
        """Mark two entries as versions of the same line until one is deleted."""
        link = {"one": one.number, "other": other.number, "kind": CONFLICT_LINK, "weight": 0.0}
        async with self._db.write() as tx:
            await tx.execute(insert_or_ignore(self._db.dialect, memory_links).values(link))

    async def list_conflicts(self, scope: MemoryScope) -> Mapping[int, int]:
        """The older entry's number by the newer one's."""
        query = (
            select(_L.one, _L.other)
            .join(memories, and_(_M.number == _L.other, _M.scope == str(scope)))
            .where(_L.kind == CONFLICT_LINK)
        )
        return {row.other: row.one for row in await self._db.fetch_all(query)}


def _shown_conditions(
    scope: MemoryScope,
    kinds: Sequence[MemoryKind],
    since: datetime | None,
    before: datetime | None,
    only: EntryId | None,
) -> list[ColumnElement[bool]]:
    where = [*_scope_conditions(scope, kinds), _M.state == MemoryState.ACTIVE.value]
    where += [] if since is None else [_M.said_at >= since]
    where += [] if before is None else [_M.said_at < before]
    return where + ([] if only is None else [_M.id == only])


def _scope_conditions(scope: MemoryScope, kinds: Sequence[MemoryKind]) -> list[ColumnElement[bool]]:
    return [_M.scope == str(scope), _M.kind.in_([kind.value for kind in kinds])]


MAX_SNAPSHOTS = 50
"""Per file; an editor opened before these removes nothing."""

SNAPSHOT_RETENTION_DAYS = 7
"""Days for which a file's older snapshots are retained."""

_F = memory_files.c
_NUMBER_SEPARATOR = "#"
_NUMBER_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSnapshot:
    """A file as written: `number` counts writes from 1; `hash` covers the whole file."""

    path: str
    number: int
    hash: str
    page_digest: PageDigest
    at: datetime

    def matches(self, body: str) -> bool:
        return self.hash == body_hash(body)


class FileSnapshotRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def find_latest(self, path: str, *, tx: Transaction | None = None) -> FileSnapshot | None:
        query = select(memory_files).where(_belongs_to_file(path)).order_by(_F.path.desc()).limit(1)
        row = await self._db.fetch_one(query, tx=tx)
        return None if row is None else _snapshot(row)

    async def find_page_digest(self, path: str, number: int) -> PageDigest | None:
        """The file's digest at its n-th write."""
        async with self._db.read_once() as view:
            query = select(_F.body).where(_F.path == _snapshot_key(path, number))
            body: str | None = await view.scalar(query)
        return None if body is None else PageDigest.from_json(body)

    async def is_known(self, path: str, body: str) -> bool:
        """Whether this is exactly a text Shiftboss wrote."""
        query = select(_F.path).where(_belongs_to_file(path), _F.hash == body_hash(body)).limit(1)
        return await self._db.fetch_value(query) is not None

    async def put(self, snapshot: FileSnapshot, *, on_disk: int = 0) -> None:
        """Save it before the file is written, so that every written file has a snapshot.

        `on_disk` is the number of the file that is there, which is kept: later ones may have been
        saved and never written."""
        row = {
            "path": _snapshot_key(snapshot.path, snapshot.number),
            "body": snapshot.page_digest.to_json(),
            "hash": snapshot.hash,
            "at": snapshot.at,
        }
        old = delete(memory_files).where(
            _belongs_to_file(snapshot.path),
            _F.path != bindparam("there"),
            (_F.path <= bindparam("last"))
            # A file just replaced stays beside the new one for a while and must be recognized.
            | ((_F.at < bindparam("since")) & (_F.path < bindparam("before"))),
        )
        facts = {
            "last": _snapshot_key(snapshot.path, max(0, snapshot.number - MAX_SNAPSHOTS)),
            "since": snapshot.at - timedelta(days=SNAPSHOT_RETENTION_DAYS),
            "before": _snapshot_key(snapshot.path, max(0, snapshot.number - 1)),
            "there": _snapshot_key(snapshot.path, on_disk),
        }
        async with self._db.write() as tx:
            await tx.execute(upsert(self._db.dialect, memory_files, row, ("path",)), row)
            await tx.execute(old, facts)

    async def delete(self, path: str) -> None:
        async with self._db.write() as tx:
            await tx.execute(delete(memory_files).where(_belongs_to_file(path)))

    async def list_latest(self) -> Mapping[str, FileSnapshot]:
        """The latest snapshot of each known file."""
        last = select(func.max(_F.path)).group_by(func.substr(_F.path, 1, _name_length()))
        query = select(memory_files).where(_F.path.in_(last)).order_by(_F.path)
        found = [_snapshot(row) for row in await self._db.fetch_all(query)]
        return {each.path: each for each in found}


def _snapshot(row: Row[Any]) -> FileSnapshot:
    path, _, number = row.path.rpartition(_NUMBER_SEPARATOR)
    began = PageDigest.from_json(row.body)
    return FileSnapshot(path=path, number=int(number), hash=row.hash, page_digest=began, at=row.at)


def _name_length() -> ColumnElement[int]:
    return func.length(_F.path) - _NUMBER_DIGITS


def _belongs_to_file(path: str) -> ColumnElement[bool]:
    return _F.path.startswith(f"{path}{_NUMBER_SEPARATOR}", autoescape=True)


def _snapshot_key(path: str, number: int) -> str:
    return f"{path}{_NUMBER_SEPARATOR}{number:0{_NUMBER_DIGITS}}"


def body_hash(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()
