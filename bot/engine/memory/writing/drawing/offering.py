"""Proposes that what somebody learned in private serves others too: nobody is told before they say
so."""

from __future__ import annotations

from datetime import datetime

from bot.engine.memory.writing.drawing.gates import CANDIDATE_SURE
from bot.engine.memory.writing.noise import fact_noise, is_time_bound
from bot.engine.memory.writing.succession import is_by_hand
from storage.db import Transaction
from storage.memory.entries import EntryRepo
from storage.records.memory.entries import (
    Entry,
    EntryState,
    MemoryKind,
    NewEntry,
    Scope,
    Tier,
)
from storage.records.memory.offers import OFFERED, offer_of, offered_to

LONGEST = 260
"""Nobody should have to allow what is cut off on a card."""


async def offer(
    entries: EntryRepo, tx: Transaction, entry: Entry, to: Scope, *, now: datetime
) -> bool:
    """Propose a copy for `to`, once. It stays with the person until they have decided, and bears
    nothing but the words that they will be shown. False where nothing is proposed."""
    if not _may_serve(entry) or await _is_known(entries, tx, entry, to):
        return False
    copy = NewEntry(
        kind=MemoryKind.FACT,
        scope=entry.scope,
        text=entry.text,
        category=entry.category,
        importance=entry.importance,
        confidence=entry.confidence,
        tier=Tier.WORKING,
        state=EntryState.CANDIDATE,
        origin=entry.origin,
        source=offer_of(entry),
        evidence=entry.evidence,
        person=entry.person,
        chat=entry.chat,
        said_at=entry.said_at,
        extra={OFFERED: str(to)},
    )
    return await entries.add(tx, copy, now=now) is not None


def _may_serve(entry: Entry) -> bool:
    sound = fact_noise(entry.text) is None and not is_time_bound(entry.text)
    sure = entry.confidence >= CANDIDATE_SURE and len(entry.text) <= LONGEST
    return sure and sound and entry.valid_until is None and not is_by_hand(entry)


async def _is_known(entries: EntryRepo, tx: Transaction, entry: Entry, to: Scope) -> bool:
    """There, or what was asked about before."""
    there = await entries.same_as(to, entry.text, tx=tx)
    here = await entries.same_as(entry.scope, entry.text, tx=tx)
    offered = any(offered_to(each) == to for each in here)
    return offered or any(each.kind is not MemoryKind.CELL for each in there)
