"""Marks of what was forgotten for good. They hold no words: hashes, and when a turn was."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import delete, select

from storage.db import Database, Transaction
from storage.dialect import upsert
from storage.memory.tables import memory_tombstones
from storage.memory.words import same
from storage.records.memory.entries import Entry, MemoryKind, Scope

SAID = "said"
"""Of a cell's `extra`: how many characters of it are what the person said."""
_T = memory_tombstones.c
_COLUMNS = ("scope", "hash", "at")
_ID, _TURN = "id", "said:"
"""No scope of an entry is called like these."""
_BEFORE, _AFTER = timedelta(seconds=30), timedelta(seconds=1)
"""A turn's cell is kept in the transaction of its messages, which took its time before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsaid:
    """What was forgotten of one conversation: when its turns were kept, and their words."""

    moments: Sequence[datetime] = ()
    words: Mapping[str, datetime] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.moments or self.words)

    def has(self, text: str, at: datetime) -> bool:
        """Whether that is of a turn that was forgotten after it was said."""
        if any(each - _BEFORE <= at <= each + _AFTER for each in self.moments):
            return True
        gone = self.words.get(same(text))
        return gone is not None and at <= gone


class Tombstones:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def bury(self, tx: Transaction, entry: Entry, *, now: datetime) -> None:
        rows = [
            {"scope": str(entry.scope), "hash": same(entry.text), "at": now},
            {"scope": _ID, "hash": _hashed(entry.id), "at": now},
            *_turn(entry, now),
        ]
        put = upsert(self._db.dialect, memory_tombstones, _COLUMNS, _COLUMNS[:2])
        await tx.execute(put, list({(row["scope"], row["hash"]): row for row in rows}.values()))

    async def dig_up(self, tx: Transaction, scope: Scope, text: str) -> None:
        await tx.execute(
            delete(memory_tombstones).where(_T.scope == str(scope), _T.hash == same(text))
        )

    async def has_words(self, tx: Transaction, scope: Scope, text: str) -> bool:
        query = select(_T.at).where(_T.scope == str(scope), _T.hash == same(text))
        return await tx.scalar(query) is not None

    async def ids(self, ids: Iterable[str], *, tx: Transaction | None = None) -> Collection[str]:
        """Those of these entries that were forgotten, whatever they said by then."""
        hashes = {_hashed(each): each for each in ids}
        query = select(_T.hash).where(_T.scope == _ID, _T.hash.in_(list(hashes)))
        async with self._db.read(tx) as view:
            return {hashes[each] for each in (await view.execute(query)).scalars()}

    async def unsaid(self, thread: str) -> Unsaid:
        query = select(_T.hash, _T.at).where(_T.scope == _TURN + thread)
        async with self._db.read() as view:
            rows = (await view.execute(query)).all()
        # A hash has no colon, a moment has some.
        return Unsaid(
            moments=[datetime.fromisoformat(row.hash) for row in rows if ":" in row.hash],
            words={row.hash: row.at for row in rows if ":" not in row.hash},
        )


def _turn(cell: Entry, now: datetime) -> list[dict[str, Any]]:
    if cell.kind is not MemoryKind.CELL or not cell.thread:
        return []
    ends = cell.extra.get(SAID)
    ends = ends if isinstance(ends, int) else len(cell.text)
    said = [each for each in (cell.text[:ends], cell.text[ends:]) if each.strip()]
    marks = [cell.said_at.astimezone(UTC).isoformat(), *map(same, said)]
    return [{"scope": _TURN + cell.thread, "hash": each, "at": now} for each in marks]


def _hashed(entry_id: str) -> str:
    return hashlib.sha256(entry_id.encode()).hexdigest()
