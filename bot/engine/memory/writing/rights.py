"""Who may change which memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.engine.memory.scopes import Reader
from storage.records.memory.entries import Scope, ScopeKind
from storage.records.people import Person, PersonId, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class By:
    """Whose word changes what is remembered, and who reads along where it is said. `HOME` is
    whoever has the data folder in their hands."""

    person: Person | None
    reader: Reader | None
    besides: Sequence[Scope] = ()
    """What else is seen there: an owner looks into what belongs to projects and skills."""

    @property
    def scopes(self) -> Sequence[Scope] | None:
        """What they may see there; None: all."""
        if self.reader is None:
            return None
        # Whatever they ask for: nobody looks into what is somebody's own.
        more = [each for each in self.besides if each.kind not in _OWN]
        return (*self.reader.scopes, *more)

    def may_write(self, scope: Scope) -> bool:
        """People change what is their own and what is their chat's, owners also what is nobody's
        own. What is somebody's own is changed in private only: in a group it is not even seen."""
        if self.reader is None:
            return True
        if self.person is None:
            return False
        match scope.kind:
            case ScopeKind.PERSON:
                return self.reader.is_private and scope.name == self.person.id
            case ScopeKind.CHAT:
                return self.reader.chat is not None and scope.name == self.reader.chat.id
            case _:
                return self.person.role is Role.OWNER

    def may_decide(self, whose: PersonId | None) -> bool:
        """About what was proposed because of what that person said; of nobody known by owners."""
        if self.reader is None:
            return True
        if self.person is None:
            return False
        return self.person.id == whose if whose else self.person.role is Role.OWNER


_OWN = frozenset({ScopeKind.PERSON, ScopeKind.CHAT})
HOME = By(person=None, reader=None)
