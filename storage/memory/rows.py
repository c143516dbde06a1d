"""Entries as rows, and back."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from storage.memory.words import same
from storage.records.memory.entries import (
    MOST_TEXT,
    Category,
    Entry,
    EntryId,
    EntryState,
    MemoryKind,
    NewEntry,
    Origin,
    Scope,
    Strength,
    Tier,
)

_CONVERTED = frozenset(
    ("id", "kind", "scope", "category", "keywords", "tier", "state", "origin", "evidence")
) | {"person", "chat", "task", "strength", "extra"}
_PLAIN = [each.name for each in fields(Entry) if each.name not in _CONVERTED]
_GIVEN = [each.name for each in fields(NewEntry) if each.name in _PLAIN]
_LAID_DOWN = [name for name in _GIVEN if name not in {"source", "said_at"}]
MANUAL_STABILITY = 168.0
"""Hours, for what somebody wrote by hand."""


def entry_of(row: Row[Any]) -> Entry:
    return Entry(
        **{name: getattr(row, name) for name in _PLAIN},
        id=EntryId(row.id),
        kind=MemoryKind(row.kind),
        scope=Scope.of(row.scope),
        category=Category(row.category),
        keywords=tuple(row.keywords),
        tier=Tier(row.tier),
        state=EntryState(row.state),
        origin=Origin(row.origin),
        evidence=tuple(row.evidence),
        person=row.person_id,
        chat=row.chat_id,
        task=row.task_id,
        strength=Strength(
            value=row.strength,
            stability=row.stability,
            decay=row.decay,
            reinforced=row.reinforced,
            reinforced_at=row.reinforced_at,
        ),
        extra=row.extra,
    )


def new_row(new: NewEntry, *, id: str, now: datetime) -> dict[str, Any]:
    by_hand = new.origin is Origin.MANUAL
    said = new.said_at or now
    return {
        **_shared(new),
        "id": id,
        "revision": 1,
        "source": new.source,
        "said_at": said,
        "valid_from": said,
        "strength": 100.0,
        "stability": MANUAL_STABILITY if by_hand else Strength().stability,
        "decay": 1.0,
        "created_at": now,
        "updated_at": now,
    }


def changed_row(entry: Entry) -> dict[str, Any]:
    """All but what never changes: its number and id, its source and its birth."""
    alive = entry.strength
    kept = {"number", "source", "created_at"}
    return {
        **{name: getattr(entry, name) for name in _PLAIN if name not in kept},
        **_shared(entry),
        "strength": alive.value,
        "stability": alive.stability,
        "decay": alive.decay,
        "reinforced": alive.reinforced,
        "reinforced_at": alive.reinforced_at,
    }


def _shared(entry: Entry | NewEntry) -> dict[str, Any]:
    text = entry.text[:MOST_TEXT]
    return {
        **{name: getattr(entry, name) for name in _LAID_DOWN},
        "text": text,
        "abstract": entry.abstract[:MOST_TEXT],
        "overview": entry.overview[:MOST_TEXT],
        "hash": same(text),
        "kind": entry.kind.value,
        "scope": str(entry.scope),
        "category": entry.category.value,
        "keywords": list(entry.keywords),
        "tier": entry.tier.value,
        "state": entry.state.value,
        "origin": entry.origin.value,
        "evidence": list(entry.evidence),
        "person_id": entry.person,
        "chat_id": entry.chat,
        "task_id": entry.task,
        "extra": dict(entry.extra),
    }
