"""How one entry takes the place of another, within a larger transaction."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from storage.db import Transaction
from storage.memory.entries import EntryRepo
from storage.records.memory.entries import Entry, EntryState, NewEntry, Origin
from storage.records.memory.offers import offer_of


def is_by_hand(entry: Entry) -> bool:
    """What a person wrote or pinned is never changed by the program on its own."""
    return entry.origin is Origin.MANUAL or entry.pinned


def proposal_of(entry: Entry) -> str:
    """The source of the candidate that is made from it."""
    return f"candidate:{entry.id}"


async def retract(entries: EntryRepo, tx: Transaction, entry: Entry) -> None:
    """What was proposed because of it is asked about no more: it says something else by now, or
    is somewhere else. It may be proposed again as it is then."""
    for source in (proposal_of(entry), offer_of(entry)):
        proposed = await entries.by_source(source, tx=tx)
        if proposed is not None and proposed.state is EntryState.CANDIDATE:
            await entries.drop(tx, proposed)


async def supersede(
    entries: EntryRepo, tx: Transaction, old: Entry, new: NewEntry, *, now: datetime
) -> Entry | None:
    """Keep the new one, and the old one with its dates as what was true until now. None, with
    nothing changed, where the new one is not kept."""
    made = await entries.add(tx, new, now=now)
    return None if made is None else await succeed(entries, tx, old, made, now=now)


async def succeed(
    entries: EntryRepo, tx: Transaction, old: Entry, made: Entry, *, now: datetime
) -> Entry:
    """An entry that is there already takes the place of `old`."""
    gone = replace(
        old, state=EntryState.SUPERSEDED, invalidated_at=now, superseded_by=made.id, pinned=False
    )
    await entries.change(tx, gone, now=now)
    await retract(entries, tx, old)
    return await entries.change(tx, replace(made, supersedes=old.id), now=now)
