"""Why facts were admitted or refused, where a person can see it: with what was kept, and what was
refused as an entry that nobody is told, forgotten like any other, for two weeks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bot.engine.memory.writing.drawing.admission import AUDIT, Judgement
from bot.engine.memory.writing.drawing.facts import Fact
from storage.db import Transaction
from storage.memory.cells import FROM, Cells
from storage.memory.entries import EntryRepo
from storage.records.memory.entries import Entry, EntryState, MemoryKind, NewEntry, Origin, Tier

KEPT = timedelta(days=14)
MOST = 200
_AT_ONCE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    fact: Fact
    judgement: Judgement


class Auditor:
    """Every method is part of the transaction that keeps what passed."""

    def __init__(self, entries: EntryRepo, cells: Cells) -> None:
        self._entries = entries
        self._cells = cells

    async def note(
        self, tx: Transaction, kept: Entry, judgement: Judgement, *, now: datetime
    ) -> None:
        """With the entry that the fact became, or that it backs."""
        held = await self._entries.get(kept.id, (kept.scope,), tx=tx)
        extra = {**held.extra, **judgement.written(now)}
        await self._entries.change(tx, replace(held, extra=extra), now=now)

    async def refuse(self, tx: Transaction, audited: Audited, *, now: datetime) -> None:
        """The same words once; nothing of it where they were forgotten."""
        fact, written = audited.fact, audited.judgement.written(now)
        for each in await self._entries.same_as(fact.scope, fact.text, tx=tx):
            if each.state is EntryState.REJECTED and AUDIT in each.extra:
                extra = {**each.extra, **written}
                await self._entries.change(tx, replace(each, extra=extra), now=now)
                return
        made = await self._entries.add(
            tx,
            NewEntry(
                kind=MemoryKind.FACT,
                scope=fact.scope,
                text=fact.text,
                category=fact.category,
                importance=0.0,
                confidence=fact.confidence,
                tier=Tier.PERIPHERAL,
                state=EntryState.REJECTED,
                origin=Origin.TASK if fact.last.task is not None else Origin.CHAT,
                evidence=fact.evidence,
                sender=fact.last.sender if fact.person is not None else "",
                thread=fact.last.thread,
                person=fact.person,
                chat=fact.last.chat,
                task=fact.last.task,
                said_at=fact.last.said_at,
                extra=written,
            ),
            now=now,
        )
        if made is not None:
            # Whoever forgets the turn forgets this with it.
            for cell in fact.cells:
                await self._cells.link(tx, made, cell, FROM)

    async def prune(self, tx: Transaction, *, now: datetime) -> None:
        """What is older than two weeks, and all but the newest."""
        refused = await self._entries.list(
            None,
            kinds=(MemoryKind.FACT,),
            states=(EntryState.REJECTED,),
            limit=MOST + _AT_ONCE,
            tx=tx,
        )
        for at, each in enumerate(each for each in refused if AUDIT in each.extra):
            if at >= MOST or each.updated_at < now - KEPT:
                await self._entries.drop(tx, each)
