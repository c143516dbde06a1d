"""The transitions of what is remembered, as the store shows them: entries, the jobs that draw
them, what was told of them, and the archive of conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.records.memory import ExtractionJobState, MemoryKind, MemoryState, MemoryTier

STATE_QUERY = """
UNION ALL SELECT 'memory', id, state FROM memories
UNION ALL SELECT 'kind', id, kind FROM memories
UNION ALL SELECT 'tier', id, tier FROM memories
UNION ALL SELECT 'pin', id, 'on' FROM memories WHERE pinned
UNION ALL SELECT 'tomb', scope || '/' || hash, 'there' FROM memory_tombstones
UNION ALL SELECT 'job', CAST(id AS TEXT), CASE WHEN state = 'waiting' AND why = 'begun'
    THEN 'begun' ELSE state END FROM memory_jobs WHERE kind = 'extract'
UNION ALL SELECT 'debt', CAST(id AS TEXT), state FROM memory_jobs WHERE kind = 'compact'
UNION ALL SELECT 'vector', CAST(number AS TEXT), 'there' FROM memory_vectors
UNION ALL SELECT 'use', CAST(id AS TEXT), CASE WHEN confirmed_at IS NULL THEN 'shown'
    ELSE 'confirmed' END FROM memory_uses
UNION ALL SELECT 'file', path, 'written' FROM memory_files
UNION ALL SELECT 'words', session_id || '/' || message, 'there' FROM message_texts
UNION ALL SELECT 'summary', id, CASE depth WHEN 0 THEN 'leaf' ELSE 'condensed' END FROM summaries
UNION ALL SELECT 'place', session_id || '/' || summary_id, 'there' FROM context_items
"""

DELETABLE = frozenset({"memory", "pin", "tomb", "vector", "file", "place"})
"""States that may be deleted, which makes them `gone`."""

ENTRY: Mapping[MemoryState, Sequence[MemoryState]] = {
    MemoryState.CANDIDATE: (MemoryState.ACTIVE, MemoryState.REJECTED),
    MemoryState.ACTIVE: (MemoryState.SUPERSEDED, MemoryState.ARCHIVED),
    MemoryState.SUPERSEDED: (),
    MemoryState.ARCHIVED: (MemoryState.ACTIVE,),
    MemoryState.REJECTED: (MemoryState.ACTIVE,),
}
"""Archived and rejected entries become active again if a person writes them by hand."""

JOB: Mapping[ExtractionJobState, Sequence[ExtractionJobState]] = {
    ExtractionJobState.GATHERING: (ExtractionJobState.WAITING,),
    ExtractionJobState.WAITING: (ExtractionJobState.DONE, ExtractionJobState.FAILED),
    ExtractionJobState.DONE: (),
    ExtractionJobState.FAILED: (),
}

_NEW = (
    *(f"kind.>{kind}" for kind in MemoryKind),
    *(f"memory.>{state}" for state in MemoryState),
    *(f"tier.>{tier}" for tier in MemoryTier),
    "pin.>on",
    "tomb.>there",
    "job.>gathering",
    "job.>waiting",
    "debt.>pending",
    "vector.>there",
    "use.>shown",
    "use.>confirmed",
    "file.>written",
    "words.>there",
    "summary.>leaf",
    "summary.>condensed",
    "place.>there",
)

_ENDS = (
    *(f"memory.{state}>gone" for state in MemoryState),
    "pin.on>gone",
    "tomb.there>gone",
    "vector.there>gone",
    "file.written>gone",
    "place.there>gone",
)

_CHANGES = (
    *(f"memory.{old}>{new}" for old, news in ENTRY.items() for new in news),
    "kind.fact>longterm",
    "kind.profile>longterm",
    "kind.longterm>fact",
    "kind.longterm>profile",
    "tier.working>core",
    "tier.core>working",
    "tier.working>peripheral",
    "tier.peripheral>working",
    "job.gathering>waiting",
    "job.waiting>begun",
    "job.begun>waiting",
    "job.begun>done",
    "job.begun>failed",
    "job.waiting>failed",
    "debt.pending>done",
    "debt.done>pending",
    "use.shown>confirmed",
)

ALL_TRANSITIONS = (*_NEW, *_CHANGES, *_ENDS)

IN_PROCESS = frozenset(
    {
        "kind.profile>longterm",
        "kind.longterm>fact",
        "kind.longterm>profile",
        "tier.working>core",
        "tier.core>working",
        "tier.peripheral>working",
        "tier.working>peripheral",
        "job.begun>failed",
        "job.waiting>failed",
        "use.shown>confirmed",
        "memory.rejected>gone",
    }
)
"""Transitions that take days of use, or a model that is always wrong: one commit each, with the
death in process."""
