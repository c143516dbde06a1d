"""Stores tombstones of forgotten entries: hashes and times, but no text."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import delete, select

from storage.db import Database, Transaction
from storage.dialect import upsert
from storage.memory_schema import memory_tombstones
from storage.records.memory import MemoryEntry, MemoryKind, MemoryScope, text_hash

_T = memory_tombstones.c
_COLUMNS = ("scope", "hash", "at")
_ID_SCOPE, _TURN_SCOPE_PREFIX = "id", "said:"
"""No entry's scope has these names."""
_MARGIN_BEFORE, _MARGIN_AFTER = timedelta(seconds=30), timedelta(seconds=1)
"""A turn's cell is saved in the transaction of its messages, slightly after they were said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenTurns:
    """Forgotten turns of one conversation: when they were saved, and hashes of their texts."""

    moments: Sequence[datetime] = ()
    text_hashes: Mapping[str, datetime] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.moments or self.text_hashes)

    def covers(self, text: str, at: datetime) -> bool:
        """Whether this text was part of a turn forgotten after `at`."""
        if any(each - _MARGIN_BEFORE <= at <= each + _MARGIN_AFTER for each in self.moments):
            return True
        gone = self.text_hashes.get(text_hash(text))
        return gone is not None and at <= gone


class TombstoneRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, entry: MemoryEntry, *, now: datetime) -> None:
        rows = [
            {"scope": str(entry.scope), "hash": text_hash(entry.text), "at": now},
            {"scope": _ID_SCOPE, "hash": _id_hash(entry.id), "at": now},
            *_turn_rows(entry, now),
        ]
        put = upsert(self._db.dialect, memory_tombstones, _COLUMNS, _COLUMNS[:2])
        await tx.execute(put, list({(row["scope"], row["hash"]): row for row in rows}.values()))

    async def remove(self, tx: Transaction, scope: MemoryScope, text: str) -> None:
        await tx.execute(
            delete(memory_tombstones).where(_T.scope == str(scope), _T.hash == text_hash(text))
        )

    async def has_text(self, tx: Transaction, scope: MemoryScope, text: str) -> bool:
        query = select(_T.at).where(_T.scope == str(scope), _T.hash == text_hash(text))
        return await tx.scalar(query) is not None

    async def filter_forgotten_ids(
        self, ids: Iterable[str], *, tx: Transaction | None = None
    ) -> Collection[str]:
        """The ids among these whose entries were forgotten."""
        hashes = {_id_hash(each): each for each in ids}
        query = select(_T.hash).where(_T.scope == _ID_SCOPE, _T.hash.in_(list(hashes)))
        return {hashes[each] for each in await self._db.fetch_column(query, tx=tx)}

    async def get_forgotten_turns(self, thread: str) -> ForgottenTurns:
        query = select(_T.hash, _T.at).where(_T.scope == _TURN_SCOPE_PREFIX + thread)
        rows = await self._db.fetch_all(query)
        # A hash has no colon; a timestamp has.
        return ForgottenTurns(
            moments=[datetime.fromisoformat(row.hash) for row in rows if ":" in row.hash],
            text_hashes={row.hash: row.at for row in rows if ":" not in row.hash},
        )


def _turn_rows(cell: MemoryEntry, now: datetime) -> list[dict[str, Any]]:
    if cell.kind is not MemoryKind.CELL or not cell.thread:
        return []
    said = [each for each in (cell.user_text, cell.assistant_text) if each.strip()]
    marks = [cell.said_at.astimezone(UTC).isoformat(), *map(text_hash, said)]
    return [{"scope": _TURN_SCOPE_PREFIX + cell.thread, "hash": each, "at": now} for each in marks]


def _id_hash(entry_id: str) -> str:
    return hashlib.sha256(entry_id.encode()).hexdigest()
