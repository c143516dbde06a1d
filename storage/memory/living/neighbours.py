"""What was said right before and right after, in the same conversation."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, func, select

from storage.db import Transaction
from storage.memory.rows import entry_of
from storage.memory.tables import memories
from storage.records.memory.entries import Entry, MemoryKind, NewEntry

_M = memories.c
_NEAR = 512
"""Numbers between which neighbours mostly are. They are looked for there first: to find them in a
conversation of years takes sorting all of it."""


async def said_before(tx: Transaction, cell: Entry | NewEntry, most: int) -> Sequence[Entry]:
    """The cells before this one, the nearest first; for a new one the last of all."""
    if isinstance(cell, Entry):
        end = cell.number
    else:
        end = (await tx.scalar(select(func.max(_M.number))) or 0) + 1
    close = _M.number.between(end - _NEAR, end - 1)
    order = _M.number.desc()
    found = await _cells(tx, cell, close, order, most)
    if len(found) < most:
        found = await _cells(tx, cell, _M.number < end, order, most)
    return found


async def said_after(tx: Transaction, cell: Entry, most: int) -> Sequence[Entry]:
    """The cells after this one, the nearest first."""
    close = _M.number.between(cell.number + 1, cell.number + _NEAR)
    order = _M.number.asc()
    found = await _cells(tx, cell, close, order, most)
    if len(found) < most:
        found = await _cells(tx, cell, _M.number > cell.number, order, most)
    return found


async def _cells(
    tx: Transaction,
    cell: Entry | NewEntry,
    where: ColumnElement[bool],
    order: ColumnElement[int],
    most: int,
) -> Sequence[Entry]:
    there = select(memories).where(
        _M.scope == str(cell.scope),
        _M.thread == cell.thread,
        _M.kind == MemoryKind.CELL.value,
        where,
    )
    return [entry_of(row) for row in (await tx.execute(there.order_by(order).limit(most))).all()]
