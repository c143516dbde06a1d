"""Many new entries of one scope at once: far quicker than one by one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import delete, select

from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.ids import TASK_LENGTH, Ids
from storage.memory.entries import EntryRepo
from storage.memory.rows import entry_of, new_row
from storage.memory.tables import memories, memory_tombstones
from storage.memory.words import same
from storage.records.memory.entries import Entry, NewEntry, Scope

_M = memories.c
_T = memory_tombstones.c


class Lines:
    def __init__(self, db: Database, ids: Ids, entries: EntryRepo) -> None:
        self._db = db
        self._ids = ids
        self._entries = entries

    async def there(self, tx: Transaction, scope: Scope, texts: Collection[str]) -> Collection[str]:
        """Those that some entry says already, in whatever state."""
        hashes = {same(each): each for each in texts}
        query = select(_M.hash).where(_M.scope == str(scope), _M.hash.in_(hashes))
        found = set((await tx.execute(query)).scalars())
        return {each for each in texts if same(each) in found}

    async def add(
        self, tx: Transaction, scope: Scope, rows: Sequence[NewEntry], *, now: datetime
    ) -> Sequence[Entry]:
        """They are all of that scope, by hand, and new: no source is written twice. What was
        forgotten may be remembered again."""
        if not rows:
            return []
        hashes = [same(row.text) for row in rows]
        buried = _T.scope == str(scope), _T.hash.in_(hashes)
        await tx.execute(delete(memory_tombstones).where(*buried))
        values = [new_row(row, id=self._ids(TASK_LENGTH + 2), now=now) for row in rows]
        insert = insert_or_ignore(self._db.dialect, memories).returning(memories)
        made = [entry_of(row) for row in await tx.execute(insert, values)]
        await self._entries.index_all(tx, [(each, None, "") for each in made])
        return sorted(made, key=lambda each: each.number)
