"""Conversations from elsewhere, many rows at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from sqlalchemy import select

from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.ids import TASK_LENGTH, Ids
from storage.memory.fields import AROUND, add, beside, get_ready, own_words
from storage.memory.index import Index
from storage.memory.rows import entry_of, new_row
from storage.memory.tables import memories, memory_tombstones
from storage.memory.words import same
from storage.records.memory.entries import Entry, MemoryKind, NewEntry, Scope

_M = memories.c
_T = memory_tombstones.c
_ID_LENGTH = TASK_LENGTH + 2
_FARTHEST = -min(AROUND)
_ONE_SITTING = timedelta(hours=6)
"""What was said later than that is no answer to what was said before."""


@dataclass(frozen=True, slots=True)
class _Turn:
    number: int
    thread: str
    text: str
    at: datetime


class Imports:
    """Of one scope. Rows come in the order in which they were said, and are each other's
    neighbours where they have the same thread and belong to one sitting."""

    def __init__(
        self, db: Database, ids: Ids, index: Index, scope: Scope, *, zone: tzinfo = UTC
    ) -> None:
        self._db = db
        self._ids = ids
        self._index = index
        self._scope = scope
        self._zone = zone
        self._last: dict[str, deque[_Turn]] = {}

    def get_ready(self, rows: Sequence[NewEntry]) -> None:
        """To be called before the transaction, which is the shorter for it."""
        get_ready(row.text for row in rows)

    async def add(self, tx: Transaction, rows: Sequence[NewEntry], *, now: datetime) -> int:
        """Every row needs a `source`. How many are new: those that are there already, or that
        somebody wanted forgotten, are left as they are."""
        wanted = await self._not_buried(tx, rows)
        for thread in dict.fromkeys(row.thread for row in wanted):
            await self._remember_last(tx, thread)
        made = await self._inserted(tx, wanted, now)
        turns = await self._turns(tx, wanted)
        words = {number: dict(own_words(entry, self._zone)) for number, entry in made.items()}
        for before, after, apart in self._pairs(turns):
            if after.number not in made:
                continue
            add(words[after.number], beside(before.text, -apart))
            if apart not in AROUND:
                continue
            more = beside(after.text, apart)
            if before.number in made:
                add(words[before.number], more)
            else:
                await self._index.adjust(tx, before.number, self._scope, more)
        await self._index.put(tx, [(number, self._scope, found) for number, found in words.items()])
        return len(made)

    def _pairs(self, turns: Sequence[_Turn]) -> Iterator[tuple[_Turn, _Turn, int]]:
        """What was said before each of them, and how many turns before."""
        for turn in turns:
            last = self._last.setdefault(turn.thread, deque(maxlen=_FARTHEST))
            for apart, before in enumerate(reversed(last), 1):
                if abs(turn.at - before.at) <= _ONE_SITTING:
                    yield before, turn, apart
            last.append(turn)

    async def _not_buried(self, tx: Transaction, rows: Sequence[NewEntry]) -> Sequence[NewEntry]:
        hashes = [same(row.text) for row in rows]
        query = select(_T.hash).where(_T.scope == str(self._scope), _T.hash.in_(hashes))
        buried = set((await tx.execute(query)).scalars())
        return [row for row, words in zip(rows, hashes, strict=True) if words not in buried]

    async def _remember_last(self, tx: Transaction, thread: str) -> None:
        """What was said last in it before this import."""
        if thread in self._last:
            return
        query = (
            select(_M.number, _M.text, _M.said_at)
            .where(
                _M.scope == str(self._scope),
                _M.thread == thread,
                _M.kind == MemoryKind.CELL.value,
            )
            .order_by(_M.number.desc())
            .limit(_FARTHEST)
        )
        rows = (await tx.execute(query)).all()
        last = (_Turn(row.number, thread, row.text, row.said_at) for row in reversed(rows))
        self._last[thread] = deque(last, maxlen=_FARTHEST)

    async def _inserted(
        self, tx: Transaction, rows: Sequence[NewEntry], now: datetime
    ) -> Mapping[int, Entry]:
        if not rows:
            return {}
        values = [new_row(row, id=self._ids(_ID_LENGTH), now=now) for row in rows]
        insert = insert_or_ignore(self._db.dialect, memories).returning(memories)
        made = [entry_of(row) for row in await tx.execute(insert, values)]
        return {entry.number: entry for entry in made}

    async def _turns(self, tx: Transaction, rows: Sequence[NewEntry]) -> Sequence[_Turn]:
        """All of them that are there now, in the order of the rows."""
        sources = [row.source for row in rows]
        query = select(_M.number, _M.source, _M.thread, _M.text, _M.said_at)
        found = await tx.execute(query.where(_M.source.in_(sources)))
        turns = {row.source: _Turn(row.number, row.thread, row.text, row.said_at) for row in found}
        return [turns[source] for source in dict.fromkeys(sources) if source in turns]
