"""Which orders to forget were carried out: one that is handled again, as its first handling died
before it was answered, finds nothing there any more, and was obeyed all the same."""

from __future__ import annotations

from storage.db import Transaction
from storage.marks import Marks

_MARK = "memory:forgotten"
_KEPT = 100


class Forgotten:
    """Orders by their source; nothing of what they were about."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    async def note(self, tx: Transaction, source: str) -> None:
        """In the transaction that forgets."""
        known = [each for each in await self._marks.read(tx, _MARK) or () if each != source]
        await self._marks.write(tx, _MARK, [*known, source][-_KEPT:])

    async def was(self, source: str) -> bool:
        return source in (await self._marks.get(_MARK) or ())
