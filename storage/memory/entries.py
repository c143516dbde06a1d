"""Stores memory entries and the weighted links between them. Every reader names the scopes it may
see."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo

from sqlalchemy import (
    ColumnElement,
    Text,
    and_,
    cast,
    delete,
    false,
    func,
    or_,
    select,
    true,
    update,
)

from storage.db import Database, Transaction, records_from
from storage.dialect import insert_or_ignore
from storage.errors import AmbiguousId, ConcurrentUpdate, NotFound
from storage.ids import SHORT_ID_LENGTH, IdGenerator
from storage.memory.tombstones import TombstoneRepo
from storage.memory_schema import (
    entry_from_row,
    entry_update_values,
    memories,
    memory_links,
    memory_scopes,
    memory_vectors,
    new_entry_row,
)
from storage.records.memory import (
    EntryId,
    MemoryEntry,
    MemoryKind,
    MemoryOrigin,
    MemoryScope,
    MemoryState,
    NewMemoryEntry,
    text_hash,
)
from storage.search.inverted_index import InvertedIndex
from storage.search.terms import (
    NEIGHBOUR_WEIGHTS,
    combine_weights,
    entry_terms,
    neighbour_terms,
    own_terms,
)

_M = memories.c
_NEARBY_NUMBERS = 512
"""Neighbours are usually within this many numbers, so they are searched there first: beyond, the
database would sort the whole conversation."""

_L = memory_links.c

LINKED_KINDS = (MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM, MemoryKind.EPISODE)
"""Cells are not linked: their index already covers their neighbours."""


async def cells_before(
    tx: Transaction, cell: MemoryEntry | NewMemoryEntry, limit: int
) -> Sequence[MemoryEntry]:
    """Cells before this one, nearest first; for a new cell, the latest."""
    if isinstance(cell, MemoryEntry):
        end = cell.number
    else:
        end = (await tx.scalar(select(func.max(_M.number))) or 0) + 1
    close = _M.number.between(end - _NEARBY_NUMBERS, end - 1)
    order = _M.number.desc()
    found = await _cells_in_thread(tx, cell, close, order, limit)
    if len(found) < limit:
        found = await _cells_in_thread(tx, cell, _M.number < end, order, limit)
    return found


async def cells_after(tx: Transaction, cell: MemoryEntry, limit: int) -> Sequence[MemoryEntry]:
    """Cells after this one, nearest first."""
    close = _M.number.between(cell.number + 1, cell.number + _NEARBY_NUMBERS)
    order = _M.number.asc()
    found = await _cells_in_thread(tx, cell, close, order, limit)
    if len(found) < limit:
        found = await _cells_in_thread(tx, cell, _M.number > cell.number, order, limit)
    return found


async def _cells_in_thread(
    tx: Transaction,
    cell: MemoryEntry | NewMemoryEntry,
    where: ColumnElement[bool],
    order: ColumnElement[int],
    limit: int,
) -> Sequence[MemoryEntry]:
    there = select(memories).where(
        _M.scope == str(cell.scope),
        _M.thread == cell.thread,
        _M.kind == MemoryKind.CELL.value,
        where,
    )
    return [
        entry_from_row(row) for row in (await tx.execute(there.order_by(order).limit(limit))).all()
    ]


_ID_LENGTH = SHORT_ID_LENGTH + 2
_MAX_CANDIDATES = 5


class MemoryEntryRepo:
    """`None` for scopes means all of them; only internal code may pass it, never a reader's
    request. `zone` decides on which day something was said."""

    def __init__(
        self, db: Database, ids: IdGenerator, index: InvertedIndex, *, zone: tzinfo = UTC
    ) -> None:
        self._db = db
        self._ids = ids
        self._index = index
        self._zone = zone
        self.tombstones = TombstoneRepo(db)

    async def add(
        self,
        tx: Transaction,
        new: NewMemoryEntry,
        *,
        now: datetime,
        neighbour_texts: Mapping[int, str] | None = None,
    ) -> MemoryEntry | None:
        """Add and index an entry, with `neighbour_texts` by their distance. None if its source
        already wrote one or the text was forgotten in this scope."""
        if await self.tombstones.has_text(tx, new.scope, new.text):
            return None
        row = new_entry_row(new, id=self._ids(_ID_LENGTH), now=now)
        made = await tx.execute(
            insert_or_ignore(self._db.dialect, memories).values(row).returning(memories)
        )
        kept = made.one_or_none()
        if kept is None:
            return None
        entry = entry_from_row(kept)
        await self.index(tx, entry, neighbour_texts=neighbour_texts)
        return entry

    async def index(
        self,
        tx: Transaction,
        entry: MemoryEntry,
        *,
        neighbour_texts: Mapping[int, str] | None = None,
    ) -> None:
        """Index an entry by its own words and its neighbours'. Earlier words remain indexed: only
        `update` removes them."""
        await self.index_all(tx, [(entry, neighbour_texts, "")])

    async def index_all(
        self, tx: Transaction, rows: Iterable[tuple[MemoryEntry, Mapping[int, str] | None, str]]
    ) -> None:
        """Like `index`, for dozens of entries at once; much faster than one by one."""
        words = [
            (
                each.number,
                each.scope,
                entry_terms(each, self._zone, neighbour_texts=around, fact_text=facts),
            )
            for each, around, facts in rows
        ]
        await self._index.put(tx, words)

    async def get(
        self,
        entry_id: EntryId,
        scopes: Iterable[MemoryScope] | None,
        *,
        tx: Transaction | None = None,
    ) -> MemoryEntry:
        """Raises NotFound, also for entries outside these scopes."""
        found = await self._select(_M.id == entry_id, _in_scopes(scopes), tx=tx)
        if not found:
            raise NotFound("memory", entry_id)
        return found[0]

    async def list_by_numbers(
        self,
        numbers: Sequence[int],
        scopes: Iterable[MemoryScope] | None,
        *,
        tx: Transaction | None = None,
    ) -> Sequence[MemoryEntry]:
        """In the order asked for, without entries outside these scopes."""
        found = await self._select(_M.number.in_(numbers), _in_scopes(scopes), tx=tx)
        by_number = {entry.number: entry for entry in found}
        return [by_number[n] for n in numbers if n in by_number]

    async def list_by_ids(
        self,
        ids: Iterable[EntryId],
        scopes: Iterable[MemoryScope] | None,
        *,
        tx: Transaction | None = None,
    ) -> Sequence[MemoryEntry]:
        """Those that exist in these scopes, newest first."""
        return await self._select(_M.id.in_(list(ids)), _in_scopes(scopes), tx=tx)

    async def list_standing(
        self, scopes: Iterable[MemoryScope], kinds: Sequence[MemoryKind], *, limit_per_group: int
    ) -> Sequence[MemoryEntry]:
        """Active entries of these kinds and all pinned ones, at most `limit_per_group` of each kind
        and scope, so that no group displaces another. Order: pinned, then written by hand, then by
        value."""
        first = (
            func.row_number()
            .over(
                partition_by=[_M.kind, _M.scope],
                order_by=[
                    _M.pinned.desc(),
                    (_M.origin == MemoryOrigin.MANUAL.value).desc(),
                    (_M.importance * _M.confidence).desc(),
                    _M.said_at.desc(),
                    _M.number.desc(),
                ],
            )
            .label("place")
        )
        stands = or_(_M.kind.in_([kind.value for kind in kinds]), _M.pinned)
        there = and_(_in_scopes(scopes), _M.state == MemoryState.ACTIVE.value, stands)
        placed = select(_M.number, first).where(there).subquery()
        wanted = select(placed.c.number).where(placed.c.place <= limit_per_group)
        query = select(memories).where(_M.number.in_(wanted))
        return [entry_from_row(row) for row in await self._db.fetch_all(query)]

    async def list(
        self,
        scopes: Iterable[MemoryScope] | None,
        *,
        kinds: Sequence[MemoryKind] = (),
        states: Sequence[MemoryState] = (MemoryState.ACTIVE,),
        limit: int = 100,
        offset: int = 0,
        tx: Transaction | None = None,
    ) -> Sequence[MemoryEntry]:
        """Pinned entries first, then newest first."""
        where = _selected(scopes, kinds, states)
        query = (
            select(memories)
            .where(*where)
            .order_by(_M.pinned.desc(), _M.said_at.desc(), _M.number.desc())
            .limit(limit)
            .offset(offset)
        )
        return [entry_from_row(row) for row in await self._db.fetch_all(query, tx=tx)]

    async def list_newest(
        self,
        scopes: Iterable[MemoryScope] | None,
        *,
        kinds: Sequence[MemoryKind],
        states: Sequence[MemoryState],
        before: int | None,
        limit: int,
    ) -> Sequence[MemoryEntry]:
        """Those with numbers below `before`, the highest first."""
        query = select(memories).where(*_selected(scopes, kinds, states))
        if before is not None:
            query = query.where(_M.number < before)
        rows = await self._db.fetch_all(query.order_by(_M.number.desc()).limit(limit))
        return [entry_from_row(row) for row in rows]

    async def list_page(
        self, scopes: Iterable[MemoryScope] | None, *, after: int = 0, limit: int = 500
    ) -> Sequence[MemoryEntry]:
        """Entries in every state with numbers above `after`, by number. Concurrent changes move no
        entry to another page."""
        query = select(memories).where(_in_scopes(scopes), _M.number > after)
        rows = await self._db.fetch_all(query.order_by(_M.number).limit(limit))
        return [entry_from_row(row) for row in rows]

    async def count(
        self,
        scopes: Iterable[MemoryScope] | None,
        *,
        kinds: Sequence[MemoryKind] = (),
        states: Sequence[MemoryState] = (MemoryState.ACTIVE,),
    ) -> int:
        """How many entries `list` would return without limit."""
        where = [_in_scopes(scopes), _M.state.in_([state.value for state in states])]
        if kinds:
            where.append(_M.kind.in_([kind.value for kind in kinds]))
        return await self._db.fetch_value(select(func.count()).where(*where)) or 0

    async def find(self, prefix: str, scopes: Iterable[MemoryScope] | None) -> MemoryEntry:
        """Find by id or prefix. Raises NotFound and AmbiguousId."""
        begins = _M.id.startswith(prefix, autoescape=True) if prefix else false()
        query = (
            select(memories)
            .where(begins, _in_scopes(scopes))
            .order_by(_M.id)
            .limit(_MAX_CANDIDATES + 1)
        )
        found = [entry_from_row(row) for row in await self._db.fetch_all(query)]
        exact = [entry for entry in found if entry.id == prefix]
        if not found:
            raise NotFound("memory", prefix)
        if len(found) > 1 and not exact:
            raise AmbiguousId(prefix, tuple(entry.id for entry in found[:_MAX_CANDIDATES]))
        return (exact or found)[0]

    async def find_by_source(
        self, source: str, *, tx: Transaction | None = None
    ) -> MemoryEntry | None:
        return next(iter(await self._select(_M.source == source, tx=tx)), None)

    async def list_active_by_key(
        self, scope: MemoryScope, key: str, *, tx: Transaction | None = None
    ) -> Sequence[MemoryEntry]:
        """Active entries with this key, newest first."""
        active = _M.state == MemoryState.ACTIVE.value
        return await self._select(_M.scope == str(scope), _M.key == key, active, tx=tx)

    async def list_ended_sources(self, numbers: Sequence[int]) -> Mapping[int, datetime]:
        """Of these cells those that state only what is no longer so, with the time when that
        ended."""
        if not numbers:
            return {}
        query = (
            select(_L.other, _M.state, _M.valid_until, _M.invalidated_at)
            .join(memories, _M.number == _L.one)
            .where(_L.other.in_(numbers), _L.kind == "from", _M.kind != MemoryKind.EPISODE.value)
        )
        ended: dict[int, datetime] = {}
        holding: set[int] = set()
        for row in await self._db.fetch_all(query):
            at = row.valid_until or row.invalidated_at
            if row.state == MemoryState.SUPERSEDED.value and at is not None:
                ended[row.other] = max(at, ended.get(row.other, at))
            elif row.state == MemoryState.ACTIVE.value:
                holding.add(row.other)
        return {number: at for number, at in ended.items() if number not in holding}

    async def list_with_same_text(
        self, scope: MemoryScope, text: str, *, tx: Transaction | None = None
    ) -> Sequence[MemoryEntry]:
        """Entries with the same text, in any state."""
        return await self._select(_M.scope == str(scope), _M.hash == text_hash(text), tx=tx)

    async def list_predecessors(self, tx: Transaction, entry: MemoryEntry) -> Sequence[MemoryEntry]:
        """All entries it replaced, directly or indirectly."""
        found: dict[EntryId, MemoryEntry] = {}
        ends = [entry]
        while ends:
            old = _M.id.in_([each.supersedes for each in ends if each.supersedes])
            replaced = and_(
                _M.scope.in_({str(each.scope) for each in ends}),
                _M.state == MemoryState.SUPERSEDED.value,
                _M.superseded_by.in_([each.id for each in ends]),
            )
            older = [*await self._select(old, tx=tx), *await self._select(replaced, tx=tx)]
            ends = [each for each in older if each.id not in found and each.id != entry.id]
            found |= {each.id: each for each in ends}
        return list(found.values())

    async def update(self, tx: Transaction, entry: MemoryEntry, *, now: datetime) -> MemoryEntry:
        """Write all fields on top of the revision it was read at. Raises ConcurrentUpdate if it has
        changed since. Indexes it again if its words changed."""
        changed = replace(entry, revision=entry.revision + 1, updated_at=now)
        before = await self._select(_M.number == entry.number, tx=tx)
        values = entry_update_values(changed)
        if before and (before[0].text, before[0].scope) != (changed.text, changed.scope):
            # It is of the person whose it was when it got these words.
            values["brought_by"] = None
        done = await tx.execute(
            update(memories)
            .where(_M.number == entry.number, _M.revision == entry.revision)
            .values(values)
        )
        if not done.rowcount:
            raise ConcurrentUpdate
        await self._reindex(tx, before[0], changed)
        return changed

    async def forget(self, tx: Transaction, *entries: MemoryEntry, now: datetime) -> None:
        """Delete permanently and leave tombstones that stop the entries and their texts from coming
        back."""
        for each in entries:
            await self.tombstones.add(tx, each, now=now)
        await self.delete_all(tx, entries)

    async def restore(self, tx: Transaction, entry: MemoryEntry, *, now: datetime) -> None:
        """Make a superseded entry hold again, because what replaced it is forgotten."""
        held = replace(
            entry,
            state=MemoryState.ACTIVE,
            superseded_by=None,
            invalidated_at=None,
            valid_until=None,
        )
        await self.update(tx, held, now=now)

    async def delete(self, tx: Transaction, entry: MemoryEntry) -> None:
        """Delete without a tombstone: the same text may be remembered again."""
        await self.delete_all(tx, [entry])

    async def delete_all(self, tx: Transaction, entries: Sequence[MemoryEntry]) -> None:
        """Like `delete`, for dozens of entries at once; much faster than one by one."""
        gone = {each.number: each for each in entries}
        gone |= {each.number: each for each in await self._episodes_about(tx, entries)}
        less: defaultdict[MemoryScope, dict[int, Mapping[str, float]]] = defaultdict(dict)
        for cell in gone.values():
            here = less[cell.scope]
            for number, words in await self._terms_lent_to_neighbours(tx, cell):
                if number not in gone:
                    here[number] = combine_weights(here.get(number, {}), words, -1)
        for scope, by in less.items():
            await self._index.adjust_all(tx, scope, by)
        await self._index.remove(tx, gone)
        ends = memory_links.c.one.in_(gone) | memory_links.c.other.in_(gone)
        await tx.execute(delete(memory_links).where(ends))
        await tx.execute(delete(memory_vectors).where(memory_vectors.c.number.in_(gone)))
        await tx.execute(delete(memories).where(_M.number.in_(gone)))

    async def remove_tombstone(self, tx: Transaction, scope: MemoryScope, text: str) -> None:
        """Allow a forgotten text to be remembered again."""
        await self.tombstones.remove(tx, scope, text)

    async def _reindex(self, tx: Transaction, old: MemoryEntry, new: MemoryEntry) -> None:
        """Words from its neighbours, unknown here, stay indexed."""
        if _indexed_fields(old) == _indexed_fields(new):
            return
        # Its meaning has changed, so its vectors are stale.
        await tx.execute(delete(memory_vectors).where(memory_vectors.c.number == new.number))
        if old.scope != new.scope:
            await self._index.remove(tx, [new.number])
            await self.index(tx, new)
        else:
            by = combine_weights(own_terms(new, self._zone), own_terms(old, self._zone), -1)
            await self._index.adjust(tx, new.number, new.scope, by)
        await self._reindex_neighbours(tx, old, new.text if old.scope == new.scope else "")

    async def _reindex_neighbours(self, tx: Transaction, cell: MemoryEntry, text: str) -> None:
        """Index the neighbours by `text` instead of the cell's words."""
        if cell.kind is not MemoryKind.CELL or cell.text == text:
            return
        await self.delete_all(tx, await self._episodes_about(tx, [cell]))
        for number, place in await self._neighbouring_cells(tx, cell):
            by = combine_weights(
                neighbour_terms(text, place), neighbour_terms(cell.text, place), -1
            )
            await self._index.adjust(tx, number, cell.scope, by)

    async def _terms_lent_to_neighbours(
        self, tx: Transaction, cell: MemoryEntry
    ) -> Sequence[tuple[int, Mapping[str, float]]]:
        """Numbers of neighbours indexed by the cell's words, with those words."""
        if cell.kind is not MemoryKind.CELL:
            return ()
        around = await self._neighbouring_cells(tx, cell)
        return [(number, neighbour_terms(cell.text, place)) for number, place in around]

    async def _neighbouring_cells(
        self, tx: Transaction, cell: MemoryEntry
    ) -> Sequence[tuple[int, int]]:
        """Neighbours indexed by the cell's words, and the cell's position relative to each."""
        places = sorted(NEIGHBOUR_WEIGHTS, key=abs)
        earlier = await cells_before(tx, cell, max(NEIGHBOUR_WEIGHTS))
        later = await cells_after(tx, cell, -min(NEIGHBOUR_WEIGHTS))
        found = [
            *zip(earlier, (place for place in places if place > 0), strict=False),
            *zip(later, (place for place in places if place < 0), strict=False),
        ]
        return [(each.number, place) for each, place in found]

    async def _episodes_about(
        self, tx: Transaction, entries: Sequence[MemoryEntry]
    ) -> Sequence[MemoryEntry]:
        """Episodes about these cells, which quote them, in any scope."""
        evidence = cast(_M.evidence, Text)
        tells = [
            evidence.contains(f'"{each.id}"', autoescape=True)
            for each in entries
            if each.kind is MemoryKind.CELL
        ]
        if not tells:
            return ()
        # Naming scopes and states makes the database use its index.
        scopes = _M.scope.in_(select(memory_scopes.c.name))
        states = _M.state.in_([state.value for state in MemoryState])
        kind = _M.kind == MemoryKind.EPISODE.value
        return await self._select(scopes, states, kind, or_(*tells), tx=tx)

    async def _select(
        self, *conditions: ColumnElement[bool], tx: Transaction | None = None
    ) -> Sequence[MemoryEntry]:
        query = select(memories).where(and_(*conditions)).order_by(_M.number.desc())
        return [entry_from_row(row) for row in await self._db.fetch_all(query, tx=tx)]


def _indexed_fields(entry: MemoryEntry) -> tuple[object, ...]:
    return entry.scope, entry.text, entry.abstract, entry.sender, tuple(entry.keywords)


def _selected(
    scopes: Iterable[MemoryScope] | None,
    kinds: Sequence[MemoryKind],
    states: Sequence[MemoryState],
) -> list[ColumnElement[bool]]:
    where = [_in_scopes(scopes), _M.state.in_([state.value for state in states])]
    if kinds:
        where.append(_M.kind.in_([kind.value for kind in kinds]))
    return where


def _in_scopes(scopes: Iterable[MemoryScope] | None) -> ColumnElement[bool]:
    return true() if scopes is None else _M.scope.in_([str(scope) for scope in scopes])


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
