"""What follows from a person's word on what was proposed to be remembered for long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from bot.engine.memory.writing.quality import Figures, Quality
from bot.engine.memory.writing.succession import succeed
from storage.db import Transaction
from storage.errors import WrongState
from storage.memory.cells import Cells
from storage.memory.entries import EntryRepo
from storage.records.approvals import Approval, ApprovalState
from storage.records.memory.entries import Entry, EntryId, EntryState, Origin, Scope, Tier

ENTRIES = "entries"
"""What a request is about, in its payload: the ids of candidates."""


class Deciding:
    """Everything here is part of a larger transaction of somebody who has checked that it may be.
    `decided` are the scopes of which nobody has been told yet."""

    def __init__(
        self,
        *,
        entries: EntryRepo,
        cells: Cells,
        quality: Quality,
        now: Callable[[], datetime],
    ) -> None:
        self._entries = entries
        self._cells = cells
        self._quality = quality
        self._now = now
        self.decided: set[Scope] = set()

    async def settle(self, tx: Transaction, approval: Approval) -> None:
        """A yes keeps all that was asked about and is still open, a no drops it. Where nobody
        decided in time they stay proposed."""
        if approval.state is ApprovalState.EXPIRED:
            return
        for entry_id in approval.payload.get(ENTRIES, ()):
            candidate = await self._cells.one(EntryId(str(entry_id)), tx=tx)
            if candidate is None or candidate.state is not EntryState.CANDIDATE:
                continue
            if approval.state is ApprovalState.APPROVED:
                await self.confirm(tx, candidate)
            else:
                await self.reject(tx, candidate)

    async def confirm(self, tx: Transaction, candidate: Entry, scope: Scope | None = None) -> Entry:
        """Keep it for long, in place of the fact that it was made from."""
        _check(candidate)
        now = self._now()
        kept = replace(
            candidate,
            state=EntryState.ACTIVE,
            origin=Origin.MANUAL,
            confidence=1.0,
            tier=Tier.CORE,
            supersedes=None,
            scope=scope or candidate.scope,
        )
        if kept.scope != candidate.scope:
            await self._cells.forget_vectors(tx, kept)
        kept = await self._entries.change(tx, kept, now=now)
        await self._count(tx, Figures(confirmed=1), kept)
        if candidate.supersedes is None:
            return kept
        fact = await self._cells.one(candidate.supersedes, tx=tx)
        if fact is None or fact.state is not EntryState.ACTIVE:
            return kept
        await self._cells.take_over(tx, fact, kept)
        return await succeed(self._entries, tx, fact, kept, now=now)

    async def reject(self, tx: Transaction, candidate: Entry) -> Entry:
        """It stays what it was, and is not proposed again."""
        _check(candidate)
        rejected = replace(candidate, state=EntryState.REJECTED)
        await self._count(tx, Figures(rejected=1), candidate)
        return await self._entries.change(tx, rejected, now=self._now())

    async def undone(self, tx: Transaction, entry: Entry) -> None:
        """A person took back what we had kept for long by ourselves."""
        await self._count(tx, Figures(undone=1), entry)

    async def _count(self, tx: Transaction, figures: Figures, entry: Entry) -> None:
        self.decided.add(entry.scope)
        await self._quality.count(tx, figures, today=self._now().date())


def _check(entry: Entry) -> None:
    if entry.state is not EntryState.CANDIDATE:
        raise WrongState("memory", entry.id, entry.state.value)
