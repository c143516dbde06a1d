"""How far orders came that write in many transactions: one that is handled again, as its first
handling died before it was answered, tells of all that was done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from storage.db import Transaction
from storage.marks import Marks

_MARK = "memory:orders"
_KEPT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """`entries` were written or taken away, after this `backup` was made."""

    entries: int = 0
    backup: str = ""


class Orders:
    """The last of them by their source, where they have one; nothing of what they were about."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    async def so_far(self, source: str) -> Done:
        return _done(await self._marks.get(_MARK), source)

    async def note(self, tx: Transaction, source: str, entries: int, backup: str = "") -> None:
        """In the transaction that does it. Of backups the first is kept."""
        if not source or not entries:
            return
        known = await self._marks.read(tx, _MARK) or {}
        before = _done(known, source)
        now = Done(entries=before.entries + entries, backup=before.backup or backup)
        others = [(name, told) for name, told in known.items() if name != source]
        await self._marks.write(tx, _MARK, dict([*others, (source, asdict(now))][-_KEPT:]))


def _done(known: Mapping[str, Any] | None, source: str) -> Done:
    return Done(**(known or {}).get(source, {})) if source else Done()
