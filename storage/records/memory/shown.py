"""What people are shown of what is remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from storage.records.memory.entries import Entry, Scope

A_PAGE = 20


class Wanted(StrEnum):
    """Which entries a list is about: those that count, or those that are put aside. What is known
    is what was made of all that was said, without the handbook."""

    KNOWN = "known"
    ALL = "all"
    HANDBOOK = "handbook"
    PROFILE = "profile"
    LONGTERM = "longterm"
    FACTS = "facts"
    CELLS = "cells"
    EPISODES = "episodes"
    CANDIDATES = "candidates"
    ARCHIVED = "archived"
    SUPERSEDED = "superseded"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPage:
    """`scopes` are those that were looked into, `more` says that there are older ones; `others`
    counts what else could be listed."""

    entries: Sequence[Entry]
    scopes: Sequence[Scope]
    total: int
    page: int
    more: bool
    others: Mapping[Wanted, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEntry:
    """`parts` say how its score came about: `words`, `meaning`, `fused`, `judge`, `age`, `link`,
    `episode`. `near` says that it has no word of the query itself: it was found by what it means,
    by what was said around it, or by its day."""

    entry: Entry
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)
    near: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedEntry:
    """An entry as it stood before a model, None once it was forgotten. `block` is where
    (`handbook`, `profile`, `longterm`, `similar`, `recent`), `confirmed` that it was used."""

    entry: Entry | None
    id: str
    block: str
    score: float
    parts: Mapping[str, float]
    at: datetime
    confirmed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """What stood before a model at one answer, that to a `turn` of a `session`, or at all of a
    task's. `used` is what its reader may see, or could before it was forgotten; `hidden` counts
    the rest. `at` is None where there was no answer, `by` the backend that gave it."""

    used: Sequence[UsedEntry] = ()
    hidden: int = 0
    session: str = ""
    turn: int = 0
    at: datetime | None = None
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStats:
    """Of what this reader may see. All from `jobs_waiting` on is of everybody, and told to owners
    only; `quality` are the write path's own figures, by name."""

    by_kind: Mapping[str, int]
    by_state: Mapping[str, int]
    by_scope: Mapping[str, int]
    jobs_waiting: int = 0
    jobs_failed: int = 0
    vectors: int = 0
    model: str = ""
    quality: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanReport:
    """What a cleaning would do, or has done: entries by reason. `backup` is a path in the data
    directory, empty for a dry run. `before` counts what else went, before the program died over
    it."""

    noise: Sequence[Entry]
    doubles: Sequence[Entry]
    weak: Sequence[Entry]
    done: bool
    backup: str = ""
    before: int = 0

    @property
    def total(self) -> int:
        return len(self.noise) + len(self.doubles) + len(self.weak)


class BadLine(StrEnum):
    """Why a line of a file was not read in."""

    NO_JSON = "no_json"
    NO_TEXT = "no_text"
    NO_KIND = "no_kind"
    NO_ENTRY = "no_entry"
    EMPTY = "empty"
    TOO_LONG = "too_long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What an import made of a file: `bad` are lines that could not be read, by number; `left` is
    how many nobody would write by hand."""

    added: int
    known: int
    bad: Mapping[int, BadLine]
    left: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEntry:
    """`strength` is what is left of it now, out of 100; `mine` says that its reader may change
    it."""

    entry: Entry
    strength: float
    mine: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedEntries:
    """`path` is relative to the data directory, `size` in bytes."""

    path: str
    size: int
    entries: int
