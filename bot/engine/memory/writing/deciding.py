"""What follows from a person's word on what was proposed to be remembered for long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from bot.engine.memory.writing.quality import Figures, Quality
from bot.engine.memory.writing.succession import succeed
from storage.db import Transaction
from storage.errors import NotAllowed, Overtaken, WrongState
from storage.memory.cells import Cells
from storage.memory.entries import EntryRepo
from storage.records.approvals import Approval, ApprovalState
from storage.records.memory.entries import (
    Entry,
    EntryId,
    EntryState,
    MemoryKind,
    Origin,
    Scope,
    ScopeKind,
    Tier,
)
from storage.records.memory.offers import OFFERED, offered_to, wording
from storage.records.people import PersonId

ENTRIES = "entries"
"""What a request is about, in its payload: the ids of candidates."""
WORDINGS = "wordings"
"""What each of them said when it was shown."""
ASKED, ANEW = "asked", "anew"
"""Of a candidate's `extra`: the request that it is asked about with, and that it has to be asked
about once more."""
_OF_ASKING = frozenset({ASKED, ANEW, OFFERED})


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
        decided in time they stay proposed. Raises Overtaken where one of them says something else
        by now than what was shown, and NotAllowed for somebody else's."""
        if approval.state is ApprovalState.EXPIRED:
            return
        for entry_id in approval.payload.get(ENTRIES, ()):
            candidate = await self._cells.one(EntryId(str(entry_id)), tx=tx)
            if candidate is None or candidate.state is not EntryState.CANDIDATE:
                continue
            if not is_as_shown(candidate, approval):
                raise Overtaken(f"memory {candidate.id} was changed after it was asked about")
            said_by = whose(candidate)
            if said_by is not None and said_by != approval.decided_by:
                raise NotAllowed("memory", candidate.id)
            if approval.state is ApprovalState.APPROVED:
                await self.confirm(tx, candidate)
            else:
                await self.reject(tx, candidate)

    async def confirm(self, tx: Transaction, candidate: Entry, scope: Scope | None = None) -> Entry:
        """Keep it for long, in place of the fact that it was made from; of what is offered to
        others a copy for them."""
        _check(candidate)
        to = offered_to(candidate)
        if to is not None and scope is None:
            return await self._share(tx, candidate, to)
        now = self._now()
        kept = replace(
            candidate,
            state=EntryState.ACTIVE,
            origin=Origin.MANUAL,
            confidence=1.0,
            tier=Tier.CORE,
            supersedes=None,
            scope=scope or candidate.scope,
            extra=_without(candidate),
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

    async def _share(self, tx: Transaction, candidate: Entry, to: Scope) -> Entry:
        """As sure as it was: those who use it may still learn better. Who said it is not told."""
        self.decided.add(candidate.scope)
        for there in await self._entries.same_as(to, candidate.text, tx=tx):
            if there.state is EntryState.ACTIVE and there.kind is not MemoryKind.CELL:
                await self._entries.drop(tx, candidate)
                await self._count(tx, Figures(confirmed=1), there)
                return there
        await self._entries.dig_up(tx, to, candidate.text)
        await self._cells.forget_vectors(tx, candidate)
        copy = replace(
            candidate,
            state=EntryState.ACTIVE,
            scope=to,
            person=None,
            chat=None,
            extra=_without(candidate),
        )
        await self._count(tx, Figures(confirmed=1), copy)
        return await self._entries.change(tx, copy, now=self._now())

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


def whose(candidate: Entry) -> PersonId | None:
    """Who alone decides about it: whoever it is about, in a group whoever said it. None: an
    owner."""
    match candidate.scope.kind:
        case ScopeKind.PERSON:
            return PersonId(candidate.scope.name)
        case ScopeKind.CHAT:
            return candidate.person
    return None


def is_as_shown(candidate: Entry, approval: Approval) -> bool:
    wordings = approval.payload.get(WORDINGS)
    shown = wordings.get(candidate.id) if isinstance(wordings, dict) else None
    return shown == wording(candidate)


def _without(candidate: Entry) -> Mapping[str, object]:
    return {name: told for name, told in candidate.extra.items() if name not in _OF_ASKING}


def _check(entry: Entry) -> None:
    if entry.state is not EntryState.CANDIDATE:
        raise WrongState("memory", entry.id, entry.state.value)
