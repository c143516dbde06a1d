"""Takes down what was said plainly, in the transaction that keeps the cell it was said in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo

from bot.engine.memory.temporal import valid_until
from bot.engine.memory.writing.noise import is_time_bound
from bot.engine.memory.writing.rules import plainly_said
from bot.engine.memory.writing.saying import Plain
from bot.engine.memory.writing.succession import is_by_hand, supersede
from storage.db import Transaction
from storage.memory.cells import Cells
from storage.memory.entries import EntryRepo
from storage.memory.words import same
from storage.records.memory.entries import (
    Category,
    Entry,
    EntryState,
    MemoryKind,
    NewEntry,
    ScopeKind,
    Tier,
)
from storage.records.memory.support import support_of

MOST_EVIDENCE = 20
_PERSONAL = {Category.PROFILE, Category.PREFERENCES}
_PASSING = {Category.OTHER, Category.ENTITIES}
_IMPORTANCE = {Category.PROFILE: 0.9, Category.LESSONS: 0.8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of something said plainly: the entry that says it now. `stands` says that a
    person wrote something else by hand, which was not changed."""

    entry: Entry
    stands: bool = False


class Plainly:
    def __init__(self, entries: EntryRepo, cells: Cells, *, zone: tzinfo = UTC) -> None:
        """In `zone` a day ends that is named."""
        self._entries = entries
        self._cells = cells
        self._zone = zone

    async def take_down(self, tx: Transaction, cell: Entry, said: str) -> Sequence[Taken]:
        taken: list[Taken] = []
        for plain in plainly_said(said):
            new = _entry(cell, plain, self._zone)
            older = await self._about_the_same(tx, new)
            by_hand = next((each for each in older if is_by_hand(each)), None)
            if by_hand is not None:
                # What a person has written themselves stands until they change it.
                taken.append(Taken(entry=by_hand, stands=same(by_hand.text) != same(new.text)))
            elif made := await self._kept(tx, cell, plain, new, older):
                await self._cells.cite(tx, made, [cell])
                taken.append(Taken(entry=made))
        return taken

    async def _kept(
        self, tx: Transaction, cell: Entry, plain: Plain, new: NewEntry, older: Sequence[Entry]
    ) -> Entry | None:
        for each in older:
            if same(each.text) == same(new.text):
                return await supported(self._entries, tx, each, cell)
        if plain.is_wish:
            # Said again after it was forgotten: it is their own word.
            await self._entries.dig_up(tx, new.scope, new.text)
        if not older:
            return await self._entries.add(tx, new, now=cell.said_at)
        return await supersede(self._entries, tx, older[0], new, now=cell.said_at)

    async def _about_the_same(self, tx: Transaction, new: NewEntry) -> Sequence[Entry]:
        if new.key:
            held = await self._entries.by_key(new.scope, new.key, tx=tx)
            # What holds on some days only is not what is told anew.
            return sorted(held, key=lambda each: bool(support_of(each).context))
        again = await self._entries.same_as(new.scope, new.text, tx=tx)
        active = [each for each in again if each.state is EntryState.ACTIVE]
        return [each for each in active if each.kind is not MemoryKind.CELL]


async def supported(entries: EntryRepo, tx: Transaction, held: Entry, cell: Entry) -> Entry:
    """The same was said once more."""
    evidence = with_evidence(held, [str(cell.source or cell.id)])
    if evidence == tuple(held.evidence):
        return held
    return await entries.change(tx, replace(held, evidence=evidence), now=cell.said_at)


def with_evidence(held: Entry, more: list[str]) -> tuple[str, ...]:
    """Distinct sources, the newest kept."""
    return tuple(dict.fromkeys([*held.evidence, *more]))[-MOST_EVIDENCE:]


def key_for(cell: Entry, key: str) -> str:
    """In a group everybody has a name and a taste of their own."""
    shared = cell.scope.kind is not ScopeKind.PERSON and cell.person is not None
    return f"{key}@{cell.person}" if key and shared else key


def told_in(cell: Entry, text: str) -> str:
    """In a group it is said of whom it is true."""
    shared = cell.scope.kind is not ScopeKind.PERSON and cell.sender
    return f"{cell.sender}: {text}" if shared else text


def _entry(cell: Entry, plain: Plain, zone: tzinfo) -> NewEntry:
    what = plain.key or "noted"
    # What somebody wants kept of tomorrow ends with it.
    passing = plain.category in _PASSING and is_time_bound(plain.text)
    until = valid_until(plain.text, Category.EVENTS, cell.said_at, zone) if passing else None
    return NewEntry(
        kind=MemoryKind.PROFILE if plain.category in _PERSONAL else MemoryKind.FACT,
        scope=cell.scope,
        text=told_in(cell, plain.text),
        category=Category.EVENTS if passing else plain.category,
        importance=_IMPORTANCE.get(plain.category, 0.8),
        confidence=plain.confidence,
        tier=Tier.WORKING,
        dynamic=passing,
        valid_until=until,
        key=key_for(cell, plain.key),
        origin=cell.origin,
        source=f"{what}:{cell.source}",
        evidence=(str(cell.source or cell.id),),
        sender=cell.sender,
        thread=cell.thread,
        person=cell.person,
        chat=cell.chat,
        task=cell.task,
        said_at=cell.said_at,
        extra={"value": plain.value} if plain.value else {},
    )
