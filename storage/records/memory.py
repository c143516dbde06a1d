"""Defines memory entries, extraction jobs, candidates, the evidence for facts, and the views shown
to people."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NewType

from storage.errors import StorageError
from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId

# --- entries, jobs, candidates, evidence

EntryId = NewType("EntryId", str)

MAX_ENTRY_TEXT = 10_000
"""Characters of one entry's text, and of each of its other texts."""


class MemoryKind(StrEnum):
    """CELL is a verbatim turn, FACT is extracted from cells, PROFILE describes a person, LONGTERM
    passed every check or was written by hand, HANDBOOK is a chapter of BOSS.md, EPISODE summarizes
    a conversation."""

    CELL = "cell"
    FACT = "fact"
    PROFILE = "profile"
    LONGTERM = "longterm"
    HANDBOOK = "handbook"
    EPISODE = "episode"


class MemoryCategory(StrEnum):
    """An entry's subject; `label` preserves its original name."""

    PROFILE = "profile"
    PREFERENCES = "preferences"
    ENTITIES = "entities"
    EVENTS = "events"
    CASES = "cases"
    PATTERNS = "patterns"
    LESSONS = "lessons"
    PITFALLS = "pitfalls"
    TOOLS = "tools"
    OTHER = "other"


PERSONAL_CATEGORIES = frozenset({MemoryCategory.PROFILE, MemoryCategory.PREFERENCES})


class MemoryState(StrEnum):
    """Only ACTIVE entries are recalled. CANDIDATE awaits review, SUPERSEDED was once true, ARCHIVED
    was unused for long."""

    CANDIDATE = "candidate"
    ACTIVE = "active"
    SUPERSEDED = "superseded"
    ARCHIVED = "archived"
    REJECTED = "rejected"


class MemoryTier(StrEnum):
    CORE = "core"
    WORKING = "working"
    PERIPHERAL = "peripheral"


class MemoryOrigin(StrEnum):
    """Who wrote an entry. Entries with origin MANUAL are never changed automatically."""

    MANUAL = "manual"
    CHAT = "chat"
    TASK = "task"
    IMPORT = "import"


class MemoryScopeKind(StrEnum):
    GLOBAL = "global"
    PERSON = "person"
    CHAT = "chat"
    PROJECT = "project"
    SKILL = "skill"
    AGENT = "agent"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True, order=True)
class MemoryScope:
    """Who an entry is for: `global` or `kind:name`. Readers always pass a list of scopes; an empty
    list sees nothing."""

    kind: MemoryScopeKind
    name: str = ""

    def __post_init__(self) -> None:
        if (self.kind is MemoryScopeKind.GLOBAL) == bool(self.name):
            raise ValueError(f"a scope is `global` or `kind:name`, not {self.kind}:{self.name}")

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else str(self.kind)

    @classmethod
    def parse(cls, text: str) -> MemoryScope:
        """Raises ValueError for an invalid scope."""
        kind, _, name = text.strip().partition(":")
        return cls(MemoryScopeKind(kind), name.strip())


GLOBAL_SCOPE = MemoryScope(MemoryScopeKind.GLOBAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStrength:
    """How well an entry is remembered, after Ebbinghaus.

    `value` is the strength from 0 to 100 at `reinforced_at`; it falls by e^(-hours · decay /
    stability), with stability in hours.
    """

    value: float = 100.0
    stability: float = 24.0
    decay: float = 1.0
    reinforced: int = 0
    reinforced_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMemoryEntry:
    """`source`, if given, is unique: the same source writes one entry. `key` names the subject
    (`preferences:editor`): a newer entry with the same key and scope replaces the older."""

    kind: MemoryKind
    scope: MemoryScope
    text: str
    category: MemoryCategory = MemoryCategory.OTHER
    label: str = ""
    abstract: str = ""
    overview: str = ""
    keywords: Sequence[str] = ()
    importance: float = 0.5
    confidence: float = 0.7
    tier: MemoryTier = MemoryTier.WORKING
    state: MemoryState = MemoryState.ACTIVE
    dynamic: bool = False
    pinned: bool = False
    key: str = ""
    origin: MemoryOrigin = MemoryOrigin.CHAT
    source: str | None = None
    evidence: Sequence[str] = ()
    sender: str = ""
    thread: str = ""
    person: PersonId | None = None
    chat: ChatId | None = None
    task: TaskId | None = None
    said_at: datetime | None = None
    valid_from: datetime | None = None
    """The time it was said, if None."""
    valid_until: datetime | None = None
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEntry:
    """`revision` counts changes: an edit names the revision it is based on. `number` identifies it
    in indexes. `used` counts confirmed uses, `shown` injections into a context."""

    id: EntryId
    number: int
    revision: int
    kind: MemoryKind
    scope: MemoryScope
    text: str
    category: MemoryCategory
    label: str
    abstract: str
    overview: str
    keywords: Sequence[str]
    importance: float
    confidence: float
    tier: MemoryTier
    state: MemoryState
    dynamic: bool
    pinned: bool
    key: str
    origin: MemoryOrigin
    source: str | None
    evidence: Sequence[str]
    sender: str
    thread: str
    person: PersonId | None
    chat: ChatId | None
    task: TaskId | None
    said_at: datetime
    valid_from: datetime
    valid_until: datetime | None
    invalidated_at: datetime | None
    supersedes: EntryId | None
    superseded_by: EntryId | None
    strength: MemoryStrength
    used: int
    last_used_at: datetime | None
    shown: int
    last_shown_at: datetime | None
    bad_recalls: int
    suppressed_until: datetime | None
    created_at: datetime
    updated_at: datetime
    extra: Mapping[str, object]

    @property
    def held_until(self) -> datetime | None:
        """The time at which the entry ceased or will cease to hold: by its own words, or because
        another replaced it."""
        if self.valid_until is None and self.state is MemoryState.SUPERSEDED:
            return self.invalidated_at
        return self.valid_until

    @property
    def is_protected(self) -> bool:
        """Manual and pinned entries are never changed or removed automatically."""
        return self.pinned or self.origin is MemoryOrigin.MANUAL

    @property
    def user_text(self) -> str:
        """The user's part of a cell's text."""
        return self.text[: self._user_text_length]

    @property
    def assistant_text(self) -> str:
        """The rest of a cell's text: the answer, or the outcome of a task."""
        return self.text[self._user_text_length :].strip()

    @property
    def _user_text_length(self) -> int:
        said = self.extra.get(USER_TEXT_LENGTH_KEY)
        return said if isinstance(said, int) else len(self.text)


class ExtractionJobState(StrEnum):
    """A job gathers turns, waits until it is due, and is then done or failed."""

    GATHERING = "gathering"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionJob:
    """Facts to extract from these cells of one thread. `attempts` counts those started."""

    id: int
    scope: MemoryScope
    thread: str
    cells: Sequence[EntryId]
    state: ExtractionJobState
    attempts: int
    due_at: datetime
    reason: str


USER_TEXT_LENGTH_KEY, PROJECT_KEY, SKILL_KEY = "said", "project", "skill"
"""Keys in a cell's `extra`: how many of its characters the user said, and the project and skill of
the work."""

UNREAD_DATE_KEY = "unread_date"
"""Key in a fact's `extra`: it was said with a date of a calendar that is not understood."""

OFFERED_TO_KEY = "offered_to"
"""Key in a candidate's `extra`: the scope that a copy of it would get."""

_CANDIDATE_PREFIX, _OFFER_PREFIX = "candidate:", "offer:"
_OFFERABLE_SCOPES = frozenset({MemoryScopeKind.SKILL, MemoryScopeKind.PROJECT})


def candidate_source(entry: MemoryEntry) -> str:
    """The source of the candidate for long-term memory made from this entry."""
    return f"{_CANDIDATE_PREFIX}{entry.id}"


def offer_source(entry: MemoryEntry) -> str:
    """The source of the copy offered to others."""
    return f"{_OFFER_PREFIX}{entry.id}"


def is_offer(entry: MemoryEntry) -> bool:
    return (entry.source or "").startswith(_OFFER_PREFIX)


def offered_scope(entry: MemoryEntry) -> MemoryScope | None:
    named = entry.extra.get(OFFERED_TO_KEY)
    try:
        scope = MemoryScope.parse(named) if isinstance(named, str) else None
    except ValueError:
        return None
    return scope if scope is not None and scope.kind in _OFFERABLE_SCOPES else None


def candidate_digest(candidate: MemoryEntry) -> str:
    """A digest of what the reviewer decides about: text, scope and the scope offered to."""
    told = "\0".join((candidate.text, str(candidate.scope), str(offered_scope(candidate) or "")))
    return hashlib.sha256(told.encode()).hexdigest()[:16]


class MemoryRejectionReason(StrEnum):
    """Why an entry was not saved. NO_CANDIDATE: its state does not allow the change."""

    EMPTY = "empty"
    TOO_LONG = "too_long"
    NO_CANDIDATE = "no_candidate"


class MemoryNotSaved(StorageError):
    """The entry was not saved; nothing was changed."""

    def __init__(self, reason: MemoryRejectionReason) -> None:
        self.reason = reason
        super().__init__(f"not remembered: {reason}")


GENERAL_CONTEXT = "general"
MAX_SUPPORT_CONTEXTS = 8
UNKNOWN_STRENGTH = 0.5
_SUPPORT_KEY, _SUPPORT_TOTAL_KEY, _CONTEXT_KEY = "support", "support_all", "context"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSupport:
    """Observations in one context, such as mornings, weekends or work."""

    confirmed: int = 0
    contradicted: int = 0
    observed_at: str = ""

    @property
    def strength(self) -> float:
        return _confirmed_share(self.confirmed, self.contradicted)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSupport:
    """How often a fact was confirmed or contradicted.

    `by_context` is ordered by last observation, newest last. The totals include contexts that were
    dropped as too old.
    """

    by_context: Mapping[str, ContextSupport] = field(default_factory=dict)
    confirmed: int = 0
    contradicted: int = 0
    context: str = ""
    """The only context in which the fact holds; empty if it holds in general."""

    @property
    def strength(self) -> float:
        return _confirmed_share(self.confirmed, self.contradicted)

    def with_observation(self, context: str, *, holds: bool, at: datetime) -> FactSupport:
        """A copy with one more confirmation, or contradiction if not `holds`."""
        held = self.by_context.get(context, ContextSupport())
        seen = ContextSupport(
            confirmed=held.confirmed + holds,
            contradicted=held.contradicted + (not holds),
            observed_at=at.isoformat(),
        )
        others = {name: each for name, each in self.by_context.items() if name != context}
        newest = list({**others, context: seen}.items())[-MAX_SUPPORT_CONTEXTS:]
        return FactSupport(
            by_context=dict(newest),
            confirmed=self.confirmed + holds,
            contradicted=self.contradicted + (not holds),
            context=self.context,
        )

    def to_extra(self) -> Mapping[str, object]:
        """The form stored in an entry's `extra`."""
        slices = {
            name: [each.confirmed, each.contradicted, each.observed_at]
            for name, each in self.by_context.items()
        }
        told: dict[str, object] = {
            _SUPPORT_KEY: slices,
            _SUPPORT_TOTAL_KEY: [self.confirmed, self.contradicted],
        }
        return {**told, _CONTEXT_KEY: self.context} if self.context else told


def support_from_extra(entry: MemoryEntry) -> FactSupport:
    """Malformed data counts as no observations."""
    held = entry.extra.get(_SUPPORT_KEY)
    slices = {
        str(name): ContextSupport(
            confirmed=_count(each, 0),
            contradicted=_count(each, 1),
            observed_at="".join(part for part in each if isinstance(part, str)),
        )
        for name, each in (held.items() if isinstance(held, dict) else ())
        if isinstance(each, list)
    }
    total = entry.extra.get(_SUPPORT_TOTAL_KEY)
    context = entry.extra.get(_CONTEXT_KEY)
    return FactSupport(
        by_context=slices,
        confirmed=max(_count(total, 0), sum(each.confirmed for each in slices.values())),
        contradicted=max(_count(total, 1), sum(each.contradicted for each in slices.values())),
        context=context if isinstance(context, str) else "",
    )


def _confirmed_share(confirmed: int, contradicted: int) -> float:
    seen = confirmed + contradicted
    return confirmed / seen if seen else UNKNOWN_STRENGTH


def _count(value: object, at: int) -> int:
    if not isinstance(value, (list, tuple)) or len(value) <= at:
        return 0
    n = value[at]
    return n if isinstance(n, int) and n > 0 else 0


def text_hash(text: str) -> str:
    """A hash that ignores case, spaces and punctuation."""
    plain = unicodedata.normalize("NFKC", text).lower()
    letters = "".join(each for each in plain if each.isalnum())
    return hashlib.sha256((letters or plain).encode()).hexdigest()


class MemoryListFilter(StrEnum):
    """Which entries a list shows. KNOWN covers everything derived from conversations, without the
    handbook."""

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


# --- views for people

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
    `episode`. `ended_at` is the time since when what a turn states is no longer so. `is_indirect`
    says that it contains no word of the query: it was found by meaning, by
    neighbouring turns or by date."""

    entry: MemoryEntry
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)
    is_indirect: bool = False
    ended_at: datetime | None = None


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
