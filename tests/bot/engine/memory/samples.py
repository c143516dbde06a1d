"""Entries to try the laws of memory on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from storage.records.memory.entries import (
    GLOBAL,
    Category,
    Entry,
    EntryId,
    EntryState,
    MemoryKind,
    Origin,
    Strength,
    Tier,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

_PLAIN = Entry(
    id=EntryId("abc"),
    number=1,
    revision=1,
    kind=MemoryKind.FACT,
    scope=GLOBAL,
    text="The harbour closes at six",
    category=Category.ENTITIES,
    label="",
    abstract="",
    overview="",
    keywords=(),
    importance=0.7,
    confidence=0.7,
    tier=Tier.WORKING,
    state=EntryState.ACTIVE,
    dynamic=False,
    pinned=False,
    key="",
    origin=Origin.CHAT,
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
    strength=Strength(),
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


def entry(*, days: float = 0, hours: float = 0, **changes: Any) -> Entry:
    """One that was said so long before NOW."""
    at = NOW - timedelta(days=days, hours=hours)
    dated = replace(_PLAIN, said_at=at, created_at=at, valid_from=at, updated_at=at)
    return replace(dated, **changes)
