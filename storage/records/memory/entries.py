"""What is remembered: one kind of entry, whatever it says and wherever it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NewType

from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId

EntryId = NewType("EntryId", str)

MOST_TEXT = 10_000
"""Characters of one entry's text; of what comes with it, too."""


class MemoryKind(StrEnum):
    """A cell is what was said, word for word; facts are drawn out of cells; a profile says who
    somebody is; what is longterm has passed every gate or was written by hand; a handbook entry is
    one chapter of BOSS.md; an episode sums up a conversation."""

    CELL = "cell"
    FACT = "fact"
    PROFILE = "profile"
    LONGTERM = "longterm"
    HANDBOOK = "handbook"
    EPISODE = "episode"


class Category(StrEnum):
    """What an entry is about; `label` keeps what it was called before."""

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


class EntryState(StrEnum):
    """Only what is active is recalled. A candidate waits for somebody's word, what is superseded
    was true once, what is archived was not used for long."""

    CANDIDATE = "candidate"
    ACTIVE = "active"
    SUPERSEDED = "superseded"
    ARCHIVED = "archived"
    REJECTED = "rejected"


class Tier(StrEnum):
    CORE = "core"
    WORKING = "working"
    PERIPHERAL = "peripheral"


class Origin(StrEnum):
    """Who wrote it. What a person wrote is never changed by the program on its own."""

    MANUAL = "manual"
    CHAT = "chat"
    TASK = "task"
    IMPORT = "import"


class ScopeKind(StrEnum):
    GLOBAL = "global"
    PERSON = "person"
    CHAT = "chat"
    PROJECT = "project"
    SKILL = "skill"
    AGENT = "agent"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """Who an entry is for. Written `global`, else `kind:name`; what is read is always a list of
    scopes, and an empty one sees nothing."""

    kind: ScopeKind
    name: str = ""

    def __post_init__(self) -> None:
        if (self.kind is ScopeKind.GLOBAL) == bool(self.name):
            raise ValueError(f"a scope is `global` or `kind:name`, not {self.kind}:{self.name}")

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else str(self.kind)

    @classmethod
    def of(cls, text: str) -> Scope:
        """Raises ValueError for what is no scope."""
        kind, _, name = text.strip().partition(":")
        return cls(ScopeKind(kind), name.strip())


GLOBAL = Scope(ScopeKind.GLOBAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """How alive an entry is, by Ebbinghaus: `value` was it when it was last `reinforced_at`, out
    of 100; it falls by e^(-hours · decay / stability), stability in hours."""

    value: float = 100.0
    stability: float = 24.0
    decay: float = 1.0
    reinforced: int = 0
    reinforced_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """What is to be remembered. `source` is unique where it is given: the same said again is
    written once. `key` names what it is about (`preferences:editor`): a newer entry of the same
    key in the same scope takes its place."""

    kind: MemoryKind
    scope: Scope
    text: str
    category: Category = Category.OTHER
    label: str = ""
    abstract: str = ""
    overview: str = ""
    keywords: Sequence[str] = ()
    importance: float = 0.5
    confidence: float = 0.7
    tier: Tier = Tier.WORKING
    state: EntryState = EntryState.ACTIVE
    dynamic: bool = False
    pinned: bool = False
    key: str = ""
    origin: Origin = Origin.CHAT
    source: str | None = None
    evidence: Sequence[str] = ()
    sender: str = ""
    thread: str = ""
    person: PersonId | None = None
    chat: ChatId | None = None
    task: TaskId | None = None
    said_at: datetime | None = None
    valid_until: datetime | None = None
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry as it is stored. `revision` counts its changes: an edit names the one it was made
    on. `number` is what indexes know it by. `used` counts confirmed uses, `shown` injections."""

    id: EntryId
    number: int
    revision: int
    kind: MemoryKind
    scope: Scope
    text: str
    category: Category
    label: str
    abstract: str
    overview: str
    keywords: Sequence[str]
    importance: float
    confidence: float
    tier: Tier
    state: EntryState
    dynamic: bool
    pinned: bool
    key: str
    origin: Origin
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
    strength: Strength
    used: int
    last_used_at: datetime | None
    shown: int
    last_shown_at: datetime | None
    bad_recalls: int
    suppressed_until: datetime | None
    created_at: datetime
    updated_at: datetime
    extra: Mapping[str, object]
