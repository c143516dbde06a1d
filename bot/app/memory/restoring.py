"""What a backup holds, put back where it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from bot.engine.memory.changed import Changed
from bot.engine.memory.writing.service import plain
from handlers.services.memory import MemoryRefused
from storage.db import Database
from storage.memory.entries import EntryRepo
from storage.records.memory.entries import (
    MOST_TEXT,
    Category,
    EntryState,
    MemoryKind,
    NewEntry,
    Origin,
    Scope,
    Tier,
)
from storage.records.memory.shown import Brought

_AT_ONCE = 200
_MOST_BAD = 1_000
"""Beyond that it is no backup, whatever it is."""
_NAME = 200
_YEARS = range(1970, 2200)

_Numbered = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoring:
    """`home` is the data directory, where backups lie. For whoever may see all of it: a backup
    holds everybody's memories."""

    db: Database
    entries: EntryRepo
    changed: Changed
    home: Path
    now: Callable[[], datetime]

    async def run(self, path: str) -> Brought:
        """Every entry that is not there comes back with its scope, kind and state, a few hundred in
        a transaction: broken off, it is simply done again. What was forgotten stays forgotten."""
        added, known, bad = 0, 0, dict[int, str]()
        lines = await asyncio.to_thread(self._open, path)
        while rows := await asyncio.to_thread(lambda: list(islice(lines, _AT_ONCE))):
            new = list(_read(rows, bad))
            if len(bad) > _MOST_BAD:
                raise MemoryRefused("unreadable", f"> {_MOST_BAD}")
            made = await self._put_back(new)
            added, known = added + made, known + len(new) - made
        return Brought(added=added, known=known, bad=bad)

    async def _put_back(self, rows: Sequence[NewEntry]) -> int:
        made, scopes = 0, set[Scope]()
        async with self.db.write() as tx:
            for new in rows:
                same = await self.entries.same_as(new.scope, new.text, tx=tx)
                if any(each.kind is new.kind for each in same):
                    continue
                if await self.entries.add(tx, new, now=self.now()) is not None:
                    made += 1
                    scopes.add(new.scope)
        self.changed.tell(*scopes)
        return made

    def _open(self, path: str) -> Iterator[_Numbered]:
        whole = (self.home / path).resolve()
        if not whole.is_relative_to(self.home.resolve()) or not whole.is_file():
            raise MemoryRefused("unreadable", path)
        return enumerate(_lines(whole), 1)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        while line := file.readline(10 * MOST_TEXT):
            yield line


def _read(rows: Sequence[_Numbered], bad: dict[int, str]) -> Iterator[NewEntry]:
    for number, line in rows:
        if not line.strip():
            continue
        try:
            yield _entry(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            bad[number] = str(error)[:_NAME]


def _entry(row: dict[str, Any]) -> NewEntry:
    """Raises whatever is wrong with a row that no export has written."""
    until = row.get("valid_until")
    return NewEntry(
        kind=MemoryKind(row["kind"]),
        scope=Scope.of(row["scope"]),
        text=_plain(row["text"], MOST_TEXT),
        category=Category(row["category"]),
        label=_plain(row["label"], _NAME),
        keywords=tuple(_plain(each, _NAME) for each in row["keywords"][:_NAME]),
        importance=_share(row["importance"]),
        confidence=_share(row["confidence"]),
        tier=Tier(row["tier"]),
        state=EntryState(row["state"]),
        pinned=bool(row["pinned"]),
        key=_plain(row["key"], 2 * _NAME),
        origin=Origin(row["origin"]),
        sender=_plain(row["sender"], _NAME),
        thread=_plain(row["thread"], 2 * _NAME),
        said_at=_moment(row["at"]),
        valid_until=_moment(until) if until else None,
    )


def _plain(value: object, most: int) -> str:
    text = plain(str(value))
    if len(text) > most:
        raise ValueError(f"longer than {most} characters")
    return text


def _share(value: Any) -> float:
    share = float(value)
    if not 0 <= share <= 1:
        raise ValueError(f"{share} is not from 0 to 1")
    return share


def _moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    if at.year not in _YEARS:
        raise ValueError(f"{text} is no time of anything said")
    return at
