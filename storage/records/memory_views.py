"""Defines the memory views shown to people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from storage.records.memory import MemoryEntry, MemoryListFilter

MEMORY_PAGE_SIZE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPage:
    """One page of entries. `has_more` says that older entries exist,
    `other_counts` counts the entries of other filters."""

    entries: Sequence[MemoryEntry]
    total: int
    page: int
    has_more: bool
    other_counts: Mapping[MemoryListFilter, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMatch:
    """`parts` are the components of its score: `words`, `meaning`, `fused`, `judge`, `age`, `link`,
    `episode`. `is_indirect` says that it contains no word of the query: it was found by meaning, by
    neighbouring turns or by date."""

    entry: MemoryEntry
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)
    is_indirect: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedMemory:
    """An entry as it was shown to a model; `entry` is None once forgotten. `block` is its place in
    the context (`handbook`, `profile`, `longterm`, `similar`, `recent`); `confirmed` says it was
    used."""

    entry: MemoryEntry | None
    id: str
    block: str
    score: float
    parts: Mapping[str, float]
    at: datetime
    confirmed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerMemories:
    """The entries shown to a model for one answer, or for all answers of a task.

    `used` are those the reader may see, or could before they were forgotten; `hidden_count` is the
    rest. `at` is None if there was no answer; `backend` gave it.
    """

    used: Sequence[UsedMemory] = ()
    hidden_count: int = 0
    session: str = ""
    turn: int = 0
    at: datetime | None = None
    backend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStats:
    """Figures on the entries this reader may see. Those from `jobs_waiting` on cover everyone and
    are shown to owners only; `quality` are the ingestion pipeline's own figures by name."""

    by_kind: Mapping[str, int]
    by_state: Mapping[str, int]
    by_scope: Mapping[str, int]
    jobs_waiting: int = 0
    jobs_failed: int = 0
    vectors: int = 0
    embedding_model: str = ""
    quality: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCleanReport:
    """A planned or finished cleanup: entries by reason. `backup` is a path in the data directory,
    empty for a dry run. `removed_before` counts entries removed by an earlier, interrupted run."""

    noise: Sequence[MemoryEntry]
    doubles: Sequence[MemoryEntry]
    weak: Sequence[MemoryEntry]
    done: bool
    backup: str = ""
    removed_before: int = 0

    @property
    def total(self) -> int:
        return len(self.noise) + len(self.doubles) + len(self.weak)


class ImportLineError(StrEnum):
    """Why an imported line was rejected."""

    NO_JSON = "no_json"
    NO_TEXT = "no_text"
    NO_KIND = "no_kind"
    NO_ENTRY = "no_entry"
    EMPTY = "empty"
    TOO_LONG = "too_long"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryImportReport:
    """The result of an import. `line_errors` are rejected lines by number; `left_out` counts
    entries that a person would not write by hand."""

    added: int
    already_known: int
    line_errors: Mapping[int, ImportLineError]
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDetail:
    """An entry with its current strength from 0 to 100; `is_editable` says whether the reader may
    change it."""

    entry: MemoryEntry
    strength: float
    is_editable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryExport:
    """`path` is relative to the data directory; `size` is in bytes."""

    path: str
    size: int
    entries: int
