"""What is remembered, row by row. Every reader names the scopes that it may see."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
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

from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.errors import AmbiguousId, NotFound, Overtaken
from storage.ids import TASK_LENGTH, Ids
from storage.memory.fields import AROUND, added, beside, own_words, words_of
from storage.memory.index import Index
from storage.memory.living.neighbours import said_after, said_before
from storage.memory.rows import changed_row, entry_of, new_row
from storage.memory.tables import (
    memories,
    memory_links,
    memory_scopes,
    memory_vectors,
)
from storage.memory.tombstones import Tombstones
from storage.memory.words import same
from storage.records.memory.entries import (
    Category,
    Entry,
    EntryId,
    EntryState,
    MemoryKind,
    NewEntry,
    Origin,
    Scope,
)

_M = memories.c
_ID_LENGTH = TASK_LENGTH + 2
_SHOWN = 5


class EntryRepo:
    """`None` for scopes means all of them: for the program itself, never for a reader. In `zone`
    is told on which day something was said."""

    def __init__(self, db: Database, ids: Ids, index: Index, *, zone: tzinfo = UTC) -> None:
        self._db = db
        self._ids = ids
        self._index = index
        self._zone = zone
        self.tombstones = Tombstones(db)

    async def add(
        self,
        tx: Transaction,
        new: NewEntry,
        *,
        now: datetime,
        around: Mapping[int, str] | None = None,
    ) -> Entry | None:
        """Remember it, and index it with what was said `around` it (`fields.AROUND`). None if its
        source has written it before, or if somebody wanted these words forgotten here."""
        if await self.tombstones.has_words(tx, new.scope, new.text):
            return None
        row = new_row(new, id=self._ids(_ID_LENGTH), now=now)
        made = await tx.execute(
            insert_or_ignore(self._db.dialect, memories).values(row).returning(memories)
        )
        kept = made.one_or_none()
        if kept is None:
            return None
        entry = entry_of(kept)
        await self.index(tx, entry, around=around)
        return entry

    async def index(
        self,
        tx: Transaction,
        entry: Entry,
        *,
        around: Mapping[int, str] | None = None,
        facts: str = "",
    ) -> None:
        """Make it found by what it says, and by the words around it. Words that it was found by
        before and that are none of these still find it: `change` takes those away."""
        await self.index_all(tx, [(entry, around, facts)])

    async def index_all(
        self, tx: Transaction, rows: Iterable[tuple[Entry, Mapping[int, str] | None, str]]
    ) -> None:
        """As `index`, of some dozens at once: much quicker than one by one."""
        words = [
            (each.number, each.scope, words_of(each, self._zone, around=around, facts=facts))
            for each, around, facts in rows
        ]
        await self._index.put(tx, words)

    async def get(
        self,
        entry_id: EntryId,
        scopes: Iterable[Scope] | None,
        *,
        tx: Transaction | None = None,
    ) -> Entry:
        """Raises NotFound, also for one that these scopes do not see."""
        found = await self._where(_M.id == entry_id, _within(scopes), tx=tx)
        if not found:
            raise NotFound("memory", entry_id)
        return found[0]

    async def numbered(
        self,
        numbers: Sequence[int],
        scopes: Iterable[Scope] | None,
        *,
        tx: Transaction | None = None,
    ) -> Sequence[Entry]:
        """In the order asked for; those that are not seen are left out."""
        found = await self._where(_M.number.in_(numbers), _within(scopes), tx=tx)
        by_number = {entry.number: entry for entry in found}
        return [by_number[n] for n in numbers if n in by_number]

    async def with_ids(
        self,
        ids: Iterable[EntryId],
        scopes: Iterable[Scope] | None,
        *,
        tx: Transaction | None = None,
    ) -> Sequence[Entry]:
        """Those of them that are there and seen, the newest first."""
        return await self._where(_M.id.in_(list(ids)), _within(scopes), tx=tx)

    async def standing(
        self, scopes: Iterable[Scope], kinds: Sequence[MemoryKind], *, each: int
    ) -> Sequence[Entry]:
        """Active ones of these kinds, and whatever somebody pinned: of each kind and scope the
        first `each`, so that many of one push out none of another. What is pinned comes first,
        then what was written by hand, then what is worth most."""
        first = (
            func.row_number()
            .over(
                partition_by=[_M.kind, _M.scope],
                order_by=[
                    _M.pinned.desc(),
                    (_M.origin == Origin.MANUAL.value).desc(),
                    (_M.importance * _M.confidence).desc(),
                    _M.said_at.desc(),
                    _M.number.desc(),
                ],
            )
            .label("place")
        )
        stands = or_(_M.kind.in_([kind.value for kind in kinds]), _M.pinned)
        there = and_(_within(scopes), _M.state == EntryState.ACTIVE.value, stands)
        placed = select(_M.number, first).where(there).subquery()
        wanted = select(placed.c.number).where(placed.c.place <= each)
        query = select(memories).where(_M.number.in_(wanted))
        async with self._db.read() as view:
            return [entry_of(row) for row in (await view.execute(query)).all()]

    async def list(
        self,
        scopes: Iterable[Scope] | None,
        *,
        kinds: Sequence[MemoryKind] = (),
        states: Sequence[EntryState] = (EntryState.ACTIVE,),
        category: Category | None = None,
        limit: int = 100,
        offset: int = 0,
        tx: Transaction | None = None,
    ) -> Sequence[Entry]:
        """The newest first, pinned ones before all."""
        where = [_within(scopes), _M.state.in_([state.value for state in states])]
        if kinds:
            where.append(_M.kind.in_([kind.value for kind in kinds]))
        if category is not None:
            where.append(_M.category == category.value)
        query = (
            select(memories)
            .where(*where)
            .order_by(_M.pinned.desc(), _M.said_at.desc(), _M.number.desc())
            .limit(limit)
            .offset(offset)
        )
        async with self._db.read(tx) as view:
            return [entry_of(row) for row in (await view.execute(query)).all()]

    async def page(
        self, scopes: Iterable[Scope] | None, *, after: int = 0, limit: int = 500
    ) -> Sequence[Entry]:
        """All of them in every state, by their numbers: the first beyond `after`. What is added or
        forgotten meanwhile moves no other from one page to the next."""
        query = select(memories).where(_within(scopes), _M.number > after)
        async with self._db.read() as view:
            rows = (await view.execute(query.order_by(_M.number).limit(limit))).all()
        return [entry_of(row) for row in rows]

    async def count(
        self,
        scopes: Iterable[Scope] | None,
        *,
        kinds: Sequence[MemoryKind] = (),
        states: Sequence[EntryState] = (EntryState.ACTIVE,),
    ) -> int:
        """How many `list` would give in all."""
        where = [_within(scopes), _M.state.in_([state.value for state in states])]
        if kinds:
            where.append(_M.kind.in_([kind.value for kind in kinds]))
        async with self._db.read() as view:
            return await view.scalar(select(func.count()).where(*where)) or 0

    async def find(self, prefix: str, scopes: Iterable[Scope] | None) -> Entry:
        """By its id or the beginning of it. Raises NotFound and AmbiguousId."""
        begins = _M.id.startswith(prefix, autoescape=True) if prefix else false()
        query = select(memories).where(begins, _within(scopes)).order_by(_M.id).limit(_SHOWN + 1)
        async with self._db.read() as view:
            found = [entry_of(row) for row in (await view.execute(query)).all()]
        exact = [entry for entry in found if entry.id == prefix]
        if not found:
            raise NotFound("memory", prefix)
        if len(found) > 1 and not exact:
            raise AmbiguousId(prefix, tuple(entry.id for entry in found[:_SHOWN]))
        return (exact or found)[0]

    async def by_source(self, source: str, *, tx: Transaction | None = None) -> Entry | None:
        return next(iter(await self._where(_M.source == source, tx=tx)), None)

    async def by_key(
        self, scope: Scope, key: str, *, tx: Transaction | None = None
    ) -> Sequence[Entry]:
        """Active entries about the same thing, the newest first."""
        active = _M.state == EntryState.ACTIVE.value
        return await self._where(_M.scope == str(scope), _M.key == key, active, tx=tx)

    async def same_as(
        self, scope: Scope, text: str, *, tx: Transaction | None = None
    ) -> Sequence[Entry]:
        """Those with the same words, whatever their state."""
        return await self._where(_M.scope == str(scope), _M.hash == same(text), tx=tx)

    async def before(self, tx: Transaction, entry: Entry) -> Sequence[Entry]:
        """What it took the place of, and what that had taken the place of."""
        found: dict[EntryId, Entry] = {}
        ends = [entry]
        while ends:
            old = _M.id.in_([each.supersedes for each in ends if each.supersedes])
            replaced = and_(
                _M.scope.in_({str(each.scope) for each in ends}),
                _M.state == EntryState.SUPERSEDED.value,
                _M.superseded_by.in_([each.id for each in ends]),
            )
            older = [*await self._where(old, tx=tx), *await self._where(replaced, tx=tx)]
            ends = [each for each in older if each.id not in found and each.id != entry.id]
            found |= {each.id: each for each in ends}
        return list(found.values())

    async def change(self, tx: Transaction, entry: Entry, *, now: datetime) -> Entry:
        """Write all of it, on top of the revision that it was read as. Raises Overtaken if
        somebody was quicker. It is indexed again if its words have changed."""
        changed = replace(entry, revision=entry.revision + 1, updated_at=now)
        before = await self._where(_M.number == entry.number, tx=tx)
        done = await tx.execute(
            update(memories)
            .where(_M.number == entry.number, _M.revision == entry.revision)
            .values(changed_row(changed))
        )
        if not done.rowcount:
            raise Overtaken
        await self._reindex(tx, before[0], changed)
        return changed

    async def forget(self, tx: Transaction, *entries: Entry, now: datetime) -> None:
        """For good: nothing of them stays but marks that keep them and their words from coming
        back."""
        for each in entries:
            await self.tombstones.bury(tx, each, now=now)
        await self.drop_all(tx, entries)

    async def drop(self, tx: Transaction, entry: Entry) -> None:
        """The same without the marks: if it is said again it is remembered again."""
        await self.drop_all(tx, [entry])

    async def drop_all(self, tx: Transaction, entries: Sequence[Entry]) -> None:
        """As `drop`, of some dozens at once: much quicker than one by one."""
        gone = {each.number: each for each in entries}
        gone |= {each.number: each for each in await self._telling_of(tx, entries)}
        less: defaultdict[Scope, dict[int, Mapping[str, float]]] = defaultdict(dict)
        for cell in gone.values():
            here = less[cell.scope]
            for number, words in await self._found_by_it(tx, cell):
                if number not in gone:
                    here[number] = added(here.get(number, {}), words, -1)
        for scope, by in less.items():
            await self._index.adjust_all(tx, scope, by)
        await self._index.remove(tx, gone)
        ends = memory_links.c.one.in_(gone) | memory_links.c.other.in_(gone)
        await tx.execute(delete(memory_links).where(ends))
        await tx.execute(delete(memory_vectors).where(memory_vectors.c.number.in_(gone)))
        await tx.execute(delete(memories).where(_M.number.in_(gone)))

    async def dig_up(self, tx: Transaction, scope: Scope, text: str) -> None:
        """What somebody writes again by hand may be remembered again."""
        await self.tombstones.dig_up(tx, scope, text)

    async def _reindex(self, tx: Transaction, old: Entry, new: Entry) -> None:
        """What was said around it stays in the index, and is not known here."""
        if _found_by(old) == _found_by(new):
            return
        # What it means is another thing now.
        await tx.execute(delete(memory_vectors).where(memory_vectors.c.number == new.number))
        if old.scope != new.scope:
            await self._index.remove(tx, [new.number])
            await self.index(tx, new)
        else:
            by = added(own_words(new, self._zone), own_words(old, self._zone), -1)
            await self._index.adjust(tx, new.number, new.scope, by)
        await self._tell_beside(tx, old, new.text if old.scope == new.scope else "")

    async def _tell_beside(self, tx: Transaction, cell: Entry, text: str) -> None:
        """What was said before and after is found by these words now, instead of the cell's."""
        if cell.kind is not MemoryKind.CELL or cell.text == text:
            return
        await self.drop_all(tx, await self._telling_of(tx, [cell]))
        for number, place in await self._around(tx, cell):
            by = added(beside(text, place), beside(cell.text, place), -1)
            await self._index.adjust(tx, number, cell.scope, by)

    async def _found_by_it(
        self, tx: Transaction, cell: Entry
    ) -> Sequence[tuple[int, Mapping[str, float]]]:
        """What is found by words of a cell that is not theirs, and by which."""
        if cell.kind is not MemoryKind.CELL:
            return ()
        around = await self._around(tx, cell)
        return [(number, beside(cell.text, place)) for number, place in around]

    async def _around(self, tx: Transaction, cell: Entry) -> Sequence[tuple[int, int]]:
        """The cells that are found by its words, and where it stands as seen from them."""
        places = sorted(AROUND, key=abs)
        earlier = await said_before(tx, cell, max(AROUND))
        later = await said_after(tx, cell, -min(AROUND))
        found = [
            *zip(earlier, (place for place in places if place > 0), strict=False),
            *zip(later, (place for place in places if place < 0), strict=False),
        ]
        return [(each.number, place) for each, place in found]

    async def _telling_of(self, tx: Transaction, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Episodes that tell of these cells, and so their words, wherever they are by now."""
        evidence = cast(_M.evidence, Text)
        tells = [
            evidence.contains(f'"{each.id}"', autoescape=True)
            for each in entries
            if each.kind is MemoryKind.CELL
        ]
        if not tells:
            return ()
        # Scopes and states are named so that the index is used.
        scopes = _M.scope.in_(select(memory_scopes.c.name))
        states = _M.state.in_([state.value for state in EntryState])
        kind = _M.kind == MemoryKind.EPISODE.value
        return await self._where(scopes, states, kind, or_(*tells), tx=tx)

    async def _where(
        self, *conditions: ColumnElement[bool], tx: Transaction | None = None
    ) -> Sequence[Entry]:
        query = select(memories).where(and_(*conditions)).order_by(_M.number.desc())
        async with self._db.read(tx) as view:
            return [entry_of(row) for row in (await view.execute(query)).all()]


def _found_by(entry: Entry) -> tuple[object, ...]:
    return entry.scope, entry.text, entry.abstract, entry.sender, tuple(entry.keywords)


def _within(scopes: Iterable[Scope] | None) -> ColumnElement[bool]:
    return true() if scopes is None else _M.scope.in_([str(scope) for scope in scopes])
