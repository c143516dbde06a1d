"""Memories written out as JSON lines, and read in again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bot.app.exports import ExportFile
from bot.app.memory.writing import Writing
from bot.app.store import Store
from bot.engine.memory.bulk.whose import Accounts, accounts_of, whose
from bot.engine.memory.orders import Orders
from bot.engine.memory.writing.rights import By
from bot.engine.memory.writing.service import ByHand, MemoryWriter, plain
from cards.views.memory.data import kept_data
from handlers.services.memory import MemoryRefused, Tell
from storage.db import Transaction
from storage.memory.backups import Backups
from storage.memory.entries import EntryRepo
from storage.records.memory.entries import (
    Category,
    Entry,
    EntryId,
    EntryState,
    MemoryKind,
    Scope,
)
from storage.records.memory.refusals import NotKept, WhyNotKept
from storage.records.memory.shown import BadLine, Brought, ExportedEntries
from storage.records.people import Member

_A_PAGE = 500
_AT_ONCE = 100
"""Rows of an import that are one transaction: others write in between."""
_MOST_BYTES = 20_000_000
_MOST_LINES = 10_000
_BACKUP = "memory-backup-"
_BACKUPS = 10
_NO_HAND = (MemoryKind.CELL, MemoryKind.EPISODE, MemoryKind.HANDBOOK)
_REFUSED: Mapping[WhyNotKept, BadLine] = {
    WhyNotKept.EMPTY: BadLine.EMPTY,
    WhyNotKept.TOO_LONG: BadLine.TOO_LONG,
    WhyNotKept.NO_CANDIDATE: BadLine.NO_ENTRY,
}


class _Unread(Exception):
    """A line that holds nothing to be kept."""

    def __init__(self, why: BadLine) -> None:
        self.why = why
        super().__init__(why.value)


async def unheard(_done: int, _of: int) -> None:
    """Nobody waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrying:
    """`home` is the data directory: what is written out is below it, what is read in too."""

    entries: EntryRepo
    backups: Backups
    members: Callable[[], Awaitable[Sequence[Member]]]
    writer: MemoryWriter
    orders: Orders
    home: Path

    async def out(self, scopes: Sequence[Scope] | None, *, name: str) -> ExportedEntries:
        """Everything of these scopes in every state, in the order in which it was kept; None: of
        all."""
        file, count, last = ExportFile(self.home, f"{name}.jsonl"), 0, 0
        accounts = accounts_of(await self.members())
        try:
            while page := await self.entries.page(scopes, after=last, limit=_A_PAGE):
                sources = await self.backups.sources(page)
                await asyncio.to_thread(_add, file, page, sources, accounts)
                count, last = count + len(page), page[-1].number
            size = await asyncio.to_thread(file.put)
        finally:
            await asyncio.to_thread(file.drop)
        return ExportedEntries(path=file.told, size=size, entries=count)

    async def back_up(self, now: datetime) -> str:
        """Everything of everybody, as `out`; where it is. Of those made before the last ones stay:
        what was forgotten is in them."""
        made = await self.out(None, name=f"{_BACKUP}{now:%Y%m%d-%H%M%S}")
        await asyncio.to_thread(_keep_last, (self.home / made.path).parent)
        return made.path

    async def bring(
        self, path: str, by: By, scope: Scope, tell: Tell = unheard, *, source: str = ""
    ) -> Brought:
        """One that is there already with the same words is not written again. Of what `out` wrote
        only what holds, can be written by hand and was not forgotten since. What the order of this
        `source` had added before it was handled again counts as added."""
        wanted: dict[int, ByHand] = {}
        bad: dict[int, BadLine] = {}
        ids: dict[int, str] = {}
        known, left = 0, 0
        for number, line in enumerate(await asyncio.to_thread(self._lines, path), 1):
            if not line.strip():
                continue
            try:
                row = _row(line)
                if _is_left_out(row):
                    left += 1
                    continue
                wanted[number] = _wanted(row, scope)
                ids[number] = str(row.get("id", ""))
            except _Unread as error:
                bad[number] = error.why
        for number in await self._forgotten(ids):
            del wanted[number]
            left += 1

        async def note(tx: Transaction, made: Sequence[Entry | NotKept | None]) -> None:
            await self.orders.note(tx, source, sum(isinstance(each, Entry) for each in made))

        before = (await self.orders.so_far(source)).entries
        for done, numbers in enumerate(_batches(list(wanted))):
            if done:
                await tell(done * _AT_ONCE, len(wanted))
            made = await self.writer.add_all([wanted[each] for each in numbers], by, note)
            known += sum(each is None for each in made)
            refused = zip(numbers, made, strict=True)
            bad |= {each: _REFUSED[why.why] for each, why in refused if isinstance(why, NotKept)}
        known = max(0, known - before)
        added = len(wanted) - known - sum(each in bad for each in wanted)
        return Brought(added=added, known=known, left=left, bad=dict(sorted(bad.items())))

    async def _forgotten(self, ids: Mapping[int, str]) -> Sequence[int]:
        """Lines of what was forgotten since it was written out, whatever it said then."""
        gone: list[int] = []
        for numbers in _batches(list(ids)):
            buried = await self.entries.tombstones.ids(ids[each] for each in numbers)
            gone += [each for each in numbers if ids[each] in buried]
        return gone

    def _lines(self, path: str) -> Sequence[str]:
        whole = (self.home / path).resolve()
        if not whole.is_relative_to(self.home.resolve()):
            raise MemoryRefused("unreadable", path)
        try:
            if whole.stat().st_size > _MOST_BYTES:
                raise MemoryRefused("unreadable", f"> {_MOST_BYTES // 1_000_000} MB")
            text = whole.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise MemoryRefused("unreadable", type(error).__name__) from error
        # By ends of lines only: a text may hold other separators of lines as they are.
        lines = text.split("\n")
        if len(lines) > _MOST_LINES:
            raise MemoryRefused("unreadable", f"> {_MOST_LINES}: `shiftboss memory import`")
        return lines


def _add(
    file: ExportFile,
    page: Sequence[Entry],
    sources: Mapping[EntryId, Sequence[EntryId]],
    accounts: Accounts,
) -> None:
    rows = (kept_data(each, sources.get(each.id, ()), _accounts(each, accounts)) for each in page)
    file.add(json.dumps(row, ensure_ascii=False) for row in rows)


def _accounts(entry: Entry, accounts: Accounts) -> Sequence[str]:
    person = whose(entry)
    return accounts.get(person, ()) if person else ()


def _keep_last(folder: Path) -> None:
    for old in sorted(folder.glob(f"{_BACKUP}*.jsonl"))[:-_BACKUPS]:
        old.unlink(missing_ok=True)


def _batches(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[at : at + _AT_ONCE] for at in range(0, len(numbers), _AT_ONCE))


def _row(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _Unread(BadLine.NO_JSON) from error
    if not isinstance(row, dict):
        raise _Unread(BadLine.NO_TEXT)
    return row


def _is_left_out(row: Mapping[str, Any]) -> bool:
    """Turns, episodes and chapters are not written by hand, and what does not hold any more, or
    not yet, is nothing that somebody wants to be so."""
    state = row.get("state", EntryState.ACTIVE)
    return row.get("kind") in _NO_HAND or state != EntryState.ACTIVE


def _wanted(row: Mapping[str, Any], scope: Scope) -> ByHand:
    text, keywords = row.get("text"), row.get("keywords")
    if not isinstance(text, str):
        raise _Unread(BadLine.NO_TEXT)
    if not isinstance(keywords, list | None):
        raise _Unread(BadLine.NO_ENTRY)
    try:
        kind = MemoryKind(row.get("kind") or MemoryKind.LONGTERM)
        category = Category(row.get("category") or Category.OTHER)
    except ValueError as error:
        raise _Unread(BadLine.NO_KIND) from error
    return ByHand(
        text=text,
        scope=scope,
        kind=kind,
        category=category,
        label=plain(str(row.get("label") or ""))[:200],
        keywords=tuple(plain(str(each))[:80] for each in (keywords or ())[:20]),
        key=plain(str(row.get("key") or "")).partition("@")[0][:80],
        pinned=bool(row.get("pinned")),
    )


def build_carrying(home: Path, store: Store, writing: Writing) -> Carrying:
    return Carrying(
        entries=writing.entries,
        backups=Backups(store.db, writing.entries),
        members=store.people.members,
        writer=writing.writer,
        orders=Orders(store.marks),
        home=home,
    )
