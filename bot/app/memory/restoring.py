"""What a backup holds, put back where it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from bot.engine.memory.bulk.kept import Kept, kept_of
from bot.engine.memory.bulk.whose import Residents, accounts_of
from bot.engine.memory.changed import Changed
from bot.engine.memory.orders import Orders
from handlers.services.memory import MemoryRefused
from storage.db import Database
from storage.memory.backups import Backups
from storage.memory.bm25.postings import chunks
from storage.memory.entries import EntryRepo
from storage.records.memory.entries import MOST_TEXT, EntryId, MemoryKind
from storage.records.memory.shown import BadLine, Brought
from storage.records.people import Member

_AT_ONCE = 50
_MOST_BAD = 1_000
"""Beyond that it is no backup, whatever it is."""

_Numbered = tuple[int, str]


@dataclass(slots=True)
class _Back:
    """What came back so far. `known_as` are ids of what is there in the same words under others;
    empty where nobody may say it any more."""

    source: str
    made: set[EntryId] = field(default_factory=set)
    known_as: dict[EntryId, EntryId] = field(default_factory=dict)
    sources: dict[EntryId, Sequence[EntryId]] = field(default_factory=dict)
    cells: list[EntryId] = field(default_factory=list)

    def renamed(self) -> dict[EntryId, Sequence[EntryId]]:
        known_as = self.known_as
        return {
            known_as.get(one, one): [known_as.get(each, each) for each in others]
            for one, others in self.sources.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoring:
    """`home` is the data directory, where backups lie. For whoever may see all of it: a backup
    holds everybody's memories."""

    db: Database
    entries: EntryRepo
    changed: Changed
    orders: Orders
    members: Callable[[], Awaitable[Sequence[Member]]]
    home: Path
    now: Callable[[], datetime]

    async def run(self, path: str, *, source: str = "") -> Brought:
        """Every entry that is not there comes back as it was, with what it was drawn from, some
        dozens in a transaction: broken off, it is simply done again, and under the same `source`
        tells of all that it did. What was forgotten stays forgotten, whatever it said when the
        backup was made. In another home it is of whoever has the same accounts there."""
        residents = Residents(accounts_of(await self.members()))
        known, bad, back = 0, dict[int, BadLine](), _Back(source=source)
        before = (await self.orders.so_far(source)).entries
        lines = await asyncio.to_thread(self._open, path)
        while rows := await asyncio.to_thread(lambda: list(islice(lines, _AT_ONCE))):
            read = list(_read(rows, bad, residents))
            if len(bad) > _MOST_BAD:
                raise MemoryRefused("unreadable", f"> {_MOST_BAD}")
            known += len(read) - await self._put_back(read, back)
        await self._tie(back)
        before = min(before, known)
        return Brought(added=len(back.made) + before, known=known - before, bad=bad)

    async def _put_back(self, rows: Sequence[Kept], back: _Back) -> int:
        async with self.db.write() as tx:
            made = await self._backups.put_back(tx, [row.entry for row in rows], back.known_as)
            await self.orders.note(tx, back.source, len(made))
        back.made.update(each.id for each in made)
        back.sources.update({row.entry.id: row.sources for row in rows if row.sources})
        # Also those that came back before it died, and was done again.
        cells = (row.entry for row in rows if row.entry.kind is MemoryKind.CELL)
        back.cells.extend(each.id for each in cells)
        self.changed.tell(*{each.scope for each in made})
        return len(made)

    async def _tie(self, back: _Back) -> None:
        """Once all is there: what each was drawn from, and the words that others lend it."""
        sources = back.renamed()
        for some in chunks(list(sources), _AT_ONCE):
            async with self.db.write() as tx:
                await self._backups.drawn(tx, {each: sources[each] for each in some})
        for cells in chunks(back.cells, _AT_ONCE):
            async with self.db.write() as tx:
                await self._backups.index(tx, cells)

    @property
    def _backups(self) -> Backups:
        return Backups(self.db, self.entries)

    def _open(self, path: str) -> Iterator[_Numbered]:
        whole = (self.home / path).resolve()
        if not whole.is_relative_to(self.home.resolve()) or not whole.is_file():
            raise MemoryRefused("unreadable", path)
        return enumerate(_lines(whole), 1)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        while line := file.readline(10 * MOST_TEXT):
            yield line


def _read(
    rows: Sequence[_Numbered], bad: dict[int, BadLine], residents: Residents
) -> Iterator[Kept]:
    for number, line in rows:
        if not line.strip():
            continue
        try:
            kept = kept_of(line)
            yield replace(kept, entry=residents.take_in(kept.entry, kept.accounts))
        except json.JSONDecodeError:
            bad[number] = BadLine.NO_JSON
        except ValueError:
            bad[number] = BadLine.NO_ENTRY
