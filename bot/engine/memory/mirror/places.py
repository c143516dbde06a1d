"""Which file shows what: a scope's long-term memory, its days, a person's profile, the handbook."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from enum import StrEnum

from storage.memory.markdown.page import Layout
from storage.records.memory.entries import EntryId, MemoryKind, Scope, ScopeKind

_SLUG = re.compile(r"[^\w]+")
_LONGEST = 40
_SUFFIX = 6
_ROOT = "memory"
_FOLDERS = {
    ScopeKind.PERSON: "people",
    ScopeKind.CHAT: "chats",
    ScopeKind.PROJECT: "projects",
    ScopeKind.SKILL: "skills",
    ScopeKind.AGENT: "agents",
}


class Sort(StrEnum):
    MEMORY = "memory"
    PROFILE = "profile"
    HANDBOOK = "handbook"
    DAY = "day"
    EPISODE = "episode"

    @property
    def stands(self) -> bool:
        """Whether a scope has one such file, rather than one for each day or episode."""
        return self not in {Sort.DAY, Sort.EPISODE}

    @property
    def layout(self) -> Layout:
        return Layout.BOOK if self in {Sort.HANDBOOK, Sort.EPISODE} else Layout.LIST


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A file. `name` is what its scope is called; `day` and `entry` are whose file it is."""

    path: str
    sort: Sort
    scope: Scope
    name: str = ""
    day: date | None = None
    entry: EntryId | None = None

    @property
    def kinds(self) -> Sequence[MemoryKind]:
        return kinds_of(self.scope, self.sort)

    def span(self, zone: tzinfo) -> tuple[datetime, datetime] | None:
        """From its midnight to the next, as the Boss's clocks show them."""
        if self.day is None:
            return None
        begins = datetime.combine(self.day, time(), zone)
        return begins, datetime.combine(self.day + timedelta(days=1), time(), zone)


def kinds_of(scope: Scope, sort: Sort) -> Sequence[MemoryKind]:
    match sort:
        case Sort.HANDBOOK:
            return (MemoryKind.HANDBOOK,)
        case Sort.PROFILE:
            return (MemoryKind.PROFILE,)
        case Sort.DAY:
            return (MemoryKind.CELL, MemoryKind.FACT)
        case Sort.EPISODE:
            return (MemoryKind.EPISODE,)
        case Sort.MEMORY:
            own = {ScopeKind.PERSON: MemoryKind.PROFILE, ScopeKind.GLOBAL: MemoryKind.HANDBOOK}
            others = {MemoryKind.LONGTERM, MemoryKind.PROFILE, MemoryKind.HANDBOOK}
            return tuple(each for each in MemoryKind if each in others - {own.get(scope.kind)})


def is_shown(scope: Scope) -> bool:
    """Scopes of imports have no files: they may be large, and nobody edits them."""
    return scope.kind is not ScopeKind.CUSTOM


def standing(scope: Scope, folder: str, name: str) -> Sequence[Place]:
    """The files that a scope has whether or not there is anything in them."""
    if scope.kind is ScopeKind.GLOBAL:
        return (
            Place(path="BOSS.md", sort=Sort.HANDBOOK, scope=scope),
            Place(path="MEMORY.md", sort=Sort.MEMORY, scope=scope),
        )
    memory = Place(path=f"{folder}/MEMORY.md", sort=Sort.MEMORY, scope=scope, name=name)
    if scope.kind is not ScopeKind.PERSON:
        return (memory,)
    return (Place(path=f"{folder}/PROFILE.md", sort=Sort.PROFILE, scope=scope, name=name), memory)


def of_day(scope: Scope, folder: str, name: str, day: date) -> Place:
    path = f"{folder}/{day.isoformat()}.md"
    return Place(path=path, sort=Sort.DAY, scope=scope, name=name, day=day)


def of_episode(scope: Scope, name: str, entry: EntryId, day: date) -> Place:
    path = f"{_ROOT}/episodes/{entry}.md"
    return Place(path=path, sort=Sort.EPISODE, scope=scope, name=name, entry=entry, day=day)


def folder_of(scope: Scope, name: str, known: Iterable[str] = ()) -> str:
    """A scope's folder: one that `known` files lie in stays, whatever the scope is called now."""
    if scope.kind is ScopeKind.GLOBAL:
        return f"{_ROOT}/global"
    root = f"{_ROOT}/{_FOLDERS[scope.kind]}"
    slug, suffix = _slug(name), _suffix(scope, name)
    if not suffix:
        return f"{root}/{slug}"
    for path in known:
        folder = path.rpartition("/")[0]
        if folder.startswith(f"{root}/") and folder.endswith(f"-{suffix}"):
            return folder
    return f"{root}/{slug}-{suffix}"


def _suffix(scope: Scope, name: str) -> str:
    """Two of one name have two folders; skills and agents are called by names that are one's own
    already, if they can be a folder's."""
    if scope.kind in {ScopeKind.SKILL, ScopeKind.AGENT} and _slug(name) == scope.name:
        return ""
    return hashlib.sha256(str(scope).encode()).hexdigest()[:_SUFFIX]


def _slug(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name).casefold()
    return _SLUG.sub("-", plain)[:_LONGEST].strip("-_") or "unnamed"
