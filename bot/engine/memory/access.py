"""Access rules for memories: which scopes a reader sees, who may change or decide about them, and
what a person writes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from storage.records.memory import (
    GLOBAL_SCOPE,
    MemoryCategory,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
)
from storage.records.people import Chat, ChatKind, Person, PersonId, PersonRole


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReader:
    """Everyone who sees what is shown in a conversation. Private memories never appear in a group,
    not even those of the person asking."""

    chat: Chat | None = None
    person: PersonId | None = None
    project: str = ""
    skill: str = ""
    agent: str = ""

    @property
    def is_private(self) -> bool:
        """True in a private chat with a known person."""
        in_private = self.chat is not None and self.chat.kind is ChatKind.PRIVATE
        return in_private and self.person is not None

    @property
    def scopes(self) -> Sequence[MemoryScope]:
        """Readable scopes, nearest first; empty without a chat."""
        if self.chat is None:
            return ()
        near = [
            (MemoryScopeKind.SKILL, self.skill),
            (MemoryScopeKind.PERSON, self.person if self.is_private else ""),
            (MemoryScopeKind.CHAT, self.chat.id),
            (MemoryScopeKind.PROJECT, self.project),
            (MemoryScopeKind.AGENT, self.agent),
        ]
        return (*(MemoryScope(kind, name) for kind, name in near if name), GLOBAL_SCOPE)

    @property
    def write_scope(self) -> MemoryScope | None:
        """Scope for memories made here: the person's in a private chat, otherwise the chat's."""
        if self.chat is None:
            return None
        if self.is_private and self.person is not None:
            return MemoryScope(MemoryScopeKind.PERSON, self.person)
        return MemoryScope(MemoryScopeKind.CHAT, self.chat.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEditor:
    """The person who changes memories and the readers of the conversation they do it in.
    `LOCAL_EDITOR` is the local operator, who may change everything."""

    person: Person | None
    reader: MemoryReader | None
    extra_scopes: Sequence[MemoryScope] = ()
    """Scopes visible in addition to the reader's: owners also see those of projects and skills."""

    @property
    def scopes(self) -> Sequence[MemoryScope] | None:
        """Visible scopes; None means all."""
        if self.reader is None:
            return None
        # Personal and chat scopes of others stay invisible, whatever was asked for.
        more = [each for each in self.extra_scopes if each.kind not in PRIVATE_SCOPE_KINDS]
        return (*self.reader.scopes, *more)

    def may_write(self, scope: MemoryScope) -> bool:
        """People write to their own scope (in private only) and to their chat's; owners also write
        to all other scopes."""
        if self.reader is None:
            return True
        if self.person is None:
            return False
        match scope.kind:
            case MemoryScopeKind.PERSON:
                return self.reader.is_private and scope.name == self.person.id
            case MemoryScopeKind.CHAT:
                return self.reader.chat is not None and scope.name == self.reader.chat.id
            case _:
                return self.person.role is PersonRole.OWNER

    def may_decide(self, author: PersonId | None) -> bool:
        """Whether the editor may decide about a candidate from `author`; without a known author,
        owners decide."""
        if self.reader is None:
            return True
        if self.person is None:
            return False
        return self.person.id == author if author else self.person.role is PersonRole.OWNER


PRIVATE_SCOPE_KINDS = frozenset({MemoryScopeKind.PERSON, MemoryScopeKind.CHAT})
LOCAL_EDITOR = MemoryEditor(person=None, reader=None)

OWN_SCOPE, CHAT_SCOPE, _PROJECT_SCOPE = "me", "chat", "project"
_MAX_SHOWN_CHARS = 80


class UnknownScopeName(Exception):
    """No such scope. The text says why."""


def parse_scope(name: str) -> MemoryScope:
    """A name without a kind is a custom scope, visible only when named. Raises UnknownScopeName."""
    if name == _PROJECT_SCOPE:
        raise UnknownScopeName("say which project, as in project:/FOLDER")
    with suppress(ValueError):
        return MemoryScope.parse(name)
    kind = name.partition(":")[0]
    if not name or kind in set(MemoryScopeKind):
        raise UnknownScopeName(f"{name[:_MAX_SHOWN_CHARS]!r} names nobody")
    return MemoryScope(MemoryScopeKind.CUSTOM, name)


def scopes_in_chat(chat: Chat, name: str) -> Sequence[MemoryScope]:
    """The chat owner's scopes there: all, or the one called `me` or `chat`."""
    reader = MemoryReader(chat=chat, person=chat.person_id, project=chat.settings.project)
    if not name:
        return reader.scopes
    kind = MemoryScopeKind.CHAT if name == CHAT_SCOPE else MemoryScopeKind.PERSON
    return [scope for scope in reader.scopes if scope.kind is kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualMemory:
    """A memory written by a person. The default scope is the person's, or the group's. An earlier
    entry with the same `key` is superseded."""

    text: str
    scope: MemoryScope | None = None
    kind: MemoryKind = MemoryKind.LONGTERM
    category: MemoryCategory = MemoryCategory.OTHER
    label: str = ""
    key: str = ""
    keywords: tuple[str, ...] = ()
    importance: float = 0.8
    pinned: bool = False
    source: str | None = None
    said_at: datetime | None = None


def copy_source(entry_id: str) -> str:
    """Source of a line that was copied with another entry's marker."""
    return f"copy:{entry_id}"
