"""What is remembered, as plain values for programs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from storage.records.memory.entries import Entry, EntryId
from storage.records.memory.shown import FoundEntry, UsedEntry
from storage.records.memory.support import Support, support_of

DATES = (
    "valid_from",
    "invalidated_at",
    "last_used_at",
    "last_shown_at",
    "suppressed_until",
    "created_at",
    "updated_at",
)
"""Dates of an entry that only an export tells."""


def entry_data(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "kind": entry.kind.value,
        "scope": str(entry.scope),
        "state": entry.state.value,
        "category": entry.category.value,
        "label": entry.label,
        "text": entry.text,
        "overview": entry.overview,
        "keywords": list(entry.keywords),
        "importance": entry.importance,
        "confidence": entry.confidence,
        "tier": entry.tier.value,
        "pinned": entry.pinned,
        "origin": entry.origin.value,
        "key": entry.key,
        "sender": entry.sender,
        "thread": entry.thread,
        "at": entry.said_at.isoformat(),
        "valid_until": entry.valid_until.isoformat() if entry.valid_until else None,
        "superseded_by": entry.superseded_by,
        "used": entry.used,
        "revision": entry.revision,
        "support": _support(support_of(entry)),
        "admission": entry.extra.get("admission"),
    }


def kept_data(entry: Entry, sources: Sequence[EntryId], accounts: Sequence[str]) -> dict[str, Any]:
    """All of it, as it can be put back: also what it was drawn from, `sources`, and by which
    `accounts` its person is known elsewhere."""
    life = entry.strength
    return {
        **entry_data(entry),
        "abstract": entry.abstract,
        "dynamic": entry.dynamic,
        "source": entry.source,
        "evidence": list(entry.evidence),
        "from": list(sources),
        "person": entry.person,
        "accounts": list(accounts),
        "chat": entry.chat,
        "task": entry.task,
        "supersedes": entry.supersedes,
        "life": {
            "value": life.value,
            "stability": life.stability,
            "decay": life.decay,
            "reinforced": life.reinforced,
            "reinforced_at": _told(life.reinforced_at),
        },
        "shown": entry.shown,
        "bad_recalls": entry.bad_recalls,
        **{name: _told(getattr(entry, name)) for name in DATES},
        "extra": dict(entry.extra),
    }


def _told(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _support(support: Support) -> dict[str, Any]:
    return {
        "strength": round(support.strength, 3),
        "confirmed": support.confirmed,
        "contradicted": support.contradicted,
        "context": support.context,
        "slices": {name: round(each.strength, 3) for name, each in support.slices.items()},
    }


def found_data(found: FoundEntry) -> dict[str, Any]:
    return {**entry_data(found.entry), "score": found.score, "parts": dict(found.parts)}


def used_data(used: UsedEntry) -> dict[str, Any]:
    return {
        "id": used.id,
        "text": used.entry.text if used.entry else None,
        "block": used.block,
        "score": used.score,
        "parts": dict(used.parts),
        "at": used.at.isoformat(),
        "used": used.confirmed,
    }
