"""What memory could do without: noise, the same said twice, and what has faded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from bot.engine.memory.changed import Changed
from bot.engine.memory.life import DELETE_BELOW, is_kept, strength
from bot.engine.memory.orders import Orders
from bot.engine.memory.writing.noise import fact_noise, noise_of
from bot.engine.memory.writing.rights import By
from storage.db import Database
from storage.memory.entries import EntryRepo
from storage.memory.words import same
from storage.records.memory.entries import (
    Entry,
    EntryId,
    EntryState,
    MemoryKind,
    Scope,
    ScopeKind,
)
from storage.records.memory.shown import CleanReport

_A_PAGE = 500
_AT_ONCE = 50
_DRAWN = {MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    source: str
    backup: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """`back_up` writes out everything first, and says where. Without `forgets` nothing fades."""

    db: Database
    entries: EntryRepo
    changed: Changed
    orders: Orders
    back_up: Callable[[], Awaitable[str]]
    now: Callable[[], datetime]
    forgets: bool = True

    async def run(self, by: By, dry: bool, *, source: str = "") -> CleanReport:
        """Only what `by` may change; nothing that somebody wrote by hand or has pinned. Where it
        cannot be backed up nothing goes, and what is told is what went, also before the order of
        this `source` was handled again."""
        report = await self._judged(by)
        if dry:
            return report
        before = await self.orders.so_far(source)
        if not report.total:
            done = before.entries > 0
            return replace(report, done=done, backup=before.backup, before=before.entries)
        backup = await self.back_up()
        gone: set[EntryId] = set()
        for some in _chunks([*report.noise, *report.doubles, *report.weak]):
            gone |= await self._drop(some, _Order(source=source, backup=backup))
        return CleanReport(
            noise=[each for each in report.noise if each.id in gone],
            doubles=[each for each in report.doubles if each.id in gone],
            weak=[each for each in report.weak if each.id in gone],
            done=True,
            # What is gone by now is in the first.
            backup=before.backup or backup,
            before=before.entries,
        )

    async def _judged(self, by: By) -> CleanReport:
        first = _First()
        async for page in self._pages(by):
            await asyncio.to_thread(first.see, page)
        judging = _Judging(first, self.now(), self.forgets)
        async for page in self._pages(by):
            await asyncio.to_thread(judging.look_at, page)
        return CleanReport(
            noise=judging.noise, doubles=judging.doubles, weak=judging.weak, done=False
        )

    async def _drop(self, gone: Sequence[Entry], order: _Order) -> set[EntryId]:
        """A few at a time, so that nobody who wants to write waits for long: all of it is in the
        backup, and may be said again. What somebody has changed meanwhile stays."""
        judged = {each.id: each for each in gone}
        async with self.db.write() as tx:
            there = await self.entries.with_ids(judged, None, tx=tx)
            dropped = [
                held
                for held in there
                if (held.revision, held.scope) == (judged[held.id].revision, judged[held.id].scope)
            ]
            await self.entries.drop_all(tx, dropped)
            await self.orders.note(tx, order.source, len(dropped), order.backup)
        self.changed.tell(*{each.scope for each in dropped})
        return {each.id for each in dropped}

    async def _pages(self, by: By) -> AsyncGenerator[Sequence[Entry], None]:
        after = 0
        while page := await self.entries.page(by.scopes, after=after, limit=_A_PAGE):
            after = page[-1].number
            yield [each for each in page if by.may_write(each.scope) and _is_judged(each)]


class _First:
    """Of all that say the same in one scope, which one stays: what somebody wrote or pinned, else
    the first."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[Scope, MemoryKind, str], tuple[bool, int]] = {}

    def see(self, page: Sequence[Entry]) -> None:
        for each in page:
            if _may_be_double(each):
                key, rank = _words(each), (not is_kept(each), each.number)
                self._ranks[key] = min(rank, self._ranks.get(key, rank))

    def has_before(self, entry: Entry) -> bool:
        _, number = self._ranks.get(_words(entry), (False, entry.number))
        return number != entry.number


@dataclass
class _Judging:
    first: _First
    now: datetime
    forgets: bool
    noise: list[Entry] = field(default_factory=list)
    doubles: list[Entry] = field(default_factory=list)
    weak: list[Entry] = field(default_factory=list)

    def look_at(self, page: Sequence[Entry]) -> None:
        for each in page:
            if is_kept(each):
                continue
            if _is_noise(each):
                self.noise.append(each)
            elif _may_be_double(each) and self.first.has_before(each):
                self.doubles.append(each)
            elif self.forgets and strength(each, self.now) < DELETE_BELOW:
                self.weak.append(each)


def _is_judged(entry: Entry) -> bool:
    """Not what was brought into a scope of its own: whoever did it wants each line of it."""
    return entry.scope.kind is not ScopeKind.CUSTOM


def _may_be_double(entry: Entry) -> bool:
    return entry.state is EntryState.ACTIVE and entry.kind is not MemoryKind.CELL


def _words(entry: Entry) -> tuple[Scope, MemoryKind, str]:
    return entry.scope, entry.kind, same(entry.text)


def _is_noise(entry: Entry) -> bool:
    if entry.kind in _DRAWN:
        return fact_noise(entry.text) is not None
    return entry.kind is MemoryKind.CELL and noise_of(entry.text) is not None


def _chunks(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    return (entries[at : at + _AT_ONCE] for at in range(0, len(entries), _AT_ONCE))
