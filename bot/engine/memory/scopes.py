"""Who may read which memories, and for whom new ones are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.records.memory.entries import GLOBAL, Scope, ScopeKind
from storage.records.people import Chat, ChatKind, PersonId


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Whoever reads along: what is shown to one is shown to all of them. In a group nobody's
    private memories are seen, not even those of the one who asks."""

    chat: Chat | None = None
    person: PersonId | None = None
    project: str = ""
    skill: str = ""
    agent: str = ""

    @property
    def is_private(self) -> bool:
        """True where only this person hears what is said."""
        return self.person is not None and self.chat is not None and _is_own(self.chat)

    @property
    def scopes(self) -> Sequence[Scope]:
        """What may be read, the nearest first. Nobody to read for: nothing."""
        if self.chat is None:
            return ()
        near = [
            (ScopeKind.SKILL, self.skill),
            (ScopeKind.PERSON, self.person if self.is_private else ""),
            (ScopeKind.CHAT, self.chat.id),
            (ScopeKind.PROJECT, self.project),
            (ScopeKind.AGENT, self.agent),
        ]
        return (*(Scope(kind, name) for kind, name in near if name), GLOBAL)

    @property
    def keeps_in(self) -> Scope | None:
        """Where what is said here is kept: with the person in private, else with the chat."""
        if self.chat is None:
            return None
        if self.is_private and self.person is not None:
            return Scope(ScopeKind.PERSON, self.person)
        return Scope(ScopeKind.CHAT, self.chat.id)


def _is_own(chat: Chat) -> bool:
    return chat.kind is ChatKind.PRIVATE
