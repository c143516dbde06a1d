"""Skills as people and workers see them: folders with a `SKILL.md`, let in by an owner or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from storage.records.people import PersonId

BUILTIN_HASH = "builtin"
"""Decisions about a skill that comes with the program hold for all its versions."""


class SkillSource(StrEnum):
    """Where a skill lies: with the program, with the Boss, or in a project."""

    BUILTIN = "builtin"
    USER = "user"
    WORKSPACE = "workspace"


class SkillState(StrEnum):
    """Only ENABLED is used. NEW: no owner has decided. CHANGED: other files were enabled."""

    ENABLED = "enabled"
    NEW = "new"
    CHANGED = "changed"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillNote:
    """Something about a skill's files: a catalogue key under `skill.note`, with its detail."""

    key: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """What a skill needs and this machine has not: a key under `skill.lack`, with the names."""

    key: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    """`name` is relative to the skill's folder; `digest` is of its bytes."""

    name: str
    size: int
    digest: str
    script: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A skill whose files can be read. `hash` is of the whole folder; `text` is all of SKILL.md,
    `body` what follows its front matter. `ignored` are keys that change nothing here, `notes`
    what else is worth knowing of it. `by_model` and `by_person` say who may call for it."""

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
    by_model: bool = True
    by_person: bool = True
    lacks: tuple[Lack, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[SkillNote, ...] = ()

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)

    @property
    def scripts(self) -> tuple[SkillFile, ...]:
        return tuple(each for each in self.files if each.script)

    @property
    def key(self) -> str:
        """Under which hash decisions about it are kept."""
        return BUILTIN_HASH if self.source is SkillSource.BUILTIN else self.hash


@dataclass(frozen=True, slots=True, kw_only=True)
class BadSkill:
    """A folder that is no usable skill, with all that is wrong with it."""

    name: str
    source: SkillSource
    path: str
    faults: tuple[SkillNote, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is different from the files that were enabled. `diff` is SKILL.md's, unified."""

    added: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    diff: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A skill as it stands here. `shadowed` is the path of the one of the same name that is used
    instead, empty if it is this one; `change` is set where the state is CHANGED."""

    skill: Skill
    state: SkillState
    shadowed: str = ""
    change: Change | None = None

    @property
    def usable(self) -> bool:
        return self.state is SkillState.ENABLED and not (self.skill.lacks or self.shadowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillShelf:
    """All skills of a place, by name, the one that counts first; and the folders that are none.
    `left_out` is how many lie beyond the most that are read."""

    skills: tuple[Listed, ...] = ()
    bad: tuple[BadSkill, ...] = ()
    left_out: int = 0

    def named(self, name: str) -> tuple[Listed, ...]:
        wanted = name.strip().casefold()
        return tuple(each for each in self.skills if each.skill.name == wanted)

    def find(self, name: str) -> Listed | None:
        """The one that counts."""
        return next(iter(self.named(name)), None)

    @property
    def usable(self) -> tuple[Listed, ...]:
        return tuple(each for each in self.skills if each.usable)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDecision:
    """What an owner has decided about a skill with exactly this hash."""

    name: str
    hash: str
    source: str
    enabled: bool
    decided_by: PersonId
    decided_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSkill:
    """What was enabled, kept to say later what has changed: digests by file, and SKILL.md."""

    files: dict[str, str] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSkill:
    """A skill's text, framed for a worker."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDraft:
    """A skill yet to be saved: its whole SKILL.md, as it was shown."""

    name: str
    text: str


class WhyNoSkill(StrEnum):
    """Why a skill was not loaded, enabled or saved; texts under `error.skill_<reason>`."""

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
    """`detail` says more, in the words of the place that knows."""

    def __init__(self, reason: WhyNoSkill, name: str, detail: str = "") -> None:
        self.reason = reason
        self.name = name
        self.detail = detail
        super().__init__(f"{name!r}: {reason} {detail}".rstrip())
