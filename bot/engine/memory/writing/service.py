"""What people do with what is remembered: add, edit, forget, pin, move, confirm and reject."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias, TypeVar

from bot.engine.memory.changed import Changed
from bot.engine.memory.writing.deciding import Deciding, whose
from bot.engine.memory.writing.quality import AUTO, Quality
from bot.engine.memory.writing.rights import By
from bot.engine.memory.writing.succession import (
    is_by_hand,
    proposal_of,
    retract,
    succeed,
    supersede,
)
from storage.db import Database, Transaction
from storage.errors import NotAllowed, NotFound, Overtaken, WrongState
from storage.marks import Marks
from storage.memory.cells import Cells
from storage.memory.entries import EntryRepo
from storage.records.memory.entries import (
    MOST_TEXT,
    Category,
    Entry,
    EntryId,
    EntryState,
    MemoryKind,
    NewEntry,
    Origin,
    Scope,
    Tier,
)
from storage.records.memory.offers import OFFERED, offer_of, wording
from storage.records.memory.refusals import NotKept, WhyNotKept

_IMPORTANT = 0.8
_CERTAIN = 1.0

_OF_WORDS = frozenset({"said", "value", "merges", "admission", "support", "support_all", "context"})
"""Of an entry's `extra`, what is true of its old words only."""

_T = TypeVar("_T")

Also: TypeAlias = Callable[[Transaction], Awaitable[None]]
"""More to be done in the same transaction."""
AlsoMade: TypeAlias = Callable[[Transaction, Sequence[Entry | NotKept | None]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """What somebody wants kept. Without a scope it is kept with them, or with their group. `key`
    names what it is about: what was said of it before is superseded."""

    text: str
    scope: Scope | None = None
    kind: MemoryKind = MemoryKind.LONGTERM
    category: Category = Category.OTHER
    label: str = ""
    key: str = ""
    keywords: tuple[str, ...] = ()
    importance: float = _IMPORTANT
    pinned: bool = False
    source: str | None = None
    said_at: datetime | None = None


class MemoryWriter:
    """Each method is one transaction. NotFound for what `by` may not even see, NotAllowed for what
    they may see and not change."""

    def __init__(
        self,
        *,
        db: Database,
        entries: EntryRepo,
        cells: Cells,
        changed: Changed,
        mask: Callable[[str], str],
        now: Callable[[], datetime],
        deciding: Deciding | None = None,
    ) -> None:
        """`mask` takes secrets out of a text; `deciding` does what follows from a word on a
        candidate."""
        self._db = db
        self._entries = entries
        self._cells = cells
        self._deciding = deciding or Deciding(
            entries=entries, cells=cells, quality=Quality(Marks(db)), now=now
        )
        self._changed = changed
        self._mask = mask
        self._now = now

    async def add(self, wanted: ByHand, by: By) -> Entry:
        """Keep it as what a person wrote, also if it was forgotten before. Where the same words
        are there already, these become the person's. Raises NotKept."""
        text, scope, now = self._fit(wanted.text), _scope(wanted, by), self._now()
        wanted = self._masked(wanted)

        async def write(tx: Transaction) -> Entry:
            await self._entries.dig_up(tx, scope, text)
            again = await self._said_before(tx, wanted, scope, text)
            return again or await self._written(tx, new_by_hand(wanted, scope, text, by), now)

        return await self._write(write, scope)

    async def add_all(
        self, wanted: Sequence[ByHand], by: By, also: AlsoMade | None = None
    ) -> Sequence[Entry | NotKept | None]:
        """As `add`, in one transaction: what became of each. None is there already with the same
        words, and is left as it is."""

        async def write(tx: Transaction) -> Sequence[Entry | NotKept | None]:
            made = [await self._brought(tx, each, by) for each in wanted]
            if also is not None:
                await also(tx, made)
            return made

        return await self._write(write, *{_scope(each, by) for each in wanted})

    async def edit(self, entry: Entry, text: str, by: By) -> Entry:
        """Change what it says, on top of `entry` as it was read: from then on it is the person's.
        Raises Overtaken where somebody has written something else meanwhile, and NotKept."""
        text = self._fit(text)

        async def write(tx: Transaction) -> Entry:
            held = await self._held(tx, entry.id, by)
            if held.revision != entry.revision and _told(held) != _told(entry):
                raise Overtaken(f"memory {entry.id} was changed meanwhile")
            await self._entries.dig_up(tx, held.scope, text)
            extra = {name: each for name, each in held.extra.items() if name not in _OF_WORDS}
            mine = _by_hand(replace(held, text=text, abstract="", overview="", extra=extra))
            if held.state is EntryState.REJECTED:
                # What was refused is worth it to them.
                mine = replace(mine, state=EntryState.ACTIVE)
            await retract(self._entries, tx, held)
            return await self._entries.change(tx, mine, now=self._now())

        return await self._write(write, entry.scope)

    async def supersede(self, entry: Entry, text: str, by: By) -> Entry:
        """From now on this is so; what was so until now is kept, and not recalled."""
        text = self._fit(text)

        async def write(tx: Transaction) -> Entry:
            old = await self._held(tx, entry.id, by)
            if old.state is not EntryState.ACTIVE:
                raise WrongState("memory", old.id, old.state.value)
            await self._entries.dig_up(tx, old.scope, text)
            new = replace(_again(old), text=text, origin=Origin.MANUAL, confidence=_CERTAIN)
            made = await supersede(self._entries, tx, old, new, now=self._now())
            if made is None:
                raise NotKept(WhyNotKept.EMPTY)
            return made

        return await self._write(write, entry.scope)

    async def forget(self, entry: Entry, by: By, *, also: Also | None = None) -> int:
        """For good: it, what it took the place of, and what it was drawn from or was drawn from
        it alone, so that its words are not recalled by another way. How many entries that were.
        `also` is done with it."""

        async def write(tx: Transaction) -> int:
            held = await self._held(tx, entry.id, by)
            gone = {held.id: held}
            before = await self._entries.before(tx, held)
            for each in (held, *before, *await self._echoes(tx, held)):
                kin = [each, *await self._cells.kin(tx, each)]
                gone |= {near.id: near for near in kin if by.may_write(near.scope)}
            await self._entries.forget(tx, *gone.values(), now=self._now())
            if AUTO in held.extra:
                await self._deciding.undone(tx, held)
            if also is not None:
                await also(tx)
            return len(gone)

        return await self._write(write, entry.scope)

    async def pin(self, entry: Entry, by: By, *, pinned: bool = True) -> Entry:
        """What is pinned is never archived, changed or superseded by the program."""

        async def write(tx: Transaction) -> Entry:
            held = await self._held(tx, entry.id, by)
            if held.pinned == pinned:
                return held
            return await self._entries.change(tx, replace(held, pinned=pinned), now=self._now())

        return await self._write(write, entry.scope)

    async def move(self, entry: Entry, scope: Scope, by: By) -> Entry:
        """For others than it was. To everybody only on an owner's word."""
        _check(by, scope)

        async def write(tx: Transaction) -> Entry:
            held = await self._held(tx, entry.id, by)
            await self._entries.dig_up(tx, scope, held.text)
            extra = {name: each for name, each in held.extra.items() if name != OFFERED}
            moved = replace(held, scope=scope, origin=Origin.MANUAL, extra=extra)
            await self._cells.forget_vectors(tx, held)
            await retract(self._entries, tx, held)
            return await self._entries.change(tx, moved, now=self._now())

        return await self._write(write, entry.scope, scope)

    async def file(self, entry: Entry, category: Category, label: str, by: By) -> Entry:
        """Put it under another heading."""

        async def write(tx: Transaction) -> Entry:
            held = await self._held(tx, entry.id, by)
            filed = replace(_by_hand(held), category=category, label=label)
            return await self._entries.change(tx, filed, now=self._now())

        return await self._write(write, entry.scope)

    async def confirm(self, candidate: Entry, by: By, *, scope: Scope | None = None) -> Entry:
        """It is so, and is kept for long; in another scope only where `by` may write there. What
        somebody else said is theirs to decide. Raises Overtaken where it says something else by
        now than `candidate` does."""
        if scope is not None:
            _check(by, scope)

        async def write(tx: Transaction) -> Entry:
            return await self._deciding.confirm(tx, await self._to_decide(tx, candidate, by), scope)

        return await self._write(write, candidate.scope, *(() if scope is None else (scope,)))

    async def reject(self, candidate: Entry, by: By) -> Entry:
        """It is not so, or not worth keeping; it is not proposed again. Raises as `confirm`."""

        async def write(tx: Transaction) -> Entry:
            return await self._deciding.reject(tx, await self._to_decide(tx, candidate, by))

        return await self._write(write, candidate.scope)

    async def _to_decide(self, tx: Transaction, candidate: Entry, by: By) -> Entry:
        """Read again, for `by` to decide about it."""
        held = await self._held(tx, candidate.id, by)
        if wording(held) != wording(candidate):
            raise Overtaken(f"memory {held.id} was changed meanwhile")
        if not by.may_decide(whose(held)):
            raise NotAllowed("memory", held.id)
        return held

    async def _echoes(self, tx: Transaction, held: Entry) -> Sequence[Entry]:
        """What says the same words there, in whatever state, or was proposed because of it; but
        for what a person has written."""
        said = await self._entries.same_as(held.scope, held.text, tx=tx)
        found = {each.id: each for each in said if each.id != held.id}
        for source in (proposal_of(held), offer_of(held)):
            proposed = await self._entries.by_source(source, tx=tx)
            found |= {} if proposed is None else {proposed.id: proposed}
        return [each for each in found.values() if not is_by_hand(each)]

    async def _brought(self, tx: Transaction, wanted: ByHand, by: By) -> Entry | NotKept | None:
        scope = _scope(wanted, by)
        try:
            text = self._fit(wanted.text)
            if await self._entries.same_as(scope, text, tx=tx):
                return None
            await self._entries.dig_up(tx, scope, text)
            new = new_by_hand(self._masked(wanted), scope, text, by)
            return await self._written(tx, new, self._now())
        except NotKept as error:
            return error

    async def _written(self, tx: Transaction, new: NewEntry, now: datetime) -> Entry:
        older = await self._entries.by_key(new.scope, new.key, tx=tx) if new.key else ()
        made = await self._entries.add(tx, new, now=now)
        if made is None:
            # Told again under the same source: it is there.
            found = await self._entries.by_source(new.source or "", tx=tx)
            if found is None:
                raise NotKept(WhyNotKept.EMPTY)
            return found
        for old in older:
            made = await succeed(self._entries, tx, old, made, now=now)
        return made

    async def _said_before(
        self, tx: Transaction, wanted: ByHand, scope: Scope, text: str
    ) -> Entry | None:
        same = await self._entries.same_as(scope, text, tx=tx)
        # What counts now before what was only proposed or laid aside.
        for each in sorted(same, key=lambda entry: entry.state is not EntryState.ACTIVE):
            if each.kind is MemoryKind.CELL or each.state is EntryState.SUPERSEDED:
                continue
            if wanted.key and each.key != wanted.key:
                continue
            mine = replace(_by_hand(each, state=EntryState.ACTIVE), kind=wanted.kind, text=text)
            mine = replace(mine, pinned=each.pinned or wanted.pinned)
            return await self._entries.change(tx, mine, now=self._now())
        return None

    async def _held(self, tx: Transaction, entry_id: EntryId, by: By) -> Entry:
        held = await self._entries.get(entry_id, by.scopes, tx=tx)
        _check(by, held.scope)
        return held

    async def _write(self, write: Callable[[Transaction], Awaitable[_T]], *scopes: Scope) -> _T:
        async with self._db.write() as tx:
            done = await write(tx)
        self._changed.tell(*scopes)
        return done

    def _masked(self, wanted: ByHand) -> ByHand:
        keywords = tuple(self._mask(plain(each)) for each in wanted.keywords)
        return replace(wanted, label=self._mask(plain(wanted.label)), keywords=keywords)

    def _fit(self, text: str) -> str:
        text = self._mask(plain(text)).strip()
        if not text:
            raise NotKept(WhyNotKept.EMPTY)
        if len(text) > MOST_TEXT:
            raise NotKept(WhyNotKept.TOO_LONG)
        return text


def plain(text: str) -> str:
    """What every store can keep."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _by_hand(entry: Entry, *, state: EntryState | None = None) -> Entry:
    return replace(
        entry,
        origin=Origin.MANUAL,
        confidence=_CERTAIN,
        invalidated_at=None if state is not None else entry.invalidated_at,
        state=state or entry.state,
    )


def _scope(wanted: ByHand, by: By) -> Scope:
    """Raises NotFound where there is none, and NotAllowed."""
    scope = wanted.scope or (by.reader.keeps_in if by.reader is not None else None)
    if scope is None:
        raise NotFound("memory", "scope")
    _check(by, scope)
    return scope


def _check(by: By, scope: Scope) -> None:
    if not by.may_write(scope):
        raise NotAllowed("memory", str(scope))


def _told(entry: Entry) -> tuple[object, ...]:
    return entry.text, entry.state, entry.scope


def new_by_hand(wanted: ByHand, scope: Scope, text: str, by: By) -> NewEntry:
    chat = by.reader.chat if by.reader is not None else None
    return NewEntry(
        kind=wanted.kind,
        scope=scope,
        text=text,
        category=wanted.category,
        label=wanted.label,
        key=wanted.key,
        keywords=wanted.keywords,
        importance=wanted.importance,
        confidence=_CERTAIN,
        tier=Tier.CORE,
        pinned=wanted.pinned,
        origin=Origin.MANUAL,
        source=wanted.source,
        said_at=wanted.said_at,
        sender="" if by.person is None else by.person.name,
        person=None if by.person is None else by.person.id,
        chat=None if chat is None else chat.id,
    )


def _again(old: Entry) -> NewEntry:
    """A new entry about the same as an old one."""
    return NewEntry(
        kind=old.kind,
        scope=old.scope,
        text=old.text,
        category=old.category,
        label=old.label,
        keywords=old.keywords,
        importance=old.importance,
        confidence=old.confidence,
        tier=old.tier,
        pinned=old.pinned,
        key=old.key,
        origin=old.origin,
        sender=old.sender,
        thread=old.thread,
        person=old.person,
        chat=old.chat,
        task=old.task,
    )
