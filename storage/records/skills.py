"""Defines skills: folders with a `SKILL.md` that owners enable or disable."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from storage.records.people import PersonId

BUILTIN_HASH = "builtin"
"""A decision about a built-in skill holds for all its versions."""


class SkillSource(StrEnum):
    """A skill's location: built in, the Boss's own, or a project."""

    BUILTIN = "builtin"
    USER = "user"
    WORKSPACE = "workspace"


class SkillState(StrEnum):
    """Only ENABLED skills are used. NEW: no owner has decided. CHANGED: different files were
    enabled."""

    ENABLED = "enabled"
    NEW = "new"
    CHANGED = "changed"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillNote:
    """A note about a skill's files: a catalogue key under `skill.note`, with its detail."""

    key: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRequirement:
    """Requirements missing on this machine: a key under `skill.lack`, with their names."""

    key: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    """`name` is relative to the skill's folder; `digest` covers its bytes."""

    name: str
    size: int
    digest: str
    script: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """`hash` covers the whole folder; `text` is all of SKILL.md, `body` the part after its front
    matter. `ignored` are front matter keys without effect."""

    name: str
    description: str
    source: SkillSource
    path: str
    hash: str
    files: tuple[SkillFile, ...]
    text: str
    body: str
    triggers: tuple[str, ...] = ()
    argument_hint: str = ""
    emoji: str = ""
    license: str = ""
    compatibility: str = ""
    model_may_load: bool = True
    person_may_load: bool = True
    missing_requirements: tuple[MissingRequirement, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[SkillNote, ...] = ()

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)

    @property
    def scripts(self) -> tuple[SkillFile, ...]:
        return tuple(each for each in self.files if each.script)

    @property
    def decision_hash(self) -> str:
        """The hash under which decisions about it are stored."""
        return BUILTIN_HASH if self.source is SkillSource.BUILTIN else self.hash


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidSkill:
    """A folder that is not a usable skill, with all its errors."""

    name: str
    source: SkillSource
    path: str
    errors: tuple[SkillNote, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillChanges:
    """Differences from the files that were enabled. `diff` is a unified diff of SKILL.md."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    diff: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillListing:
    """A skill in its context. `shadowed_by` is the path of the skill of the same name used instead,
    or empty; `change` is set if the state is CHANGED."""

    skill: Skill
    state: SkillState
    shadowed_by: str = ""
    change: SkillChanges | None = None

    @property
    def usable(self) -> bool:
        return self.state is SkillState.ENABLED and not (
            self.skill.missing_requirements or self.shadowed_by
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillCatalog:
    """All skills available in one place, by name with the effective one first, and invalid folders.
    `left_out` counts those beyond the reading limit."""

    skills: tuple[SkillListing, ...] = ()
    invalid: tuple[InvalidSkill, ...] = ()
    left_out: int = 0

    def list_by_name(self, name: str) -> tuple[SkillListing, ...]:
        wanted = name.strip().casefold()
        return tuple(each for each in self.skills if each.skill.name == wanted)

    def find(self, name: str) -> SkillListing | None:
        """The effective skill of that name."""
        return next(iter(self.list_by_name(name)), None)

    @property
    def usable(self) -> tuple[SkillListing, ...]:
        return tuple(each for each in self.skills if each.usable)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDecision:
    """An owner's decision about a skill with exactly this hash."""

    name: str
    hash: str
    source: str
    enabled: bool
    decided_by: PersonId
    decided_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EnabledSkillSnapshot:
    """The enabled files, retained for comparison: digests by file, and SKILL.md."""

    files: dict[str, str] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSkill:
    """A skill's text, framed for a worker."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDraft:
    """An unsaved skill: its complete SKILL.md as it was shown."""

    name: str
    text: str


class SkillRefusalReason(StrEnum):
    """Why a skill was not loaded, enabled or saved; texts are under `error.skill_<reason>`."""

    UNKNOWN = "unknown"
    BAD = "bad"
    NOT_ENABLED = "not_enabled"
    LACKS = "lacks"
    MODEL_ONLY = "model_only"
    PERSON_ONLY = "person_only"
    CHANGED = "changed"
    NO_FILE = "no_file"
    EXISTS = "exists"
    DRAFT = "draft"


class SkillRefused(Exception):
    """`detail` explains more, in the words of the code that raised it."""

    def __init__(self, reason: SkillRefusalReason, name: str, detail: str = "") -> None:
        self.reason = reason
        self.name = name
        self.detail = detail
        super().__init__(f"{name!r}: {reason} {detail}".rstrip())
