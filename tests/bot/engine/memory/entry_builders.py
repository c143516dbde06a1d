"""Entries to try the laws of memory on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from storage.records.memory import (
    GLOBAL_SCOPE,
    EntryId,
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryOrigin,
    MemoryState,
    MemoryStrength,
    MemoryTier,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

_PLAIN = MemoryEntry(
    id=EntryId("abc"),
    number=1,
    revision=1,
    kind=MemoryKind.FACT,
    scope=GLOBAL_SCOPE,
    text="The harbour closes at six",
    category=MemoryCategory.ENTITIES,
    label="",
    abstract="",
    overview="",
    keywords=(),
    importance=0.7,
    confidence=0.7,
    tier=MemoryTier.WORKING,
    state=MemoryState.ACTIVE,
    dynamic=False,
    pinned=False,
    key="",
    origin=MemoryOrigin.CHAT,
    source=None,
    evidence=(),
    sender="",
    thread="",
    person=None,
    chat=None,
    task=None,
    said_at=NOW,
    valid_from=NOW,
    valid_until=None,
    invalidated_at=None,
    supersedes=None,
    superseded_by=None,
    strength=MemoryStrength(),
    used=0,
    last_used_at=None,
    shown=0,
    last_shown_at=None,
    bad_recalls=0,
    suppressed_until=None,
    created_at=NOW,
    updated_at=NOW,
    extra={},
)


def build_entry(*, days: float = 0, hours: float = 0, **changes: Any) -> MemoryEntry:
    """One that was said so long before NOW."""
    at = NOW - timedelta(days=days, hours=hours)
    dated = replace(_PLAIN, said_at=at, created_at=at, valid_from=at, updated_at=at)
    return replace(dated, **changes)
