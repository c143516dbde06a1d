"""Many words of one person at once, in few transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar

from bot.engine.memory.writing.rights import By
from bot.engine.memory.writing.service import ByHand, MemoryWriter, new_by_hand
from bot.engine.memory.writing.succession import retract
from storage.db import Transaction
from storage.memory.files.lines import Lines
from storage.records.memory.entries import (
    Category,
    Entry,
    EntryId,
    EntryState,
    MemoryKind,
    Origin,
    Scope,
)
from storage.records.memory.offers import OFFERED
from storage.records.memory.refusals import NotKept

_T = TypeVar("_T")
_BOUND = frozenset((MemoryKind.CELL, MemoryKind.EPISODE, MemoryKind.HANDBOOK))
"""They are what they are only where they are."""


def came_from(entry_id: str) -> str:
    """The source of a line that bears the mark of another one."""
    return f"copy:{entry_id}"


class Together(MemoryWriter):
    """A writer for the time of one transaction: all that is done with it comes to be at once, or
    not at all. For some dozens, so that others need not wait for long."""

    def __init__(self, writer: MemoryWriter) -> None:
        vars(self).update(vars(writer))
        self._open = AsyncExitStack()
        self._touched: set[Scope] = set()

    async def __aenter__(self) -> Self:
        self._tx = await self._open.enter_async_context(self._db.write())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._open.__aexit__(kind, error, trace)
        if error is None:
            self._changed.tell(*self._touched)

    async def add_new(
        self, wanted: Sequence[ByHand], scope: Scope, by: By, lines: Lines
    ) -> Sequence[Entry | NotKept]:
        """As `add` of each, all of one scope: what is new at once."""
        done: dict[int, Entry | NotKept] = {}
        texts: dict[str, int] = {}
        for at, each in enumerate(wanted):
            try:
                text = self._fit(each.text)
            except NotKept as refusal:
                done[at] = refusal
            else:
                if not each.key and not each.source:
                    texts.setdefault(text, at)

        async def write(tx: Transaction) -> Sequence[Entry]:
            there = await lines.there(tx, scope, texts)
            rows = [
                new_by_hand(self._masked(wanted[at]), scope, text, by)
                for text, at in texts.items()
                if text not in there
            ]
            return await lines.add(tx, scope, rows, now=self._now())

        for made in await self._write(write, scope):
            done[texts[made.text]] = made
        for at, each in enumerate(wanted):
            if at not in done:
                done[at] = await self.add(each, by)
        return [done[at] for at in range(len(wanted))]

    async def rejoin(self, entry: Entry, there: Entry, by: By) -> None:
        """`entry` was moved, and `there` is what came of the words at their new place: it goes
        there with all that it has. What cannot goes alone, and what it was drawn from stays."""

        async def write(tx: Transaction) -> None:
            held = await self._held(tx, entry.id, by)
            copy = await self._held(tx, there.id, by)
            is_copy = copy.source == came_from(entry.id)
            if not is_copy or {held.kind, copy.kind} & _BOUND:
                await self._entries.forget(tx, held, now=self._now())
                return
            await self._entries.drop(tx, copy)
            await self._entries.dig_up(tx, copy.scope, copy.text)
            await self._cells.forget_vectors(tx, held)
            await retract(self._entries, tx, held)
            await self._entries.change(
                tx, _moved(held, copy, scope=copy.scope, said_at=copy.said_at), now=self._now()
            )

        await self._write(write, entry.scope, there.scope)

    async def bring(self, entry_id: EntryId, wanted: ByHand, by: By) -> Entry | None:
        """What says just this in the same scope, to where it is wanted. None, with nothing done,
        where there is no such entry."""
        text, scope = wanted.text.strip(), wanted.scope

        async def write(tx: Transaction) -> Entry | None:
            for held in await self._entries.with_ids([entry_id], by.scopes, tx=tx):
                is_it = held.text == text and held.scope == scope
                bound = {held.kind, wanted.kind} & _BOUND
                if is_it and held.state is EntryState.ACTIVE and not bound:
                    said_at = wanted.said_at or self._now()
                    mine = _moved(held, wanted, scope=held.scope, said_at=said_at)
                    return await self._entries.change(tx, mine, now=self._now())
            return None

        return await self._write(write, *(() if scope is None else (scope,)))

    async def _write(self, write: Callable[[Transaction], Awaitable[_T]], *scopes: Scope) -> _T:
        self._touched.update(scopes)
        return await write(self._tx)


def _moved(held: Entry, to: Entry | ByHand, *, scope: Scope, said_at: datetime) -> Entry:
    about = to if to.label or to.category is not Category.OTHER else held
    return replace(
        held,
        scope=scope,
        kind=to.kind,
        text=to.text.strip(),
        category=about.category,
        label=about.label,
        said_at=said_at if to.kind is MemoryKind.FACT else held.said_at,
        origin=Origin.MANUAL,
        pinned=held.pinned or to.pinned,
        extra={name: each for name, each in held.extra.items() if name != OFFERED},
    )
