"""What memory could do without: noise, the same said twice, and what has faded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.engine.memory.changed import Changed
from bot.engine.memory.life import DELETE_BELOW, is_kept, strength
from bot.engine.memory.writing.noise import fact_noise, noise_of
from bot.engine.memory.writing.rights import By
from storage.db import Database
from storage.errors import NotFound
from storage.memory.entries import EntryRepo
from storage.memory.words import same
from storage.records.memory.entries import Entry, EntryState, MemoryKind, Scope
from storage.records.memory.shown import CleanReport

_A_PAGE = 500
_DRAWN = {MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """`back_up` writes out everything first, and says where."""

    db: Database
    entries: EntryRepo
    changed: Changed
    back_up: Callable[[], Awaitable[str]]
    now: Callable[[], datetime]

    async def run(self, by: By, dry: bool) -> CleanReport:
        """Only what `by` may change; nothing that somebody wrote by hand or has pinned."""
        found = [each async for each in self._all(by) if by.may_write(each.scope)]
        report = self._judged(found)
        if dry or not report.total:
            return report
        backup = await self.back_up()
        gone = [*report.noise, *report.doubles, *report.weak]
        await self._drop(gone)
        self.changed.tell(*{each.scope for each in gone})
        return CleanReport(
            noise=report.noise,
            doubles=report.doubles,
            weak=report.weak,
            done=True,
            backup=backup,
        )

    def _judged(self, entries: Sequence[Entry]) -> CleanReport:
        loose = [each for each in entries if not is_kept(each)]
        noise = [each for each in loose if _is_noise(each)]
        rest = [each for each in loose if each not in noise]
        doubles = list(_doubles(entries, rest))
        now = self.now()
        faded = (each for each in rest if strength(each, now) < DELETE_BELOW)
        weak = [each for each in faded if each not in doubles]
        return CleanReport(noise=noise, doubles=doubles, weak=weak, done=False)

    async def _drop(self, gone: Iterable[Entry]) -> None:
        """One transaction: all of it is in the backup, and may be said again."""
        async with self.db.write() as tx:
            for each in gone:
                try:
                    held = await self.entries.get(each.id, [each.scope], tx=tx)
                except NotFound:
                    continue
                if held.revision == each.revision:
                    await self.entries.drop(tx, held)

    async def _all(self, by: By) -> AsyncIterator[Entry]:
        offset = 0
        while page := await self.entries.list(
            by.scopes, states=tuple(EntryState), limit=_A_PAGE, offset=offset
        ):
            for each in page:
                yield each
            offset += len(page)


def _is_noise(entry: Entry) -> bool:
    if entry.kind in _DRAWN:
        return fact_noise(entry.text) is not None
    return entry.kind is MemoryKind.CELL and noise_of(entry.text) is not None


def _doubles(entries: Sequence[Entry], loose: Sequence[Entry]) -> Iterable[Entry]:
    """Those whose words another one of the same scope and kind has said: the first stays."""
    first: dict[tuple[Scope, MemoryKind, str], Entry] = {}
    active = [each for each in entries if each.state is EntryState.ACTIVE]
    for each in sorted(active, key=lambda each: (not is_kept(each), each.number)):
        if each.kind is MemoryKind.CELL:
            continue
        before = first.setdefault((each.scope, each.kind, same(each.text)), each)
        if before is not each and each in loose:
            yield each
