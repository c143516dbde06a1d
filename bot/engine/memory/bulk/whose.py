"""By which accounts a person is known again in another home, where ids are others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from storage.records.memory.entries import Entry, Scope, ScopeKind
from storage.records.people import Member, PersonId

Accounts: TypeAlias = Mapping[PersonId, Sequence[str]]


def accounts_of(members: Iterable[Member]) -> Accounts:
    return {
        each.person.id: [f"{channel.value}:{name}" for channel, name in each.accounts]
        for each in members
    }


def whose(entry: Entry) -> PersonId | None:
    """Whose memory it is, else who said it."""
    if entry.scope.kind is ScopeKind.PERSON:
        return PersonId(entry.scope.name)
    return entry.person


@dataclass(frozen=True, slots=True)
class Residents:
    """Who is at home here."""

    accounts: Accounts

    def take_in(self, entry: Entry, accounts: Sequence[str]) -> Entry:
        """The same of whoever has one of these accounts here. As it is where its person is here
        by the same id, or nobody has."""
        person = whose(entry)
        if person is None or person in self.accounts:
            return entry
        here = next((who for who, own in self.accounts.items() if set(own) & set(accounts)), None)
        if here is None:
            return entry
        mine = entry.scope == Scope(ScopeKind.PERSON, person)
        scope = Scope(ScopeKind.PERSON, here) if mine else entry.scope
        return replace(entry, scope=scope, person=here if entry.person == person else entry.person)
